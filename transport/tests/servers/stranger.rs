//! A QUIC peer played by hand, which can send any bytes.

use super::id;
use bytes::{Bytes, BytesMut};
use quinn::{Connection, ConnectionError, Endpoint, ReadError, RecvStream, SendStream, TransportConfig, VarInt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zoolet_machine::seam::peer::Incarnation;
use zoolet_transport::peer::codec::{Hello, MINOR_VERSION, Opening};
use zoolet_transport::peer::trust::{Gate, Identity, Pins, Trust};

/// The dialler accepts the acceptor's Hello.
const GO: u8 = 0;
/// A probe: are you alive?
const ASK: u8 = 1;
/// The answer to a probe.
const ANSWERED: u8 = 2;

/// A QUIC endpoint with its own key. Must be created on a runtime.
pub(crate) struct Stranger {
    pub(crate) endpoint: Endpoint,
    gate: Gate,
}

impl Stranger {
    pub(crate) fn new() -> Self {
        let gate = Gate::new(Identity::generate().unwrap(), Trust::Loopback, Pins::new());
        Self { endpoint: Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap(), gate }
    }

    /// Returns a stranger that also listens on `address`, so that a server can dial it.
    pub(crate) fn at(address: SocketAddr) -> Self {
        let gate = Gate::new(Identity::generate().unwrap(), Trust::Loopback, Pins::new());
        let mut config = gate.server_config().unwrap();
        config.transport_config(Arc::new(transport()));
        Self { endpoint: Endpoint::server(config, address).unwrap(), gate }
    }

    /// Accepts the next connection through TLS, and reads the dialler's Hello without answering.
    pub(crate) async fn dialled(&self) -> (Connection, SendStream, RecvStream) {
        let connection = self.endpoint.accept().await.unwrap().await.unwrap();
        let (say, mut hear) = connection.accept_bi().await.unwrap();
        hello_of(&mut hear).await.unwrap();
        (connection, say, hear)
    }

    /// Connects through TLS and sends nothing. Keep-alive packets keep the connection open.
    pub(crate) async fn connect(&self, to: SocketAddr) -> Result<Connection, ConnectionError> {
        let mut config = self.gate.client_config(id(1)).unwrap();
        config.transport_config(Arc::new(transport()));
        self.endpoint.connect_with(config, to, &Gate::server_name(id(1))).unwrap().await
    }

    /// Returns the Hello of server `from` to server `to`.
    pub(crate) fn hello(from: u8, to: u8) -> Hello {
        Hello {
            minor_version: MINOR_VERSION,
            site: "plant".to_owned(),
            from: id(from),
            to: id(to),
            process: 77,
            process_age_ms: 0,
            disk: Incarnation(77),
            addresses: Vec::new(),
            proof: None,
            extension: Bytes::new(),
        }
    }

    /// Makes a link to server `to`, as server `from` would.
    ///
    /// Nothing reads the peer's messages or answers its probes.
    pub(crate) async fn link(&self, from: u8, to: u8, address: SocketAddr) -> (Connection, SendStream, RecvStream) {
        let connection = self.connect(address).await.unwrap();
        let (say, hear) = Self::greet(&connection, Self::hello(from, to)).await.unwrap();
        (connection, say, hear)
    }

    /// Sends Hello and accepts the answer; without an answer, returns how the connection ended.
    pub(crate) async fn greet(
        connection: &Connection,
        hello: Hello,
    ) -> Result<(SendStream, RecvStream), ConnectionError> {
        let (mut say, hear) = Self::be_answered(connection, hello).await?;
        say_go(&mut say).await;
        Ok((say, hear))
    }

    /// Sends Hello and reads the answer, which the caller may accept later.
    pub(crate) async fn be_answered(
        connection: &Connection,
        hello: Hello,
    ) -> Result<(SendStream, RecvStream), ConnectionError> {
        let (mut say, mut hear) = connection.open_bi().await?;
        say_hello(&mut say, hello).await;
        let Ok(()) = hello_of(&mut hear).await else { return Err(connection.closed().await) };
        Ok((say, hear))
    }
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .keep_alive_interval(Some(Duration::from_millis(300)))
        .max_concurrent_uni_streams(VarInt::from_u32(10))
        .max_concurrent_bidi_streams(VarInt::from_u32(10));
    transport
}

/// Sends Hello. An error of the stream is ignored, because the connection reports it.
pub(crate) async fn say_hello(say: &mut SendStream, hello: Hello) {
    let mut bytes = BytesMut::new();
    Opening::Hello(hello).encode(&mut bytes);
    let _ = say.write_all(&bytes).await;
}

/// Accepts the acceptor's Hello.
pub(crate) async fn say_go(say: &mut SendStream) {
    let _ = say.write_all(&[GO]).await;
}

/// Reads the peer's Hello.
async fn hello_of(hear: &mut RecvStream) -> Result<(), ReadError> {
    let mut received = BytesMut::new();
    while Opening::take(&mut received).unwrap().is_none() {
        let chunk = hear.read_chunk(1 << 12, true).await?;
        received.extend_from_slice(&chunk.unwrap().bytes);
    }
    Ok(())
}

/// Answers probes until the connection ends.
pub(crate) async fn answer(say: &mut SendStream, hear: &mut RecvStream) {
    let mut word = [0];
    while hear.read_exact(&mut word).await.is_ok() {
        if word == [ASK] {
            say.write_all(&[ANSWERED]).await.unwrap();
        }
    }
}

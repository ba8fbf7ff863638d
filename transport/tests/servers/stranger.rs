//! Somebody who speaks QUIC to a server, and says what he likes.

use super::id;
use bytes::{Bytes, BytesMut};
use quinn::{Connection, ConnectionError, Endpoint, ReadError, RecvStream, SendStream, TransportConfig, VarInt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zoolet_engine::peer::Incarnation;
use zoolet_transport::peer::codec::{Hello, MINOR_VERSION, Opening};
use zoolet_transport::peer::trust::{Gate, Identity, Pins, Trust};

/// The dialler is content.
const GO: u8 = 0;
/// Are you there?
const ASK: u8 = 1;
/// I am.
const ANSWERED: u8 = 2;

/// An endpoint of his own. Only on a runtime.
pub(crate) struct Stranger {
    pub(crate) endpoint: Endpoint,
    gate: Gate,
}

impl Stranger {
    pub(crate) fn new() -> Self {
        let gate = Gate::new(Identity::generate().unwrap(), Trust::Loopback, Pins::new());
        Self { endpoint: Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap(), gate }
    }

    /// One who is dialled, too.
    pub(crate) fn at(address: SocketAddr) -> Self {
        let gate = Gate::new(Identity::generate().unwrap(), Trust::Loopback, Pins::new());
        let mut config = gate.server_config().unwrap();
        config.transport_config(Arc::new(transport()));
        Self { endpoint: Endpoint::server(config, address).unwrap(), gate }
    }

    /// The next one who dials him, through TLS, and the stream of the Hellos. He has not answered.
    pub(crate) async fn dialled(&self) -> (Connection, SendStream, RecvStream) {
        let connection = self.endpoint.accept().await.unwrap().await.unwrap();
        let (say, mut hear) = connection.accept_bi().await.unwrap();
        hello_of(&mut hear).await.unwrap();
        (connection, say, hear)
    }

    /// Through TLS, and no further. What is opened stays open as far as it is up to him.
    pub(crate) async fn connect(&self, to: SocketAddr) -> Result<Connection, ConnectionError> {
        let mut config = self.gate.client_config(id(1)).unwrap();
        config.transport_config(Arc::new(transport()));
        self.endpoint.connect_with(config, to, &Gate::server_name(id(1))).unwrap().await
    }

    /// As server `from` says it to server `to`.
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

    /// A link to server `to`, as server `from` makes one. What its peer says is not read, and it is not answered whether somebody is there.
    pub(crate) async fn link(&self, from: u8, to: u8, address: SocketAddr) -> (Connection, SendStream, RecvStream) {
        let connection = self.connect(address).await.unwrap();
        let (say, hear) = Self::greet(&connection, Self::hello(from, to)).await.unwrap();
        (connection, say, hear)
    }

    /// Says Hello, and is content with the answer; how the connection ends, if there is none.
    pub(crate) async fn greet(
        connection: &Connection,
        hello: Hello,
    ) -> Result<(SendStream, RecvStream), ConnectionError> {
        let (mut say, hear) = Self::be_answered(connection, hello).await?;
        say_go(&mut say).await;
        Ok((say, hear))
    }

    /// Says Hello and hears the answer, with which he may be content later.
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

/// What is wrong with the stream is wrong with the connection, which says so.
pub(crate) async fn say_hello(say: &mut SendStream, hello: Hello) {
    let mut bytes = BytesMut::new();
    Opening::Hello(hello).encode(&mut bytes);
    let _ = say.write_all(&bytes).await;
}

/// Says that he is content.
pub(crate) async fn say_go(say: &mut SendStream) {
    let _ = say.write_all(&[GO]).await;
}

/// Waits for the other one's.
async fn hello_of(hear: &mut RecvStream) -> Result<(), ReadError> {
    let mut received = BytesMut::new();
    while Opening::take(&mut received).unwrap().is_none() {
        let chunk = hear.read_chunk(1 << 12, true).await?;
        received.extend_from_slice(&chunk.unwrap().bytes);
    }
    Ok(())
}

/// Answers whether he lives, to the end of the connection.
pub(crate) async fn answer(say: &mut SendStream, hear: &mut RecvStream) {
    let mut word = [0];
    while hear.read_exact(&mut word).await.is_ok() {
        if word == [ASK] {
            say.write_all(&[ANSWERED]).await.unwrap();
        }
    }
}

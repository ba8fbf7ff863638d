//! Somebody who speaks QUIC to a server, and says what he likes.

use super::id;
use bytes::{Bytes, BytesMut};
use quinn::{Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zoolet_engine::peer::Incarnation;
use zoolet_transport::peer::codec::{Hello, MINOR_VERSION, Opening};
use zoolet_transport::peer::trust::{Gate, Identity, Pins, Trust};
use zoolet_zab::EnsembleId;

/// An endpoint of his own. Only on a runtime.
pub(crate) struct Stranger {
    endpoint: Endpoint,
    gate: Gate,
}

impl Stranger {
    pub(crate) fn new() -> Self {
        let gate = Gate::new(Identity::generate().unwrap(), Trust::Loopback, Pins::new());
        Self { endpoint: Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap(), gate }
    }

    /// Through TLS, and no further. What is opened stays open as far as it is up to him.
    pub(crate) async fn connect(&self, to: SocketAddr) -> Result<Connection, quinn::ConnectionError> {
        let mut transport = TransportConfig::default();
        transport
            .keep_alive_interval(Some(Duration::from_millis(300)))
            .max_concurrent_uni_streams(VarInt::from_u32(10))
            .max_concurrent_bidi_streams(VarInt::from_u32(10));
        let mut config = self.gate.client_config(id(1)).unwrap();
        config.transport_config(Arc::new(transport));
        self.endpoint.connect_with(config, to, &Gate::server_name(id(1))).unwrap().await
    }

    /// As server `from` says it to server `to`.
    pub(crate) fn hello(from: u8, to: u8) -> Hello {
        Hello {
            minor_version: MINOR_VERSION,
            site: "plant".to_owned(),
            ensemble: EnsembleId::UNBORN,
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
        let (mut say, mut hear) = connection.open_bi().await.unwrap();
        let mut bytes = BytesMut::new();
        Opening::Hello(Self::hello(from, to)).encode(&mut bytes);
        say.write_all(&bytes).await.unwrap();
        let mut answer = BytesMut::new();
        while Opening::take(&mut answer).unwrap().is_none() {
            let chunk = hear.read_chunk(1 << 12, true).await.unwrap().unwrap();
            answer.extend_from_slice(&chunk.bytes);
        }
        say.write_all(&[0]).await.unwrap();
        (connection, say, hear)
    }
}

//! Settings of QUIC and of its UDP socket, each with its reason.

use quinn::congestion::CubicConfig;
use quinn::{AckFrequencyConfig, Connection, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Kernel buffer of the socket, in bytes, for each direction.
///
/// A burst of a whole window arrives faster than a small processor decrypts it. The usual 208 KB
/// overflow, and the loss slows the link for a while. The kernel may allow less than this.
const SOCKET_BYTES: usize = 1 << 20;

/// Streams that may fill their windows independently: log, forward and a snapshot.
const STREAMS: u32 = 3;
/// Receive window of an unproved peer, in bytes. A Hello fits in it.
const STRANGER_WINDOW: u32 = 8 << 10;

/// Maximum one-way streams that a peer may have open: log and forward.
const LANES_MAX: u32 = 2;
/// Maximum two-way streams that a peer may have open: Hellos and snapshots.
///
/// A dropped snapshot is soon followed by another.
const CALLS_MAX: u32 = 4;

/// Time without packets after which QUIC closes a connection.
///
/// [`silence`](super::silence) ends a link earlier.
const IDLE: Duration = Duration::from_secs(5);
/// Interval of QUIC's keep-alive, at a cost of two packets of 70 bytes.
///
/// Needed only between two learners, which exchange no messages. Heartbeats suppress it.
///
/// Without it [`silence`](super::silence) would not notice that such a link is dead.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Assumed round-trip time of a path without measurements.
///
/// The first packets are retransmitted after three times this value. A smaller one would send
/// several copies to a box that starts slowly. A larger one would make each loss in a handshake
/// expensive.
const INITIAL_RTT: Duration = Duration::from_millis(20);

/// Initial congestion window, in bytes.
///
/// A link is idle for long and then has much to send, but an unused window does not grow. The usual
/// 12 kB would remain in force.
const INITIAL_WINDOW: u64 = 256 << 10;

/// Maximum delay of an acknowledgement that waits for a packet to travel in.
///
/// The delay is part of the timeout after which a burst's last packet counts as lost.
const ACK_DELAY: Duration = Duration::from_millis(5);
/// Packets that a peer may receive without acknowledging at once.
///
/// The usual acknowledgement of every second packet takes a third of the processor in a burst.
const ACK_PACKETS: u32 = 8;

/// Buffer for heartbeats, which take about 100 bytes each.
///
/// A heartbeat that waits behind more than a few others is stale.
const DATAGRAM_BYTES: usize = 16 << 10;

/// Binds the UDP socket.
///
/// # Errors
/// The socket cannot be created or bound.
pub(in crate::peer) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        // "[::]" must also accept IPv4, regardless of the system's default. If it cannot, IPv6
        // alone is still useful.
        let _ = socket.set_only_v6(false);
    }
    // The kernel caps the size silently.
    let _ = socket.set_recv_buffer_size(SOCKET_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BYTES);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Returns the transport settings of all connections before they have proved themselves.
///
/// A link may have `window_bytes` sent without acknowledgement, and as many received but not yet
/// read.
pub(super) fn transport(window_bytes: u32) -> Arc<TransportConfig> {
    let mut congestion = CubicConfig::default();
    congestion.initial_window(INITIAL_WINDOW);
    let mut acks = AckFrequencyConfig::default();
    acks.max_ack_delay(Some(ACK_DELAY)).ack_eliciting_threshold(VarInt::from_u32(ACK_PACKETS));

    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(IdleTimeout::try_from(IDLE).ok())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .initial_rtt(INITIAL_RTT)
        // Packets of 1,200 bytes pass everywhere, including a site's tunnel. Discovery finds larger
        // sizes that pass.
        .mtu_discovery_config(Some(MtuDiscoveryConfig::default()))
        .congestion_controller_factory(Arc::new(congestion))
        .ack_frequency_config(Some(acks))
        .stream_receive_window(VarInt::from_u32(window_bytes / STREAMS))
        .receive_window(VarInt::from_u32(STRANGER_WINDOW))
        .send_window(window_bytes.into())
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .datagram_receive_buffer_size(Some(DATAGRAM_BYTES))
        .datagram_send_buffer_size(DATAGRAM_BYTES)
        // The spin bit would help only an observer on the path, and these links have none.
        .allow_spin(false);
    Arc::new(transport)
}

/// Opens the windows and streams of a proved peer.
pub(super) fn open_windows(connection: &Connection, window_bytes: u32) {
    connection.set_receive_window(VarInt::from_u32(window_bytes));
    connection.set_max_concurrent_uni_streams(VarInt::from_u32(LANES_MAX));
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(CALLS_MAX));
}

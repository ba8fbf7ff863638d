//! The settings of QUIC and of the socket below it, each with its reason.

use quinn::congestion::CubicConfig;
use quinn::{AckFrequencyConfig, Connection, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that the kernel keeps for a busy process, each way. A burst of a whole window comes in faster than a small processor decrypts it; the
/// usual 208 KB lose a part of it, and then the link is slow for a while. The kernel may allow less.
const SOCKET_BYTES: usize = 1 << 20;

/// Streams that fill their windows and do not take from each other: log, forward and a snapshot.
const STREAMS: u32 = 3;
/// Bytes of a connection that has not proved itself, and that nobody has read. It has a Hello to say.
const STRANGER_WINDOW: u32 = 8 << 10;

/// Streams that a peer may have open one way: log and forward.
const LANES_MAX: u32 = 2;
/// Streams that a peer may have open both ways: the one of the Hellos, and snapshots. One that is dropped is soon followed by another.
const CALLS_MAX: u32 = 4;

/// A link on which nothing was heard for so long is garbage. Who is alive is decided above, by heartbeats and much earlier.
const IDLE: Duration = Duration::from_secs(5);
/// What keeps a link between two learners, who have nothing to say to each other: two packets of 70 bytes in this time. Where there are heartbeats it is
/// never sent.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Of a path on which nothing was measured yet. The first packets are repeated after three times this; too little would send a box that starts
/// slowly several of each, too much makes every loss in a handshake a wait.
const INITIAL_RTT: Duration = Duration::from_millis(20);

/// What may be sent at once before anything was measured. Links are idle for long and then have much to send, and a window that is not used
/// does not grow: the usual 12 kB would stay.
const INITIAL_WINDOW: u64 = 256 << 10;

/// Acknowledgements wait so long for something to travel with. It is part of the time after which the last packet of a burst is taken for lost.
const ACK_DELAY: Duration = Duration::from_millis(5);
/// So many packets are acknowledged together. One for every second packet, as usual, costs a third of the processor in a burst.
const ACK_PACKETS: u32 = 8;

/// Heartbeats, of some 100 bytes. What waits longer than a few of them is stale.
const DATAGRAM_BYTES: usize = 16 << 10;

/// Binds the port.
///
/// # Errors
/// When it cannot be had.
pub(in crate::peer) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        // "[::]" means everybody, whatever the system's default says. Where IPv4 cannot be had on such a socket, IPv6 is still worth having.
        let _ = socket.set_only_v6(false);
    }
    // A kernel that allows less gives what it allows.
    let _ = socket.set_recv_buffer_size(SOCKET_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BYTES);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Of all connections, until they have proved themselves. A link may hold `window_bytes` that were sent and are not acknowledged, and as many that came and
/// are not read.
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
        // 1,200 bytes go through everywhere, a tunnel of the site included; what more goes through is found out.
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
        // Nobody watches these links from outside.
        .allow_spin(false);
    Arc::new(transport)
}

/// The peer has proved itself: it may say more than who it is.
pub(super) fn open_windows(connection: &Connection, window_bytes: u32) {
    connection.set_receive_window(VarInt::from_u32(window_bytes));
    connection.set_max_concurrent_uni_streams(VarInt::from_u32(LANES_MAX));
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(CALLS_MAX));
}

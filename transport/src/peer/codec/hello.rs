//! The first message between two servers.

use super::frame_reader::{Read, Reader};
use super::frame_writer;
use bytes::{BufMut, Bytes, BytesMut};
use zoolet_model::ServerId;
use zoolet_zab::Incarnation;

/// Minor version of this release's messages.
///
/// A release sends only messages that its predecessor understands, until an operator makes the
/// upgrade final. The major version is in the link's protocol name (ALPN).
pub const MINOR_VERSION: u16 = 0;
/// Maximum number of addresses in one Hello.
pub const ADDRESSES_MAX: usize = 8;
/// Maximum bytes of an address: name 253, colon, port 5.
pub const ADDRESS_BYTES_MAX: usize = 253 + 1 + 5;
/// Maximum bytes of a site's name.
pub const SITE_BYTES_MAX: usize = 128;
/// Maximum bytes of the extension.
pub const EXTENSION_BYTES_MAX: usize = 1024;

/// Names the sender and the server it believes to be talking to.
///
/// Each side sends one Hello on the connection's first stream, before any other message. The
/// dialler sends first; the acceptor answers only after the dialler has proved itself.
///
/// The Hello does not name the ensemble, because a disk may join one while links are up.
/// Notifications carry the ensemble, and the engine checks it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The sender's [`MINOR_VERSION`].
    pub minor_version: u16,
    /// Name of the sender's site, or empty. The encoder truncates it to [`SITE_BYTES_MAX`].
    pub site: String,
    /// The sender.
    pub from: ServerId,
    /// The server that the sender believes it is talking to.
    pub to: ServerId,
    /// Random number of the sender's process, drawn at each start.
    pub process: u64,
    /// Age of the sender's process, in milliseconds. Counted from the start of its links.
    pub process_age_ms: u64,
    /// Incarnation of the sender's disk.
    pub disk: Incarnation,
    /// Addresses of the sender, each as `host:port`, at most [`ADDRESSES_MAX`].
    ///
    /// The encoder leaves out an address longer than [`ADDRESS_BYTES_MAX`].
    pub addresses: Vec<String>,
    /// Proof that the sender knows the site key; `None` without a site key.
    pub proof: Option<[u8; 32]>,
    /// Fields of later releases, at most [`EXTENSION_BYTES_MAX`] bytes.
    ///
    /// This release sends none and ignores those it receives. It keeps the bytes, because the proof
    /// covers the whole Hello.
    pub extension: Bytes,
}

impl Hello {
    /// Appends the body, which follows the kind.
    pub(super) fn encode(&self, out: &mut BytesMut) {
        let Self { minor_version, site, from, to, process, process_age_ms, disk, .. } = self;
        let Self { addresses, proof, extension, .. } = self;
        out.put_u16_le(*minor_version);
        frame_writer::text(out, site, SITE_BYTES_MAX);
        out.put_slice(&[from.as_u8(), to.as_u8()]);
        out.put_u64_le(*process);
        out.put_u64_le(*process_age_ms);
        out.put_u128_le(disk.0);
        let sayable = || addresses.iter().filter(|address| address.len() <= ADDRESS_BYTES_MAX).take(ADDRESSES_MAX);
        out.put_u8(sayable().count() as u8);
        sayable().for_each(|address| frame_writer::text(out, address, ADDRESS_BYTES_MAX));
        frame_writer::option(out, proof.as_ref(), |out, proof| out.put_slice(proof));
        frame_writer::bytes(out, &extension[..extension.len().min(EXTENSION_BYTES_MAX)]);
    }

    pub(super) fn decode(reader: &mut Reader) -> Read<Self> {
        Ok(Self {
            minor_version: reader.u16()?,
            site: reader.text(SITE_BYTES_MAX)?,
            from: reader.server()?,
            to: reader.server()?,
            process: reader.u64()?,
            process_age_ms: reader.u64()?,
            disk: Incarnation(reader.u128()?),
            addresses: addresses(reader)?,
            proof: reader.option(Reader::array)?,
            extension: extension(reader)?,
        })
    }
}

fn addresses(reader: &mut Reader) -> Read<Vec<String>> {
    let count = usize::from(reader.u8()?);
    if count > ADDRESSES_MAX {
        return Err(reader.invalid("too many addresses"));
    }
    (0..count).map(|_| reader.text(ADDRESS_BYTES_MAX)).collect()
}

/// Reads and copies the extension, so that a Hello does not pin the receive buffer.
fn extension(reader: &mut Reader) -> Read<Bytes> {
    let extension = reader.counted_bytes()?;
    if extension.len() > EXTENSION_BYTES_MAX {
        return Err(reader.invalid("an extension that is too long"));
    }
    Ok(Bytes::copy_from_slice(&extension))
}

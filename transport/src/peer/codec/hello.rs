//! What two servers say first.

use super::reader::{Read, Reader};
use super::writer;
use bytes::{BufMut, Bytes, BytesMut};
use zoolet_model::ServerId;
use zoolet_zab::Incarnation;

/// The minor version of what this release says. A release says nothing that its predecessor does not understand before an operator has made the upgrade
/// final; the major version is the link's protocol name.
pub const MINOR_VERSION: u16 = 0;
/// Addresses in one Hello at most.
pub const ADDRESSES_MAX: usize = 8;
/// Bytes of an address at most: a name of 253, a colon, a port.
pub const ADDRESS_BYTES_MAX: usize = 253 + 1 + 5;
/// Bytes of the name of a site at most.
pub const SITE_BYTES_MAX: usize = 128;
/// Bytes of an extension at most.
pub const EXTENSION_BYTES_MAX: usize = 1024;

/// Who speaks, and to whom it believes to speak. On a stream of its own, before anything else: the dialler's first, and the acceptor's only when
/// that has proved itself. Which ensemble its disk belongs to is not among it: a disk may get its ensemble while links live, so notifications say it, and
/// the machine judges it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The sender's [`MINOR_VERSION`].
    pub minor_version: u16,
    /// The name of its site, empty without one; what is longer than [`SITE_BYTES_MAX`] is cut off.
    pub site: String,
    /// The sender.
    pub from: ServerId,
    /// Whom it believes to speak to.
    pub to: ServerId,
    /// Of its process: drawn anew with each start.
    pub process: u64,
    /// How long that process has lived, milliseconds.
    pub process_age_ms: u64,
    /// Of its disk.
    pub disk: Incarnation,
    /// Where it can be dialled, `host:port` each, [`ADDRESSES_MAX`] at most. One that is longer than [`ADDRESS_BYTES_MAX`] is left out.
    pub addresses: Vec<String>,
    /// That it knows the secret of its site.
    pub proof: Option<[u8; 32]>,
    /// What a later release adds, at most [`EXTENSION_BYTES_MAX`] bytes; this one says nothing here and passes it over. Kept all the same: the proof is
    /// made of everything that is said.
    pub extension: Bytes,
}

impl Hello {
    /// The body behind the kind.
    pub(super) fn encode(&self, out: &mut BytesMut) {
        let Self { minor_version, site, from, to, process, process_age_ms, disk, .. } = self;
        let Self { addresses, proof, extension, .. } = self;
        out.put_u16_le(*minor_version);
        writer::text(out, site, SITE_BYTES_MAX);
        out.put_slice(&[from.as_u8(), to.as_u8()]);
        out.put_u64_le(*process);
        out.put_u64_le(*process_age_ms);
        out.put_u128_le(disk.0);
        let sayable = || addresses.iter().filter(|address| address.len() <= ADDRESS_BYTES_MAX).take(ADDRESSES_MAX);
        out.put_u8(sayable().count() as u8);
        sayable().for_each(|address| writer::text(out, address, ADDRESS_BYTES_MAX));
        writer::option(out, proof.as_ref(), |out, proof| out.put_slice(proof));
        writer::bytes(out, &extension[..extension.len().min(EXTENSION_BYTES_MAX)]);
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

/// A copy, so that a Hello that is kept for long does not keep what came with it.
fn extension(reader: &mut Reader) -> Read<Bytes> {
    let extension = reader.counted_bytes()?;
    if extension.len() > EXTENSION_BYTES_MAX {
        return Err(reader.invalid("an extension that is too long"));
    }
    Ok(Bytes::copy_from_slice(&extension))
}

//! A small record in a file: a mark, a checksum, and the value as [postcard](https://postcard.jamesmunns.com) writes it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes before the value: the mark of the build, then the checksum of the value, both little-endian.
const HEAD_BYTES: usize = 32;

/// A value as bytes.
///
/// # Errors
/// It cannot be written down.
pub(super) fn bytes(value: &impl Serialize, mark: u128) -> io::Result<Vec<u8>> {
    let mut bytes = postcard::to_extend(value, vec![0; HEAD_BYTES]).map_err(io::Error::other)?;
    let checksum = xxh3_128(&bytes[HEAD_BYTES..]);
    bytes[..16].copy_from_slice(&mark.to_le_bytes());
    bytes[16..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// The value of bytes that carry this mark and are whole.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8], mark: u128) -> Option<T> {
    let (head, value) = bytes.split_at_checked(HEAD_BYTES)?;
    if head[..16] != mark.to_le_bytes() || head[16..] != xxh3_128(value).to_le_bytes() {
        return None;
    }
    postcard::from_bytes(value).ok()
}

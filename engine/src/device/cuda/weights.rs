//! How a model's constants reach the GPU: read and packed a part at a time, and copied from bounded host memory.
//!
//! What is read as the plan lays it out goes through in parts. A constant that a kernel packs is in host memory twice
//! for a moment, unpacked and packed.

use super::Shared;
use super::launch::Kernel;
use super::upload::Upload;
use crate::cache::Writer;
use crate::device::weights::{Fresh, Wanted, gather, in_parts};
use crate::device::{Held, Kept};
use crate::error::Error;
use cudarc::driver::sys::CUdeviceptr;
use std::io;
use std::sync::PoisonError;

/// A kernel, and which of its inputs a constant is; `None` for a kernel's own table.
pub(super) type Reader<'a> = Option<(&'a dyn Kernel, usize)>;

/// Bytes of a part.
const PART_BYTES: usize = 1 << 20;

/// Brings constants into a new room: as they were kept, or packed from the model's file and then kept. `readers` has
/// an entry for each of `wanted`.
///
/// # Errors
/// A constant cannot be read, or the driver fails.
pub(super) fn bring(
    shared: &Shared,
    wanted: &[Wanted<'_>],
    readers: &[Reader<'_>],
    kept: Option<&Kept<'_>>,
    held: &Held<'_>,
    places: &[Fresh],
) -> Result<(), Error> {
    shared.context.enter()?;
    let mut upload = shared.upload.lock().unwrap_or_else(PoisonError::into_inner);
    let first = held.first as CUdeviceptr;
    let mut part = vec![0; PART_BYTES];
    let mut missing = vec![];
    for fresh in places {
        let to = first + fresh.offset as u64;
        let key = kept.and_then(|kept| wanted[fresh.at].kept_key(kept.files));
        let found = match kept.zip(key) {
            Some((kept, key)) => {
                kept.pieces.read_in_parts(key, fresh.bytes, &mut part, &mut |at, bytes| {
                    upload.put(to + at as u64, bytes)
                })?
            }
            None => false,
        };
        if !found {
            missing.push((fresh, key));
        }
    }
    let keys: Vec<u128> = missing.iter().filter_map(|(_, key)| *key).collect();
    let mut keeper = Keeper::new(kept.filter(|_| !keys.is_empty()), &keys);
    for (fresh, key) in missing {
        let to = first + fresh.offset as u64;
        let mut sink = Sink { upload: &mut upload, to, keeper: key.and(Some(&mut keeper)) };
        write(&wanted[fresh.at], readers[fresh.at], &mut part, &mut sink)?;
        if let Some(key) = key {
            keeper.end(key);
        }
    }
    keeper.keep();
    upload.finish()
}

/// Reads a constant, packs it, and sends it off.
fn write(
    want: &Wanted<'_>,
    reader: Reader<'_>,
    part: &mut [u8],
    sink: &mut Sink<'_, '_>,
) -> Result<(), Error> {
    let failed = |source| want.unread(source);
    let packing = want.packing.as_ref().zip(reader);
    let Some((packing, (kernel, input))) = packing else {
        return in_parts(want.size, want.constant, part.len(), 0, &mut |constant, _, bytes| {
            let part = &mut part[..bytes];
            gather(&want.data, want.size, constant, part).map_err(failed)?;
            sink.put(part)
        });
    };
    let mut laid = vec![0f32; want.laid_bytes() / 4];
    gather(&want.data, want.size, want.constant, bytemuck::cast_slice_mut(&mut laid)).map_err(failed)?;
    // Whole words, whatever a kernel writes.
    let mut packed = vec![0u64; packing.bytes.div_ceil(8)];
    let packed = &mut bytemuck::cast_slice_mut(&mut packed)[..packing.bytes];
    kernel.pack(input, &laid, packed);
    sink.put(packed)
}

/// Where the parts of a constant go, one after the other.
struct Sink<'a, 'k> {
    upload: &'a mut Upload,
    to: CUdeviceptr,
    keeper: Option<&'a mut Keeper<'k>>,
}

impl Sink<'_, '_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.upload.put(self.to, bytes)?;
        self.to += bytes.len() as u64;
        if let Some(keeper) = &mut self.keeper {
            keeper.append(bytes);
        }
        Ok(())
    }
}

/// Keeps what was packed for the next start; where that fails it says so once, and no more.
struct Keeper<'k> {
    kept: Option<&'k Kept<'k>>,
    writer: Option<Writer>,
}

impl<'k> Keeper<'k> {
    fn new(kept: Option<&'k Kept<'k>>, keys: &[u128]) -> Keeper<'k> {
        let mut keeper = Keeper { kept, writer: None };
        keeper.writer = kept.and_then(|kept| keeper.told(kept.pieces.writer(keys)));
        keeper
    }

    fn told<T>(&self, result: io::Result<T>) -> Option<T> {
        if let (Err(error), Some(kept)) = (&result, self.kept) {
            kept.cache.report(&format!("packed weights are not kept for the next start: {error}"));
        }
        result.ok()
    }

    fn append(&mut self, bytes: &[u8]) {
        let Some(writer) = &mut self.writer else { return };
        let appended = writer.append(bytes);
        if self.told(appended).is_none() {
            self.writer = None;
        }
    }

    fn end(&mut self, key: u128) {
        if let Some(writer) = &mut self.writer {
            writer.end(key);
        }
    }

    fn keep(mut self) {
        if let (Some(kept), Some(writer)) = (self.kept, self.writer.take()) {
            let _ = self.told(kept.pieces.keep(writer));
        }
    }
}

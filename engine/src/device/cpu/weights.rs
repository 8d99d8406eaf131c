//! How a model's constants are packed for the processor's kernels, and put straight where they are to lie.
//!
//! A constant that is still in a file is read from there in pieces. Memory beyond what is kept: one piece, and for a
//! constant that a kernel packs that constant once more, unpacked, or where it is large and a kernel allows it (every
//! product and every convolution in one group does) a part of it.

use super::args::Kernel;
use super::block::Block;
use crate::cache::Piece as KeptPiece;
use crate::device::weights::{Fresh, Wanted, gather};
use crate::device::{Held, Kept};
use crate::error::Error;

/// A kernel, and which of its inputs a constant is.
pub(super) type Reader<'a> = (&'a dyn Kernel, usize);

/// Brings constants into a new room: as they were kept, or packed from the model's file and then kept. `readers` has
/// an entry for each of `wanted`.
///
/// # Errors
/// A constant cannot be read.
pub(super) fn bring(
    wanted: &[Wanted<'_>],
    readers: &[Reader<'_>],
    kept: Option<&Kept<'_>>,
    held: &Held<'_>,
    places: &[Fresh],
) -> Result<(), Error> {
    let mut packed = vec![];
    for Fresh { at, offset, bytes } in places {
        // SAFETY: the room is new, so nobody else uses it, and it is as large as the places' end, which do
        // not overlap.
        let to = unsafe { std::slice::from_raw_parts_mut(held.first.add(*offset), *bytes) };
        let key = kept.and_then(|kept| wanted[*at].kept_key(kept.files));
        if kept.zip(key).is_some_and(|(kept, key)| kept.pieces.read(key, to)) {
            continue;
        }
        write(&wanted[*at], readers[*at], to)?;
        packed.extend(key.map(|key| KeptPiece { key, bytes: to }));
    }
    if let Some(kept) = kept
        && let Err(error) = kept.pieces.write(&packed)
    {
        kept.cache.report(&format!("packed weights are not kept for the next start: {error}"));
    }
    Ok(())
}

/// Reads a constant and packs it to where it is to lie.
fn write(want: &Wanted<'_>, (kernel, input): Reader<'_>, to: &mut [u8]) -> Result<(), Error> {
    let failed = |source| want.unread(source);
    let (data, size) = (&want.data, want.size);
    let Some(packing) = kernel.packing(input) else {
        return gather(data, size, want.constant, to).map_err(failed);
    };
    // SAFETY: rooms and places are aligned, and any four bytes are an f32.
    let packed = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<f32>(), to.len() / 4) };
    let whole = want.laid_bytes();
    let Some(columns) = packing.columns.filter(|_| whole > UNPACKED_BYTES) else {
        let mut laid = Block::staging(whole)?;
        gather(data, size, want.constant, laid.bytes_mut()).map_err(failed)?;
        kernel.pack(input, None, floats(&laid), packed);
        return Ok(());
    };
    let all = want.constant.shape[columns.axis];
    let most = UNPACKED_BYTES / (columns.height * size).max(1) / columns.unit * columns.unit;
    let mut part = want.constant.clone();
    let mut start = 0;
    while start < all {
        // The last cut leaves a whole unit at least, since the last panels depend on what is left.
        let rest = all - start;
        let count = if rest < most.max(columns.unit) + columns.unit { rest } else { most.max(columns.unit) };
        part.shape[columns.axis] = count;
        part.source = want.constant.source.slice(columns.axis, start, 1);
        let mut laid = Block::staging(part.shape.iter().product::<usize>() * size)?;
        gather(data, size, &part, laid.bytes_mut()).map_err(failed)?;
        kernel.pack(input, Some(count), floats(&laid), &mut packed[start * columns.height..]);
        start += count;
    }
    Ok(())
}

fn floats(block: &Block) -> &[f32] {
    // SAFETY: the block is aligned and initialized, and any four bytes are an f32.
    unsafe { std::slice::from_raw_parts(block.as_ptr().cast::<f32>(), block.len() / 4) }
}

/// Bytes of a constant that are unpacked beside the packed ones, where it can be packed in parts.
const UNPACKED_BYTES: usize = 16 << 20;

//! Slices of a tensor, chosen by indices along one axis.

use super::copy::Copy;
use super::walk::{self, Axes, Cursor};
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;

#[cfg(test)]
mod tests;

/// Indices of a [`Gather`].
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub(crate) enum Indices<'a> {
    I64(Source<'a, i64>),
    I32(Source<'a, i32>),
}

/// An index that is not one of the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("index {index} at position {position} is out of range for an axis of {size}")]
pub(crate) struct OutOfRange {
    /// What was asked for.
    pub(crate) index: i64,
    /// Which index it is, in logical order.
    pub(crate) position: usize,
    /// How long the axis is.
    pub(crate) size: usize,
}

/// A gather, made for one shape.
#[derive(Debug)]
pub(crate) struct Gather {
    elem_bytes: usize,
    size: usize,
    stride: usize,
    /// Loops over the indices in logical order, for the check.
    order: Axes<1>,
    /// Loops over slices: source, indices, target.
    outer: Axes<3>,
    slice: Copy,
    /// With a single index: all slices in one copy.
    all: Option<Copy>,
    slice_bytes: usize,
    /// Of source, indices, target.
    extents: [usize; 3],
}

impl Gather {
    /// From a source of that shape along `axis`. The target's axes are those of the source with `axis` replaced by
    /// those of the indices. Strides are in elements, those of source and target of `elem_bytes` (1, 2, 4 or 8).
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        elem_bytes: usize,
        shape: &[usize],
        source_strides: &[usize],
        axis: usize,
        index_shape: &[usize],
        index_strides: &[usize],
        target_strides: &[usize],
    ) -> Gather {
        let (rank, indices) = (shape.len(), index_shape.len());
        assert_eq!(target_strides.len(), rank - 1 + indices, "one stride per axis");
        let (target_outer, rest) = target_strides.split_at(axis);
        let (target_index, target_inner) = rest.split_at(indices);
        let outer_shape = [&shape[..axis], index_shape].concat();
        let source_outer = [&source_strides[..axis], &vec![0; indices]].concat();
        let index_outer = [&vec![0; axis], index_strides].concat();
        let target_all = [target_outer, target_index].concat();
        let outer = walk::collapse(&outer_shape, [&source_outer, &index_outer, &target_all], 2);
        let inner = &shape[axis + 1..];
        let slice = Copy::new(elem_bytes, inner, &source_strides[axis + 1..], target_inner);
        let all = (index_shape.iter().product::<usize>() == 1).then(|| {
            let source = [&source_outer[..], &source_strides[axis + 1..]].concat();
            Copy::new(elem_bytes, &[&outer_shape[..], inner].concat(), &source, target_strides)
        });
        let target_shape = [&shape[..axis], index_shape, inner].concat();
        let order = index_shape
            .iter()
            .zip(index_strides)
            .map(|(&len, &stride)| walk::Axis { len, strides: [stride] })
            .collect();
        Gather {
            elem_bytes,
            size: shape[axis],
            stride: source_strides[axis],
            order,
            outer,
            slice,
            all,
            slice_bytes: elem_bytes * inner.iter().product::<usize>(),
            extents: [
                walk::span(shape, source_strides),
                walk::span(index_shape, index_strides),
                walk::span(&target_shape, target_strides),
            ],
        }
    }

    /// Copies the slices; negative indices count from the end. An index out of range is an error, and nothing is
    /// written then. Source and target are in bytes and must not overlap.
    pub(crate) fn run(
        &self,
        source: Source<'_, u8>,
        indices: Indices<'_>,
        target: Target<'_, u8>,
        threads: &Threads,
    ) -> Result<(), OutOfRange> {
        let [from, index, to] = self.extents;
        let (from, to) = (from * self.elem_bytes, to * self.elem_bytes);
        let len = match indices {
            Indices::I64(indices) => indices.len(),
            Indices::I32(indices) => indices.len(),
        };
        assert!(source.len() >= from, "a source of {} bytes, {from} are read", source.len());
        assert!(len >= index, "{len} indices, {index} are read");
        assert!(target.len() >= to, "a target of {} bytes, {to} are written", target.len());
        // SAFETY: the loops stay within the extent that was just compared with the length.
        let read = |at: usize| unsafe {
            match indices {
                Indices::I64(indices) => *indices.as_ptr().add(at),
                Indices::I32(indices) => i64::from(*indices.as_ptr().add(at)),
            }
        };
        let count = walk::count(&self.order);
        if count > 0 {
            let mut cursor = Cursor::new(&self.order, 0);
            for position in 0..count {
                let index = read(cursor.at[0]);
                if self.position(index).is_none() {
                    return Err(OutOfRange { index, position, size: self.size });
                }
                cursor.advance();
            }
        }
        if to == 0 {
            return Ok(());
        }
        if let Some(all) = &self.all {
            let position = self.position(read(0)).unwrap_or(0);
            let (source, target) = rest(source, target, [position * self.stride * self.elem_bytes, 0]);
            all.run(source, target, threads);
            return Ok(());
        }
        let units = walk::count(&self.outer);
        walk::share(threads, units, 2 * units * self.slice_bytes, &|units| {
            let mut cursor = Cursor::new(&self.outer, units.start);
            for _ in units {
                let [from, index, to] = cursor.at;
                // The indices are the plan's to keep as they are; one that changed since the check is no reason
                // to read beyond the source.
                let position = self.position(read(index)).unwrap_or(0);
                let at = [from + position * self.stride, to].map(|at| at * self.elem_bytes);
                let (source, target) = rest(source, target, at);
                self.slice.run_alone(source, target);
                cursor.advance();
            }
        });
        Ok(())
    }

    fn position(&self, index: i64) -> Option<usize> {
        let wrapped = if index < 0 { index + self.size as i64 } else { index };
        usize::try_from(wrapped).ok().filter(|&position| position < self.size)
    }
}

/// What follows those offsets, in bytes, which are offsets of elements.
fn rest<'a>(
    source: Source<'a, u8>,
    target: Target<'a, u8>,
    at: [usize; 2],
) -> (Source<'a, u8>, Target<'a, u8>) {
    assert!(at[0] <= source.len() && at[1] <= target.len(), "an offset beyond the tensor");
    // SAFETY: what follows an offset within the whole is as valid as the whole.
    unsafe {
        (
            Source::new(source.as_ptr().add(at[0]), source.len() - at[0]),
            Target::new(target.as_ptr().add(at[1]), target.len() - at[1]),
        )
    }
}

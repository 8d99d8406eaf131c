//! Copies between strided layouts, and fills of strided regions.
//!
//! Elements are of 1, 2, 4 or 8 bytes and are moved as they are; sources and targets are given in bytes, and need
//! not be aligned.

use super::walk::{self, Axes, Axis, Cursor};
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;
use std::ops::Range;

mod fill;
#[cfg(test)]
pub(super) mod tests;
mod transpose;

pub(crate) use fill::Fill;

/// Rows, or elements of a row, that one unit of a transposition covers.
const PIECE: usize = 256;

/// A copy, made for one shape.
#[derive(Debug)]
pub(crate) struct Copy {
    elem_bytes: usize,
    outer: Axes<2>,
    /// The axis along which the source is contiguous, where it is another one than `cols`.
    rows: Axis<2>,
    /// The axis along which the target is, if it is along any.
    cols: Axis<2>,
    extents: [usize; 2],
    bytes: usize,
}

impl Copy {
    /// Of a tensor of that shape; strides in elements of `elem_bytes` (1, 2, 4 or 8). The source may be broadcast.
    pub(crate) fn new(
        elem_bytes: usize,
        shape: &[usize],
        source_strides: &[usize],
        target_strides: &[usize],
    ) -> Copy {
        let mut outer = walk::collapse(shape, [source_strides, target_strides], 1);
        let extents = std::array::from_fn(|t| walk::extent(&outer, t));
        let bytes = 2 * elem_bytes * walk::count(&outer);
        let cols = outer.pop().unwrap_or(Axis::ONCE);
        let mut rows = Axis::ONCE;
        if cols.strides[0] != 1
            && let Some(axis) = outer.iter().position(|axis| axis.strides[0] == 1)
        {
            rows = outer.remove(axis);
        } else if cols.len * elem_bytes < 64 {
            // Short rows: the next loop is made the inner one's neighbour, to be walked without a cursor.
            rows = outer.pop().unwrap_or(Axis::ONCE);
        }
        Copy { elem_bytes, outer, rows, cols, extents, bytes }
    }

    /// Copies. Source and target must not overlap.
    pub(crate) fn run(&self, source: Source<'_, u8>, target: Target<'_, u8>, threads: &Threads) {
        let [from, to] = self.extents.map(|extent| extent * self.elem_bytes);
        assert!(source.len() >= from, "a source of {} bytes, {from} are read", source.len());
        assert!(target.len() >= to, "a target of {} bytes, {to} are written", target.len());
        if to > 0 {
            let units = walk::count(&self.outer) * self.pieces();
            walk::share(threads, units, self.bytes, &|units| self.units(source, target, units));
        }
    }

    /// As [`run`](Copy::run), on this thread.
    pub(super) fn run_alone(&self, source: Source<'_, u8>, target: Target<'_, u8>) {
        let [from, to] = self.extents.map(|extent| extent * self.elem_bytes);
        assert!(source.len() >= from && target.len() >= to, "a copy beyond its source or target");
        if to > 0 {
            self.units(source, target, 0..walk::count(&self.outer) * self.pieces());
        }
    }

    fn units(&self, source: Source<'_, u8>, target: Target<'_, u8>, units: Range<usize>) {
        match self.elem_bytes {
            1 => self.part::<u8>(source, target, units),
            2 => self.part::<u16>(source, target, units),
            4 => self.part::<u32>(source, target, units),
            8 => self.part::<u64>(source, target, units),
            bytes => unreachable!("elements of {bytes} bytes"),
        }
    }

    fn pieces(&self) -> usize {
        let len = if self.rows.len > 1 { self.rows.len } else { self.cols.len };
        len.div_ceil(self.piece())
    }

    fn piece(&self) -> usize {
        if self.rows.len > 1 { PIECE } else { 64 << 10 }
    }

    fn part<T: Elem>(&self, source: Source<'_, u8>, target: Target<'_, u8>, units: Range<usize>) {
        let (source, target) = (source.as_ptr().cast::<T>(), target.as_ptr().cast::<T>());
        let (pieces, piece_len) = (self.pieces(), self.piece());
        let mut cursor = Cursor::new(&self.outer, units.start / pieces);
        let mut piece = units.start % pieces;
        for _ in units {
            let start = piece * piece_len;
            let (mut rows, mut cols) = (self.rows, self.cols);
            let cut = if rows.len > 1 { &mut rows } else { &mut cols };
            cut.len = (cut.len - start).min(piece_len);
            let [from, to] = std::array::from_fn(|t| cursor.at[t] + start * cut.strides[t]);
            // SAFETY: the loops stay within the extents that `run` compared with the lengths.
            unsafe { block(source.wrapping_add(from), target.wrapping_add(to), rows, cols) };
            piece += 1;
            if piece == pieces {
                piece = 0;
                cursor.advance();
            }
        }
    }
}

/// What is moved: bits of one of four sizes.
pub(super) trait Elem: std::marker::Copy + std::fmt::Debug {}
impl Elem for u8 {}
impl Elem for u16 {}
impl Elem for u32 {}
impl Elem for u64 {}

/// Copies `rows` × `cols` elements.
///
/// # Safety
/// The elements are valid for reads, and for writes, and do not overlap.
unsafe fn block<T: Elem>(source: *const T, target: *mut T, rows: Axis<2>, cols: Axis<2>) {
    let [row_from, row_to] = rows.strides;
    let [col_from, col_to] = cols.strides;
    // SAFETY: the caller's promise.
    unsafe {
        if row_from == 1 && col_to == 1 && rows.len > 1 && cols.len > 1 {
            return transpose::transpose(source, target, rows.len, cols.len, col_from, row_to);
        }
        for row in 0..rows.len {
            line(source.add(row * row_from), target.add(row * row_to), cols.len, col_from, col_to);
        }
    }
}

/// Copies `n` elements.
#[inline(always)]
unsafe fn line<T: Elem>(source: *const T, target: *mut T, n: usize, from: usize, to: usize) {
    // SAFETY: the callers' promise.
    unsafe {
        match (from, to) {
            (1, 1) if n * size_of::<T>() > 256 => source.copy_to_nonoverlapping(target, n),
            (1, 1) => {
                // Shorter than what a call is worth.
                const STEP: usize = 8;
                let mut i = 0;
                while i + STEP <= n {
                    let part = source.add(i).cast::<[T; STEP]>().read_unaligned();
                    target.add(i).cast::<[T; STEP]>().write_unaligned(part);
                    i += STEP;
                }
                while i < n {
                    target.add(i).write_unaligned(source.add(i).read_unaligned());
                    i += 1;
                }
            }
            (0, 1) => fill::fill_line(target, n, source.read_unaligned()),
            _ => {
                for i in 0..n {
                    target.add(i * to).write_unaligned(source.add(i * from).read_unaligned());
                }
            }
        }
    }
}

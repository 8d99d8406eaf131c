//! Operands and results of a chain: from strided memory of several dtypes to tiles, and back.

use super::program::TILE;
use crate::device::cpu::memory::{Source, Target};

/// How an operand's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// As they are computed with.
    F32,
    /// As i32, whose bits the chain compares or converts.
    I32,
    /// As u8: 1 where not 0, else 0.
    Bool,
}

/// How the result's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// As they are computed.
    F32,
    /// As u8: 1 where not 0, else 0.
    Bool,
}

/// An operand of a chain: one stride per axis of the output, and how the elements are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand<'a> {
    /// In elements; 0 where it is broadcast.
    pub(crate) strides: &'a [usize],
    /// The dtype in memory.
    pub(crate) dtype: Load,
}

/// The elements of an operand.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub(crate) enum Input<'a> {
    F32(Source<'a, f32>),
    I32(Source<'a, i32>),
    Bool(Source<'a, u8>),
}

/// The elements of the result.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub(crate) enum Output<'a> {
    F32(Target<'a, f32>),
    Bool(Target<'a, u8>),
}

impl Input<'_> {
    /// The first element, of `load`'s dtype, and how many there are. Panics if the dtype is another one.
    pub(crate) fn expect(self, load: Load) -> (*const u8, usize) {
        match (self, load) {
            (Input::F32(source), Load::F32) => (source.as_ptr().cast(), source.len()),
            (Input::I32(source), Load::I32) => (source.as_ptr().cast(), source.len()),
            (Input::Bool(source), Load::Bool) => (source.as_ptr(), source.len()),
            _ => panic!("an operand of another dtype than {load:?}"),
        }
    }
}

impl Output<'_> {
    /// The first element, of `store`'s dtype, and how many there are. Panics if the dtype is another one.
    pub(super) fn expect(self, store: Store) -> (*mut u8, usize) {
        match (self, store) {
            (Output::F32(target), Store::F32) => (target.as_ptr().cast(), target.len()),
            (Output::Bool(target), Store::Bool) => (target.as_ptr(), target.len()),
            _ => panic!("a result of another dtype than {store:?}"),
        }
    }
}

impl Load {
    /// Bytes of an element.
    pub(crate) fn size(self) -> usize {
        if self == Load::Bool { 1 } else { 4 }
    }

    /// One element as the chain computes with it.
    ///
    /// # Safety
    /// `first` is valid for a read of an element of this dtype.
    #[inline(always)]
    pub(super) unsafe fn read(self, first: *const u8) -> f32 {
        // SAFETY: the caller's promise; an i32 is carried as the bits of an f32.
        unsafe {
            match self {
                Load::F32 | Load::I32 => *first.cast(),
                Load::Bool => f32::from(u8::from(*first != 0)),
            }
        }
    }
}

impl Store {
    /// Bytes of an element.
    pub(super) fn size(self) -> usize {
        if self == Store::Bool { 1 } else { 4 }
    }
}

/// A block of elements in memory: `rows` × `cols`, their strides in elements.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// How many rows.
    pub(super) rows: usize,
    /// How many elements in each.
    pub(super) cols: usize,
    /// From row to row.
    pub(super) row_stride: usize,
    /// Within a row.
    pub(super) col_stride: usize,
}

/// Copies a block of at most [`TILE`] elements into a tile, row after row.
///
/// # Safety
/// The block's elements from `first` on are valid for reads, and `tile` for writes.
pub(super) unsafe fn gather(load: Load, first: *const u8, block: Block, tile: *mut f32) {
    let Block { rows, cols, row_stride, col_stride } = block;
    debug_assert!(rows * cols <= TILE);
    // SAFETY: the caller's promise for both sides.
    unsafe {
        for row in 0..rows {
            let from = first.add(row * row_stride * load.size());
            let to = tile.add(row * cols);
            match (load, col_stride) {
                (Load::F32 | Load::I32, 1) => copy_short(from.cast(), to, cols),
                (_, 0) => std::slice::from_raw_parts_mut(to.cast::<std::mem::MaybeUninit<f32>>(), cols)
                    .fill(std::mem::MaybeUninit::new(load.read(from))),
                (Load::F32 | Load::I32, _) => {
                    for col in 0..cols {
                        *to.add(col) = *from.cast::<f32>().add(col * col_stride);
                    }
                }
                (Load::Bool, _) => {
                    for col in 0..cols {
                        *to.add(col) = load.read(from.add(col * col_stride));
                    }
                }
            }
        }
    }
}

/// Stores a tile to a block of elements, row after row.
///
/// # Safety
/// The block's elements from `first` on are valid for writes, and `tile` for reads.
pub(super) unsafe fn scatter(store: Store, tile: *const f32, first: *mut u8, block: Block) {
    let Block { rows, cols, row_stride, col_stride } = block;
    debug_assert!(rows * cols <= TILE);
    // SAFETY: the caller's promise for both sides.
    unsafe {
        for row in 0..rows {
            let from = tile.add(row * cols);
            let to = first.add(row * row_stride * store.size());
            match (store, col_stride) {
                (Store::F32, 1) => copy_short(from, to.cast(), cols),
                (Store::F32, _) => {
                    for col in 0..cols {
                        *to.cast::<f32>().add(col * col_stride) = *from.add(col);
                    }
                }
                (Store::Bool, _) => {
                    for col in 0..cols {
                        *to.add(col * col_stride) = u8::from(*from.add(col) != 0.0);
                    }
                }
            }
        }
    }
}

/// A copy of few elements without the call that a copy of unknown length is.
#[inline(always)]
unsafe fn copy_short(from: *const f32, to: *mut f32, n: usize) {
    const STEP: usize = 8;
    // SAFETY: the callers' promise; source and target do not overlap, one of them is a tile.
    unsafe {
        let mut i = 0;
        while i + STEP <= n {
            *to.add(i).cast::<[f32; STEP]>() = *from.add(i).cast::<[f32; STEP]>();
            i += STEP;
        }
        while i < n {
            *to.add(i) = *from.add(i);
            i += 1;
        }
    }
}

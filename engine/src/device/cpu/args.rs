//! What a kernel gets when it runs: its operands' elements, scratch and threads.

use super::memory::{Source, Target};
use super::threads::Threads;
use crate::error::Error;
use std::marker::PhantomData;

/// An operand's memory: the first element that its view reaches, and how many elements lie from there to the last.
#[derive(Clone, Copy)]
pub(crate) struct Raw {
    pub(super) first: *mut u8,
    pub(super) len: usize,
}

/// The operands of one step, resolved for one run.
pub(crate) struct Args<'a> {
    pub(super) inputs: &'a [Raw],
    pub(super) outputs: &'a [Raw],
    pub(super) scratch: Raw,
    pub(super) threads: &'a Threads,
    /// What the memory is lent for.
    pub(super) lent: PhantomData<&'a mut ()>,
}

/// Element types that operands are read and written as.
pub(crate) trait Element: Copy {}
impl Element for u8 {}
impl Element for i32 {}
impl Element for i64 {}
impl Element for f32 {}

impl<'a> Args<'a> {
    /// The elements of an input. The caller names the element type of the operand.
    pub(crate) fn source<T: Element>(&self, at: usize) -> Source<'a, T> {
        let raw = self.inputs[at];
        // SAFETY: the plan placed the operand inside the memory of the run, whose size was checked and which is
        // lent for `'a`; blocks are aligned for every element type, and offsets count whole elements.
        unsafe { Source::new(raw.first.cast::<T>(), raw.len) }
    }

    /// The elements of an output.
    pub(crate) fn target<T: Element>(&self, at: usize) -> Target<'a, T> {
        let raw = self.outputs[at];
        // SAFETY: as for `source`; the plan gives a step's output to nobody else while the step runs.
        unsafe { Target::new(raw.first.cast::<T>(), raw.len) }
    }

    /// The first `len` bytes of an input that lies without gaps.
    pub(crate) fn bytes(&self, at: usize, len: usize) -> &'a [u8] {
        // SAFETY: as for `source`; the caller asks for no more than the operand has, and keeps the slice no longer
        // than the step runs, during which nobody writes it.
        unsafe { std::slice::from_raw_parts(self.inputs[at].first, len) }
    }

    /// The first `len` bytes of an output that lies without gaps.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn bytes_mut(&self, at: usize, len: usize) -> &'a mut [u8] {
        // SAFETY: as for `target`.
        unsafe { std::slice::from_raw_parts_mut(self.outputs[at].first, len) }
    }

    /// The output, to be read by a step that has written it.
    pub(crate) fn written(&self) -> Source<'a, f32> {
        let raw = self.outputs[0];
        // SAFETY: as for `source`; only the holder writes it.
        unsafe { Source::new(raw.first.cast::<f32>(), raw.len) }
    }

    /// The first input and the output as bytes, given the bytes of their elements.
    pub(crate) fn as_bytes(&self, from: usize, to: usize) -> (Source<'a, u8>, Target<'a, u8>) {
        let (source, target) = (self.inputs[0], self.outputs[0]);
        // SAFETY: as for `source` and `target`.
        unsafe { (Source::new(source.first, source.len * from), Target::new(target.first, target.len * to)) }
    }

    /// A constant, which nobody writes.
    pub(crate) fn constant(&self, at: usize) -> &'a [f32] {
        let raw = self.inputs[at];
        // SAFETY: as for `source`; weights are written before a program exists and never after.
        unsafe { std::slice::from_raw_parts(raw.first.cast::<f32>(), raw.len) }
    }

    /// The step's scratch.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn scratch(&self) -> &'a mut [f32] {
        // SAFETY: scratch is a block that lives during this step alone, and a kernel asks for it once.
        unsafe { std::slice::from_raw_parts_mut(self.scratch.first.cast::<f32>(), self.scratch.len / 4) }
    }
}

/// A kernel for one step, bound to the shapes and strides of its operands.
pub(crate) trait Kernel: Send + Sync {
    /// f32 elements of scratch with so many threads.
    fn scratch_len(&self, _threads: usize) -> usize {
        0
    }

    /// How a constant input is to be packed; `None` where it is read as the plan lays it out.
    fn packing(&self, _input: usize) -> Option<Packing> {
        None
    }

    /// Packs a constant input, laid out as the plan says: all of it, or so many of its columns.
    fn pack(&self, _input: usize, _columns: Option<usize>, _from: &[f32], _to: &mut [f32]) {}

    /// Computes the step.
    ///
    /// # Errors
    /// The values do not suit (an index out of range), or a host step fails.
    fn run(&self, args: &Args<'_>) -> Result<(), Error>;
}

/// How a constant is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    /// Constants with equal contents and form are packed once.
    pub(crate) form: String,
    /// f32 elements that the packed constant takes.
    pub(crate) len: usize,
    /// Where it can be packed some columns at a time.
    pub(crate) columns: Option<Columns>,
}

/// How a constant is packed some columns at a time, so that it is never unpacked as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    /// The constant's logical axis along which the columns lie.
    pub(crate) axis: usize,
    /// Any cut but the end falls on a multiple of this.
    pub(crate) unit: usize,
    /// Elements of one column, packed and not.
    pub(crate) height: usize,
}

//! Elements of the slab as kernels see them: a base, a length, and which accesses the plan allows.
//!
//! Slices would promise too much. Where a concatenation is written in place, the channels that one step reads and
//! those that it writes interleave in memory; a step in place reads an element before it overwrites it. So kernels
//! get bounds and raw pointers (products and convolutions still take slices of them), and the plan promises that no
//! element is written while another step or thread reads it.

use std::marker::PhantomData;

/// Elements that a step reads.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a, T> {
    first: *const T,
    len: usize,
    _lent: PhantomData<&'a T>,
}

/// Elements that a step writes, and may read once it has written them.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a, T> {
    first: *mut T,
    len: usize,
    _lent: PhantomData<&'a mut T>,
}

// SAFETY: a `Source` is only read, and a `Target` is split among threads by element (the kernels' duty).
unsafe impl<T: Sync> Sync for Source<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Send for Source<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Target<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Target<'_, T> {}

impl<'a, T> Source<'a, T> {
    /// `len` elements from `first` on.
    ///
    /// # Safety
    /// They are valid and aligned for reads during `'a`, and nobody writes an element that the holder reads, but
    /// the holder itself.
    pub(crate) unsafe fn new(first: *const T, len: usize) -> Source<'a, T> {
        Source { first, len, _lent: PhantomData }
    }

    /// All elements, for kernels that take slices.
    pub(crate) fn as_slice(&self) -> &'a [T] {
        // SAFETY: as `new` promises.
        unsafe { std::slice::from_raw_parts(self.first, self.len) }
    }

    /// The first element.
    pub(crate) fn as_ptr(&self) -> *const T {
        self.first
    }

    /// How many elements there are.
    pub(crate) fn len(self) -> usize {
        self.len
    }
}

impl<'a, T> Target<'a, T> {
    /// `len` elements from `first` on.
    ///
    /// # Safety
    /// They are valid and aligned for reads and writes during `'a`, and nobody else reads or writes an element
    /// that the holder writes.
    pub(crate) unsafe fn new(first: *mut T, len: usize) -> Target<'a, T> {
        Target { first, len, _lent: PhantomData }
    }

    /// All elements, for kernels that take slices.
    pub(crate) fn as_mut_slice(&self) -> &'a mut [T] {
        // SAFETY: as `new` promises.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.len) }
    }

    /// The first element.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.first
    }

    /// How many elements there are.
    pub(crate) fn len(self) -> usize {
        self.len
    }
}

impl<'a, T> From<&'a [T]> for Source<'a, T> {
    fn from(slice: &'a [T]) -> Source<'a, T> {
        // SAFETY: the slice is borrowed for `'a`.
        unsafe { Source::new(slice.as_ptr(), slice.len()) }
    }
}

impl<'a, T> From<&'a mut [T]> for Target<'a, T> {
    fn from(slice: &'a mut [T]) -> Target<'a, T> {
        // SAFETY: the slice is borrowed for `'a` and nobody else has it.
        unsafe { Target::new(slice.as_mut_ptr(), slice.len()) }
    }
}

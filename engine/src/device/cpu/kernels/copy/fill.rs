//! One value to every element of a region.

use super::super::walk::{self, Axes, Axis, Cursor};
use super::Elem;
use crate::device::cpu::memory::Target;
use crate::device::cpu::threads::Threads;

/// A fill of a strided region with one value.
#[derive(Debug)]
pub(crate) struct Fill {
    elem_bytes: usize,
    outer: Axes<1>,
    cols: Axis<1>,
    extent: usize,
    bytes: usize,
}

impl Fill {
    /// Of a region of that shape; strides in elements of `elem_bytes` (1, 2, 4 or 8).
    pub(crate) fn new(elem_bytes: usize, shape: &[usize], strides: &[usize]) -> Fill {
        let mut outer = walk::collapse(shape, [strides], 0);
        let extent = walk::extent(&outer, 0);
        let bytes = elem_bytes * walk::count(&outer);
        let cols = outer.pop().unwrap_or(Axis::ONCE);
        Fill { elem_bytes, outer, cols, extent, bytes }
    }

    /// Fills with the element whose bits are the lowest ones of `bits`. `target` is in bytes, from the region's
    /// first element on.
    pub(crate) fn run(&self, bits: u64, target: Target<'_, u8>, threads: &Threads) {
        let extent = self.extent * self.elem_bytes;
        assert!(target.len() >= extent, "a target of {} bytes, {extent} are written", target.len());
        if extent == 0 {
            return;
        }
        match self.elem_bytes {
            1 => self.all(bits as u8, target, threads),
            2 => self.all(bits as u16, target, threads),
            4 => self.all(bits as u32, target, threads),
            8 => self.all(bits, target, threads),
            bytes => unreachable!("elements of {bytes} bytes"),
        }
    }

    fn all<T: Elem + Sync>(&self, value: T, target: Target<'_, u8>, threads: &Threads) {
        walk::share(threads, walk::count(&self.outer), self.bytes, &|units| {
            let mut cursor = Cursor::new(&self.outer, units.start);
            for _ in units {
                // SAFETY: the loops stay within the extent that `run` compared with the length.
                unsafe {
                    let first = target.as_ptr().cast::<T>().add(cursor.at[0]);
                    if self.cols.strides[0] == 1 {
                        fill_line(first, self.cols.len, value);
                    } else {
                        for i in 0..self.cols.len {
                            first.add(i * self.cols.strides[0]).write_unaligned(value);
                        }
                    }
                }
                cursor.advance();
            }
        });
    }
}

/// `value` to `n` contiguous elements.
///
/// # Safety
/// They are valid for writes.
#[inline(always)]
pub(super) unsafe fn fill_line<T: Elem>(first: *mut T, n: usize, value: T) {
    for i in 0..n {
        // SAFETY: the caller's promise.
        unsafe { first.add(i).write_unaligned(value) };
    }
}

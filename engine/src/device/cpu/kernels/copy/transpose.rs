//! Transposition: the source contiguous along rows, the target along columns.

use super::Elem;

/// Rows and columns of a block whose lines of source and target all fit in the nearest cache.
const BLOCK: usize = 32;

/// `target[r · to + c] = source[c · from + r]` for all rows `r` and columns `c`.
///
/// # Safety
/// The elements are valid for reads, and for writes, and do not overlap.
pub(super) unsafe fn transpose<T: Elem>(
    source: *const T,
    target: *mut T,
    rows: usize,
    cols: usize,
    from: usize,
    to: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match cols {
            2 => return narrow::<T, 2>(source, target, rows, from, to),
            3 => return narrow::<T, 3>(source, target, rows, from, to),
            _ => {}
        }
        match rows {
            2 => return flat::<T, 2>(source, target, cols, from, to),
            3 => return flat::<T, 3>(source, target, cols, from, to),
            _ => {}
        }
        for row in (0..rows).step_by(BLOCK) {
            let height = (rows - row).min(BLOCK);
            for col in (0..cols).step_by(BLOCK) {
                let width = (cols - col).min(BLOCK);
                let (source, target) = (source.add(col * from + row), target.add(row * to + col));
                block(source, target, height, width, from, to);
            }
        }
    }
}

/// A few columns: what is read along rows comes from as many streams.
#[inline(always)]
unsafe fn narrow<T: Elem, const COLS: usize>(
    source: *const T,
    target: *mut T,
    rows: usize,
    from: usize,
    to: usize,
) {
    // SAFETY: the callers' promise.
    unsafe {
        for row in 0..rows {
            let line: [T; COLS] = std::array::from_fn(|col| source.add(col * from + row).read_unaligned());
            target.add(row * to).cast::<[T; COLS]>().write_unaligned(line);
        }
    }
}

/// A few rows: what is written along columns goes to as many streams, a part of each at a time, as streams that
/// are a power of two apart get into each other's way.
#[inline(always)]
unsafe fn flat<T: Elem, const ROWS: usize>(
    source: *const T,
    target: *mut T,
    cols: usize,
    from: usize,
    to: usize,
) {
    // SAFETY: the callers' promise.
    unsafe {
        let at = |col: usize| source.add(col * from).cast::<[T; ROWS]>().read_unaligned();
        let whole = cols - cols % BLOCK;
        for first in (0..whole).step_by(BLOCK) {
            let mut lines = [[at(first)[0]; BLOCK]; ROWS];
            for col in 0..BLOCK {
                for (line, value) in lines.iter_mut().zip(at(first + col)) {
                    line[col] = value;
                }
            }
            for (row, line) in lines.into_iter().enumerate() {
                target.add(row * to + first).cast::<[T; BLOCK]>().write_unaligned(line);
            }
        }
        for col in whole..cols {
            for (row, value) in at(col).into_iter().enumerate() {
                target.add(row * to + col).write_unaligned(value);
            }
        }
    }
}

#[inline(always)]
unsafe fn block<T: Elem>(source: *const T, target: *mut T, rows: usize, cols: usize, from: usize, to: usize) {
    const STEP: usize = 4;
    let (whole_rows, whole_cols) = (rows - rows % STEP, cols - cols % STEP);
    // SAFETY: the callers' promise.
    unsafe {
        for row in (0..whole_rows).step_by(STEP) {
            for col in (0..whole_cols).step_by(STEP) {
                square(source.add(col * from + row), target.add(row * to + col), from, to);
            }
        }
        let scalar = |rows: std::ops::Range<usize>, cols: std::ops::Range<usize>| {
            for row in rows {
                for col in cols.clone() {
                    target.add(row * to + col).write_unaligned(source.add(col * from + row).read_unaligned());
                }
            }
        };
        scalar(0..whole_rows, whole_cols..cols);
        scalar(whole_rows..rows, 0..cols);
    }
}

/// 4 × 4 elements.
#[inline(always)]
unsafe fn square<T: Elem>(source: *const T, target: *mut T, from: usize, to: usize) {
    #[cfg(target_arch = "x86_64")]
    if size_of::<T>() == 4 {
        use std::arch::x86_64::*;
        // SAFETY: the callers' promise; SSE2 is part of x86-64. The registers are moved as bits.
        unsafe {
            let row = |i: usize| _mm_loadu_si128(source.add(i * from).cast());
            let (a, b, c, d) = (row(0), row(1), row(2), row(3));
            let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
            let (ef, gh) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
            _mm_storeu_si128(target.cast(), _mm_unpacklo_epi64(ab, cd));
            _mm_storeu_si128(target.add(to).cast(), _mm_unpackhi_epi64(ab, cd));
            _mm_storeu_si128(target.add(2 * to).cast(), _mm_unpacklo_epi64(ef, gh));
            _mm_storeu_si128(target.add(3 * to).cast(), _mm_unpackhi_epi64(ef, gh));
        }
        return;
    }
    // SAFETY: the callers' promise.
    unsafe {
        let lines: [[T; 4]; 4] =
            std::array::from_fn(|i| source.add(i * from).cast::<[T; 4]>().read_unaligned());
        for row in 0..4 {
            let line = lines.map(|line| line[row]);
            target.add(row * to).cast::<[T; 4]>().write_unaligned(line);
        }
    }
}

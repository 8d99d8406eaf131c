//! Products of rows with matrices in panels.

use super::super::matmul::{MAX_ROWS, Panel, Panels};
use super::plan::{BLOCK_ROWS, is_full};
use std::ptr;

/// Rows of a matrix: the first element, the distance of rows, and how many there are.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    pub(super) first: *const f32,
    pub(super) stride: usize,
    pub(super) rows: usize,
}

/// Rows whose elements are `gap` apart, multiplied, as rows without gaps.
///
/// # Safety
/// The rows have `len` elements, and `to` has room for them.
pub(super) unsafe fn scaled(rows: Lines, gap: usize, len: usize, scale: f32, to: *mut f32) -> Lines {
    for row in 0..rows.rows {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (rows.first.add(row * rows.stride), to.add(row * len));
            match gap {
                1 => (0..len).for_each(|at| *to.add(at) = *from.add(at) * scale),
                gap => (0..len).for_each(|at| *to.add(at) = *from.add(at * gap) * scale),
            }
        }
    }
    Lines { first: to.cast_const(), stride: len, rows: rows.rows }
}

/// C = A · B, or that added to C (its first element, and the distance of rows). B is packed in panels; where it also
/// lies row after row (and how far apart), full panels are read there.
///
/// # Safety
/// A and C are as large as that says, and C is nobody else's.
pub(super) unsafe fn product(
    panels: &Panels,
    b: &[f32],
    place: Option<(&[f32], usize)>,
    a: Lines,
    (c, c_stride): (*mut f32, usize),
    add: bool,
) {
    // Entries past the rows may be any row.
    let mut table = [a.first; BLOCK_ROWS + MAX_ROWS];
    for (row, entry) in table[..a.rows].iter_mut().enumerate() {
        *entry = a.first.wrapping_add(row * a.stride);
    }
    for panel in 0..panels.count() {
        let width = panels.width(panel) * panels.lanes;
        let (b, b_stride) = match place.filter(|_| is_full(panels, panel)) {
            Some((rows, stride)) => (rows[panels.column(panel)..].as_ptr(), stride),
            None => (b[panels.range(panel)].as_ptr(), width),
        };
        // SAFETY: the caller's promise.
        unsafe {
            Panel {
                rows: a.rows,
                table: table.as_ptr(),
                table_stride: 0,
                taps: 1,
                run: panels.k,
                a_offset: 0,
                b,
                b_stride,
                vectors: panels.width(panel),
                ahead: 0,
                c: c.add(panels.column(panel)),
                c_stride,
                cols: panels.columns(panel),
                bias: ptr::null(),
                clamp: None,
                add,
                residual: ptr::null(),
                residual_stride: 0,
            }
            .run();
        }
    }
}

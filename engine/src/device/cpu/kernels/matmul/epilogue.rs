//! What is done to an output while it is still in registers or in the nearest cache.

use std::slice;

/// A function of a block of complete output: the first row, the number of rows, the block from its first element to
/// its last, the elements from one row to the next, the first column and the number of columns.
pub(crate) type Rows<'a> = dyn Fn(usize, usize, &mut [f32], usize, usize, usize) + Sync + 'a;

/// out = rows(clamp(sum + bias + residual)). A row is a row of the matrix (over all batch items, in their order), or
/// a pixel of an image.
#[derive(Clone, Copy, Default)]
pub(crate) struct Epilogue<'a> {
    /// One element for each column or output channel.
    pub(crate) bias: Option<&'a [f32]>,
    /// Elements to add, and how many lie from the start of one row to that of the next.
    pub(crate) residual: Option<(&'a [f32], usize)>,
    /// The least and the greatest value; (0, infinity) is a relu. NaN stays NaN.
    pub(crate) clamp: Option<(f32, f32)>,
    /// Called on blocks of output when they are complete, from any of the threads, exactly once for each element.
    pub(crate) rows: Option<&'a Rows<'a>>,
}

impl Epilogue<'_> {
    /// Panics unless bias and residual are long enough for an output of that size.
    pub(crate) fn check(&self, rows: usize, columns: usize) {
        if let Some(bias) = self.bias {
            assert!(bias.len() >= columns, "a bias of {} elements for {columns} columns", bias.len());
        }
        if let Some((residual, stride)) = self.residual.filter(|_| rows > 0) {
            let needed = (rows - 1) * stride + columns;
            assert!(residual.len() >= needed, "a residual of {} elements, not {needed}", residual.len());
        }
    }

    /// Pointer to the bias of a column, or null.
    pub(crate) fn bias_at(&self, column: usize) -> *const f32 {
        self.bias.map_or(std::ptr::null(), |bias| bias[column..].as_ptr())
    }

    /// Pointer to the residual of an element, or null, and its row stride.
    pub(crate) fn residual_at(&self, row: usize, column: usize) -> (*const f32, usize) {
        let at = |(residual, stride): (&[f32], usize)| (residual[row * stride + column..].as_ptr(), stride);
        self.residual.map_or((std::ptr::null(), 0), at)
    }

    /// Calls `rows` for a block of complete output whose first element is at `at`: in one call where the elements
    /// between its rows are nobody else's (`apart`), else row by row.
    ///
    /// # Safety
    ///
    /// The block must be valid for `rows` rows `stride` elements apart of `columns` elements, and nobody else may use
    /// these elements meanwhile, nor those in between if `apart`.
    pub(crate) unsafe fn pass(
        &self,
        at: *mut f32,
        stride: usize,
        (first, rows): (usize, usize),
        (column, columns): (usize, usize),
        apart: bool,
    ) {
        let Some(function) = self.rows.filter(|_| rows > 0 && columns > 0) else { return };
        let step = if apart { rows } else { 1 };
        for row in (0..rows).step_by(step) {
            let len = (step - 1) * stride + columns;
            // SAFETY: what this function demands.
            let block = unsafe { slice::from_raw_parts_mut(at.add(row * stride), len) };
            function(first + row, step, block, stride, column, columns);
        }
    }
}

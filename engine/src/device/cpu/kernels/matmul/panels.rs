//! How the columns of B are laid out: in panels as wide as a tile, each with all K rows one after the other.
//!
//! All panels are two vectors wide but the last: it has three where the number of vectors is odd, or one where there
//! is only one. The last vector is padded with zeros. Panel p begins at `p * 2 * lanes * k`.

use std::ops::Range;

use super::tile::lanes;

/// Columns that are packed together where a matrix lies column after column.
const GATHER: usize = 8;

/// The panels of a matrix B of `k` rows and `n` columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panels {
    pub(crate) k: usize,
    pub(crate) n: usize,
    pub(crate) lanes: usize,
}

impl Panels {
    pub(crate) fn new(k: usize, n: usize) -> Panels {
        Panels { k, n, lanes: lanes() }
    }

    fn vectors(&self) -> usize {
        self.n.div_ceil(self.lanes)
    }

    /// How many panels there are.
    pub(crate) fn count(&self) -> usize {
        match self.vectors() {
            1 => 1,
            vectors => vectors / 2,
        }
    }

    /// The elements of all panels.
    pub(crate) fn len(&self) -> usize {
        self.vectors() * self.lanes * self.k
    }

    /// The first column of a panel.
    pub(crate) fn column(&self, panel: usize) -> usize {
        panel * 2 * self.lanes
    }

    /// The element at which a panel begins.
    pub(crate) fn start(&self, panel: usize) -> usize {
        self.column(panel) * self.k
    }

    /// The vectors that stand side by side in a panel.
    pub(crate) fn width(&self, panel: usize) -> usize {
        if panel + 1 == self.count() { self.vectors() - 2 * panel } else { 2 }
    }

    /// The columns of B in a panel, without padding.
    pub(crate) fn columns(&self, panel: usize) -> usize {
        (self.n - self.column(panel)).min(self.width(panel) * self.lanes)
    }

    /// Fills one panel, `out`, with `rows(k, first column, a row of columns to fill)`.
    pub(crate) fn pack(&self, panel: usize, out: &mut [f32], mut rows: impl FnMut(usize, usize, &mut [f32])) {
        let (width, columns) = (self.width(panel) * self.lanes, self.columns(panel));
        for (k, row) in out.chunks_exact_mut(width).take(self.k).enumerate() {
            let (used, padding) = row.split_at_mut(columns);
            rows(k, self.column(panel), used);
            padding.fill(0.0);
        }
    }

    /// Fills one panel from a matrix whose rows and columns are so many elements apart.
    pub(crate) fn pack_strided(&self, panel: usize, out: &mut [f32], b: &[f32], strides: (usize, usize)) {
        let (row_stride, col_stride) = strides;
        if row_stride == 1 && self.k > 0 {
            return self.pack_columns(panel, out, b, col_stride);
        }
        self.pack(panel, out, |k, column, row| {
            let from = &b[k * row_stride + column * col_stride..];
            if col_stride == 1 {
                copy_short(row, from);
            } else {
                row.iter_mut().enumerate().for_each(|(at, to)| *to = from[at * col_stride]);
            }
        });
    }

    /// Fills one panel from a matrix that lies column after column, `stride` elements apart, each without gaps.
    pub(crate) fn pack_columns(&self, panel: usize, out: &mut [f32], b: &[f32], stride: usize) {
        let (width, columns) = (self.width(panel) * self.lanes, self.columns(panel));
        let out = &mut out[..width * self.k];
        // Some columns at a time, so that what is written together lies together.
        for first in (0..width).step_by(GATHER) {
            if first + GATHER <= columns {
                let from: [&[f32]; GATHER] =
                    std::array::from_fn(|at| &b[(self.column(panel) + first + at) * stride..][..self.k]);
                for (k, row) in out.chunks_exact_mut(width).enumerate() {
                    let row = &mut row[first..first + GATHER];
                    for (to, from) in row.iter_mut().zip(&from) {
                        *to = from[k];
                    }
                }
                continue;
            }
            let end = width.min(first + GATHER);
            out.chunks_exact_mut(width).for_each(|row| row[first..end].fill(0.0));
            for column in first..end.min(columns) {
                let from = &b[(self.column(panel) + column) * stride..][..self.k];
                for (row, from) in out.chunks_exact_mut(width).zip(from) {
                    row[column] = *from;
                }
            }
        }
    }

    /// Where a panel is among all.
    pub(crate) fn range(&self, panel: usize) -> Range<usize> {
        self.start(panel)..self.start(panel) + self.width(panel) * self.lanes * self.k
    }

    /// Fills all panels.
    pub(crate) fn pack_all(&self, out: &mut [f32], mut rows: impl FnMut(usize, usize, &mut [f32])) {
        for panel in 0..self.count() {
            self.pack(panel, &mut out[self.range(panel)], &mut rows);
        }
    }
}

/// A copy of few elements, without the call that a copy of unknown length is.
fn copy_short(to: &mut [f32], from: &[f32]) {
    let from = &from[..to.len()];
    let ((to, to_rest), (from, from_rest)) = (to.as_chunks_mut::<GATHER>(), from.as_chunks::<GATHER>());
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    to_rest.iter_mut().zip(from_rest).for_each(|(to, from)| *to = *from);
}

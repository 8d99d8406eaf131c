//! Resizing of channels-last images, by tables of which pixels make up which.

use super::pool::Image;
use super::walk;
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;
use mixed::{Part, Piece};
use rten_simd::SimdOp;
use std::ops::Range;

mod mixed;
#[cfg(test)]
mod tests;

/// The most positions that one of the output is made of, along one axis.
pub(crate) const TAPS: usize = 4;

/// What a position of the output is made of along one axis: positions of the source and their weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mix {
    /// How many of the pairs count: 1 for the nearest, 2 for linear, 4 for cubic interpolation.
    pub(crate) count: usize,
    /// Positions of the source.
    pub(crate) index: [usize; TAPS],
    /// Their weights.
    pub(crate) weight: [f32; TAPS],
}

/// A resizing, made for one shape: output pixel (y, x) is Σ rows\[y\].weight · cols\[x\].weight · source pixel.
#[derive(Debug)]
pub(crate) struct Resize {
    images: usize,
    channels: usize,
    x: Image,
    out: Image,
    rows: Vec<Mix>,
    cols: Vec<Mix>,
    /// For few channels: which columns are made of which pixels.
    pieces: Vec<Piece>,
    /// Whether every pixel is a copy of one.
    nearest: bool,
    /// The most pixels that one is made of.
    taps: usize,
}

impl Resize {
    /// Of `images` images of `channels` channels; `rows` and `cols` have an entry per row and column of `out`.
    /// Panics if a table names a position that the source does not have.
    pub(crate) fn new(
        images: usize,
        channels: usize,
        x: Image,
        out: Image,
        rows: Vec<Mix>,
        cols: Vec<Mix>,
    ) -> Resize {
        assert!(rows.len() == out.height && cols.len() == out.width, "a table of another length");
        for (table, len) in [(&rows, x.height), (&cols, x.width)] {
            for mix in table {
                assert!(mix.count <= TAPS && mix.index[..mix.count].iter().all(|&i| i < len), "a bad table");
            }
        }
        let plain = |mix: &Mix| mix.count == 1 && mix.weight[0] == 1.0;
        let nearest = rows.iter().chain(&cols).all(plain);
        let most = |table: &[Mix]| table.iter().map(|mix| mix.count).max().unwrap_or(1);
        let taps = most(&rows) * most(&cols);
        let pieces = mixed::pieces(&cols, channels, &x);
        Resize { images, channels, x, out, rows, cols, pieces, nearest, taps }
    }

    /// Resizes. Source and target must not overlap.
    pub(crate) fn run(&self, source: Source<'_, f32>, target: Target<'_, f32>, threads: &Threads) {
        let [from, to] = [&self.x, &self.out].map(|image| image.extent(self.images, self.channels));
        assert!(source.len() >= from, "a source of {} elements, {from} are read", source.len());
        assert!(target.len() >= to, "a target of {} elements, {to} are written", target.len());
        if to == 0 {
            return;
        }
        let rows = self.images * self.out.height;
        let bytes = 4 * rows * self.out.width * self.channels * (1 + self.taps);
        walk::share(threads, rows, bytes, &|rows| {
            if self.nearest {
                self.copy(source, target, rows);
            } else {
                let (source, target) = (source.as_ptr(), target.as_ptr());
                Part { resize: self, source, target, rows }.dispatch();
            }
        });
    }

    fn copy(&self, source: Source<'_, f32>, target: Target<'_, f32>, rows: Range<usize>) {
        let Resize { x, out, channels, .. } = self;
        for row in rows {
            let (image, y) = (row / out.height, row % out.height);
            let from = image * x.image_stride + self.rows[y].index[0] * x.row_stride;
            let to = image * out.image_stride + y * out.row_stride;
            for (col, mix) in self.cols.iter().enumerate() {
                // SAFETY: the tables lie in the image, whose extent `run` compared with the lengths.
                unsafe {
                    let from = source.as_ptr().add(from + mix.index[0] * x.pixel_stride);
                    let to = target.as_ptr().add(to + col * out.pixel_stride);
                    if *channels >= 64 {
                        from.copy_to_nonoverlapping(to, *channels);
                    } else {
                        // Shorter than what a call is worth.
                        for channel in 0..*channels {
                            *to.add(channel) = *from.add(channel);
                        }
                    }
                }
            }
        }
    }
}

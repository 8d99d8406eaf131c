//! Maximum and average over windows of channels-last images.

use super::lanes::{load, store};
use super::walk;
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;
use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};
use std::ops::Range;

#[cfg(test)]
pub(super) mod tests;

/// Images in memory, their channels contiguous; strides in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    /// Rows of an image.
    pub(crate) height: usize,
    /// Pixels of a row.
    pub(crate) width: usize,
    /// From image to image.
    pub(crate) image_stride: usize,
    /// From row to row.
    pub(crate) row_stride: usize,
    /// From pixel to pixel, at least the number of channels.
    pub(crate) pixel_stride: usize,
}

impl Image {
    /// How many elements `count` images of so many channels span.
    pub(super) fn extent(&self, count: usize, channels: usize) -> usize {
        let shape = [count, self.height, self.width, channels];
        walk::span(&shape, &[self.image_stride, self.row_stride, self.pixel_stride, 1])
    }
}

/// The windows of a pooling; each pair is along rows and columns of the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Positions of a window.
    pub(crate) kernel: [usize; 2],
    /// From window to window.
    pub(crate) stride: [usize; 2],
    /// Between positions of a window.
    pub(crate) dilation: [usize; 2],
    /// Pixels before the image.
    pub(crate) before: [usize; 2],
    /// Pixels after it.
    pub(crate) after: [usize; 2],
}

/// What is made of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// The maximum of the pixels in the image; -∞ for a window without any.
    Max,
    /// The mean of the pixels in the image.
    Average,
    /// The mean where the padding counts as zeros, but not what lies beyond the padding.
    AverageWithPadding,
    /// The sum of the pixels in the image.
    Sum,
}

/// A pooling, made for one shape.
#[derive(Debug)]
pub(crate) struct Pool {
    kind: PoolKind,
    images: usize,
    channels: usize,
    x: Image,
    out: Image,
    rows: Vec<Span>,
    cols: Vec<Span>,
    /// Rows and pixels between the positions of a window.
    dilation: [usize; 2],
}

/// The positions of a window along one axis that lie in the image.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The first one.
    first: usize,
    /// How many.
    count: usize,
    /// How many if padding counts.
    padded: usize,
}

impl Pool {
    /// Of `images` images of `channels` channels. The output's size is `out`'s; windows may reach beyond the
    /// padding (ceil mode).
    pub(crate) fn new(
        kind: PoolKind,
        images: usize,
        channels: usize,
        x: Image,
        out: Image,
        window: &Window,
    ) -> Pool {
        let spans = |axis: usize, len: usize, out: usize| -> Vec<Span> {
            let (before, after) = (window.before[axis], window.after[axis]);
            (0..out)
                .map(|index| {
                    let start = index * window.stride[axis];
                    let at = (0..window.kernel[axis]).map(|k| start + k * window.dilation[axis]);
                    let inside = |at: &usize| (before..before + len).contains(at);
                    Span {
                        first: at.clone().find(inside).map_or(0, |at| at - before),
                        count: at.clone().filter(inside).count(),
                        padded: at.filter(|&at| at < before + len + after).count(),
                    }
                })
                .collect()
        };
        let (rows, cols) = (spans(0, x.height, out.height), spans(1, x.width, out.width));
        Pool { kind, images, channels, x, out, rows, cols, dilation: window.dilation }
    }

    /// Pools. Source and target must not overlap.
    pub(crate) fn run(&self, source: Source<'_, f32>, target: Target<'_, f32>, threads: &Threads) {
        let [from, to] = [&self.x, &self.out].map(|image| image.extent(self.images, self.channels));
        assert!(source.len() >= from, "a source of {} elements, {from} are read", source.len());
        assert!(target.len() >= to, "a target of {} elements, {to} are written", target.len());
        if to == 0 {
            return;
        }
        let rows = self.images * self.out.height;
        let taps = self.rows.iter().map(|row| row.count).max().unwrap_or(1).max(1);
        let bytes = 4 * rows * self.out.width * self.channels * (1 + taps);
        walk::share(threads, rows, bytes, &|rows| Part { pool: self, source, target, rows }.dispatch());
    }
}

/// Some rows of the output.
struct Part<'a> {
    pool: &'a Pool,
    source: Source<'a, f32>,
    target: Target<'a, f32>,
    rows: Range<usize>,
}

impl SimdOp for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let ops = isa.f32();
        match self.pool.kind {
            PoolKind::Max => self.rows(
                isa,
                f32::NEG_INFINITY,
                #[inline(always)]
                |a, x| ops.max(a, x),
            ),
            _ => self.rows(
                isa,
                0.0,
                #[inline(always)]
                |a, x| ops.add(a, x),
            ),
        }
    }
}

impl Part<'_> {
    #[inline(always)]
    fn rows<I: Isa>(&self, isa: I, start: f32, step: impl Fn(I::F32, I::F32) -> I::F32) {
        let ops = isa.f32();
        let lanes = ops.len();
        let Pool { x, out, channels, dilation, .. } = self.pool;
        let start = ops.splat(start);
        for row in self.rows.clone() {
            let (image, y) = (row / out.height, row % out.height);
            let span = self.pool.rows[y];
            // SAFETY: spans lie in the image, whose extent `run` compared with the lengths.
            unsafe {
                let from = self.source.as_ptr().add(image * x.image_stride + span.first * x.row_stride);
                let mut to = self.target.as_ptr().add(image * out.image_stride + y * out.row_stride);
                for col in &self.pool.cols {
                    let from = from.add(col.first * x.pixel_stride);
                    let factor = ops.splat(self.factor(&span, col));
                    let window = Taps {
                        rows: span.count,
                        cols: col.count,
                        row_step: dilation[0] * x.row_stride,
                        col_step: dilation[1] * x.pixel_stride,
                    };
                    let mut c = 0;
                    while c + 4 * lanes <= *channels {
                        window.fold::<I, 4>(isa, from.add(c), to.add(c), lanes, start, factor, &step);
                        c += 4 * lanes;
                    }
                    while c + lanes <= *channels {
                        window.fold::<I, 1>(isa, from.add(c), to.add(c), lanes, start, factor, &step);
                        c += lanes;
                    }
                    if c < *channels {
                        let n = channels - c;
                        window.fold::<I, 1>(isa, from.add(c), to.add(c), n, start, factor, &step);
                    }
                    to = to.wrapping_add(out.pixel_stride);
                }
            }
        }
    }

    fn factor(&self, row: &Span, col: &Span) -> f32 {
        match self.pool.kind {
            PoolKind::Max | PoolKind::Sum => 1.0,
            PoolKind::Average => 1.0 / (row.count * col.count).max(1) as f32,
            PoolKind::AverageWithPadding => 1.0 / (row.padded * col.padded).max(1) as f32,
        }
    }
}

/// What a window covers of the image.
#[derive(Clone, Copy)]
struct Taps {
    rows: usize,
    cols: usize,
    row_step: usize,
    col_step: usize,
}

impl Taps {
    /// One pixel's result for `K` vectors of channels, `n` lanes of each.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    unsafe fn fold<I: Isa, const K: usize>(
        self,
        isa: I,
        from: *const f32,
        to: *mut f32,
        n: usize,
        start: I::F32,
        factor: I::F32,
        step: &impl Fn(I::F32, I::F32) -> I::F32,
    ) {
        let ops = isa.f32();
        let lanes = ops.len();
        let mut total = [start; K];
        // SAFETY: the caller's promise.
        unsafe {
            for row in 0..self.rows {
                let mut at = from.add(row * self.row_step);
                for _ in 0..self.cols {
                    for (k, total) in total.iter_mut().enumerate() {
                        *total = step(*total, load(isa, at.add(k * lanes), 1, n));
                    }
                    at = at.wrapping_add(self.col_step);
                }
            }
            for (k, total) in total.into_iter().enumerate() {
                store(isa, ops.mul(total, factor), to.add(k * lanes), 1, n);
            }
        }
    }
}

//! Resizing where pixels are made of several.

use super::super::lanes::{load, store};
use super::super::pool::Image;
use super::{Mix, Resize, TAPS};
use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};
use std::ops::Range;

/// Pixels with fewer channels are mixed a row at a time.
const FEW: usize = 8;
/// Elements of a row of the source that are mixed at once.
pub(super) const LINE: usize = 2048;

/// Some rows of the output.
pub(super) struct Part<'a> {
    pub(super) resize: &'a Resize,
    pub(super) source: *const f32,
    pub(super) target: *mut f32,
    pub(super) rows: Range<usize>,
}

impl SimdOp for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Resize { x, out, channels, .. } = self.resize;
        for row in self.rows.clone() {
            let (image, y) = (row / out.height, row % out.height);
            let mix = &self.resize.rows[y];
            let mut lines = [std::ptr::null(); TAPS];
            // SAFETY: the tables lie in the image, whose extent `run` compared with the lengths.
            unsafe {
                for (line, index) in lines.iter_mut().zip(mix.index).take(mix.count) {
                    *line = self.source.add(image * x.image_stride + index * x.row_stride);
                }
                let to = self.target.add(image * out.image_stride + y * out.row_stride);
                if *channels < FEW && x.pixel_stride == *channels {
                    self.few(isa, &lines, mix, to);
                } else {
                    self.many(isa, &lines, mix, to);
                }
            }
        }
    }
}

impl Part<'_> {
    /// A row of the output, pixel by pixel.
    #[inline(always)]
    unsafe fn many<I: Isa>(&self, isa: I, lines: &[*const f32; TAPS], row: &Mix, mut to: *mut f32) {
        let lanes = isa.f32().len();
        let Resize { x, out, channels, .. } = self.resize;
        for col in &self.resize.cols {
            let mut taps = [(std::ptr::null(), 0.0); TAPS * TAPS];
            let mut count = 0;
            for (line, down) in lines.iter().zip(row.weight).take(row.count) {
                for (index, across) in col.index.into_iter().zip(col.weight).take(col.count) {
                    taps[count] = (line.wrapping_add(index * x.pixel_stride), down * across);
                    count += 1;
                }
            }
            let mut c = 0;
            // SAFETY: the caller's promise.
            unsafe {
                while c + 4 * lanes <= *channels {
                    // The common count is one that the compiler knows.
                    if count == 4 {
                        mix::<I, 4>(isa, &taps[..4], to, c, lanes);
                    } else {
                        mix::<I, 4>(isa, &taps[..count], to, c, lanes);
                    }
                    c += 4 * lanes;
                }
                while c < *channels {
                    mix::<I, 1>(isa, &taps[..count], to, c, (channels - c).min(lanes));
                    c += lanes;
                }
            }
            to = to.wrapping_add(out.pixel_stride);
        }
    }

    /// A row of the output: first the rows of the source that make it up, all channels of all pixels as one line,
    /// then the pixels of that.
    #[inline(always)]
    unsafe fn few<I: Isa>(&self, isa: I, lines: &[*const f32; TAPS], row: &Mix, to: *mut f32) {
        let lanes = isa.f32().len();
        let Resize { out, channels, pieces, cols, .. } = self.resize;
        let channels = *channels;
        let mut line = [0.0f32; LINE];
        for piece in pieces {
            let (first, len) = (piece.first * channels, piece.len * channels);
            let mut taps = [(std::ptr::null(), 0.0); TAPS];
            for (tap, (line, weight)) in taps.iter_mut().zip(lines.iter().zip(row.weight)).take(row.count) {
                *tap = (line.wrapping_add(first), weight);
            }
            // SAFETY: the caller's promise; a piece has at most LINE elements, and its columns are made of them.
            unsafe {
                for c in (0..len).step_by(lanes) {
                    mix::<I, 1>(isa, &taps[..row.count], line.as_mut_ptr(), c, (len - c).min(lanes));
                }
                for (col, [left, right]) in piece.cols.clone().zip(&piece.pairs) {
                    let to = to.add(col * out.pixel_stride);
                    for c in 0..channels {
                        let at = |tap: &Tap| *line.as_ptr().add(tap.offset as usize + c) * tap.weight;
                        *to.add(c) = at(left) + at(right);
                    }
                }
                if !piece.pairs.is_empty() {
                    continue;
                }
                for col in piece.cols.clone() {
                    let Mix { count, index, weight } = &cols[col];
                    let to = to.add(col * out.pixel_stride);
                    for c in 0..channels {
                        let at = |tap: usize| *line.as_ptr().add((index[tap] - piece.first) * channels + c);
                        *to.add(c) = (0..*count).map(|tap| at(tap) * weight[tap]).sum();
                    }
                }
            }
        }
    }
}

/// `K` vectors from element `c` on, `n` lanes of each: the sum of what is at the taps, each times its weight.
#[inline(always)]
unsafe fn mix<I: Isa, const K: usize>(isa: I, taps: &[(*const f32, f32)], to: *mut f32, c: usize, n: usize) {
    let ops = isa.f32();
    let lanes = ops.len();
    let mut total = [ops.zero(); K];
    // SAFETY: the callers' promise.
    unsafe {
        for &(from, weight) in taps {
            let weight = ops.splat(weight);
            for (k, total) in total.iter_mut().enumerate() {
                *total = ops.mul_add(load(isa, from.add(c + k * lanes), 1, n), weight, *total);
            }
        }
        for (k, total) in total.into_iter().enumerate() {
            store(isa, total, to.add(c + k * lanes), 1, n);
        }
    }
}

/// Columns of the output, and the positions of a row of the source that they are made of.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    cols: Range<usize>,
    first: usize,
    len: usize,
    /// If no column is made of more than two positions: where they lie in the line, smaller than a [`Mix`].
    pairs: Vec<[Tap; 2]>,
}

/// An element of a line and its weight.
#[derive(Clone, Copy, Debug)]
struct Tap {
    offset: u32,
    weight: f32,
}

/// Pieces that cover all columns, each of at most [`LINE`] elements of the source.
pub(super) fn pieces(cols: &[Mix], channels: usize, x: &Image) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = vec![];
    if channels >= FEW || x.width == 0 {
        return pieces;
    }
    for (col, mix) in cols.iter().enumerate() {
        let used = &mix.index[..mix.count];
        let first = used.iter().copied().min().unwrap_or(0);
        let last = used.iter().copied().max().unwrap_or(0);
        if let Some(piece) = pieces.last_mut() {
            let (low, high) = (piece.first.min(first), (piece.first + piece.len - 1).max(last));
            if (high + 1 - low) * channels <= LINE {
                *piece =
                    Piece { cols: piece.cols.start..col + 1, first: low, len: high + 1 - low, pairs: vec![] };
                continue;
            }
        }
        pieces.push(Piece { cols: col..col + 1, first, len: last + 1 - first, pairs: vec![] });
    }
    if cols.iter().all(|mix| (1..=2).contains(&mix.count)) {
        for piece in &mut pieces {
            let tap = |mix: &Mix, tap: usize| {
                // The second of one counts for nothing.
                let tap_or_first = if tap < mix.count { tap } else { 0 };
                let offset = (mix.index[tap_or_first] - piece.first) * channels;
                Tap { offset: offset as u32, weight: if tap < mix.count { mix.weight[tap] } else { 0.0 } }
            };
            piece.pairs = cols[piece.cols.clone()].iter().map(|mix| [tap(mix, 0), tap(mix, 1)]).collect();
        }
    }
    pieces
}

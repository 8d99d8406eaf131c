//! Normalisation over some axes: to mean 0 and variance 1, or to mean square 1.

use super::split::{COLUMNS, Split};
use super::walk::{self, Cursor};
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;
use rten_simd::ops::BitOps;
use rten_simd::{Isa, SimdOp};
use std::ops::Range;

mod columns;
mod rows;
#[cfg(test)]
mod tests;

/// What is made 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// The variance: (x - mean) / sqrt(variance + epsilon), the variance that of all elements (biased).
    Layer,
    /// The mean square: x / sqrt(mean square + epsilon).
    Rms,
}

/// A normalisation, then · scale + bias.
#[derive(Debug)]
pub(crate) struct Norm {
    kind: NormKind,
    split: Split<4>,
    epsilon: f32,
}

impl Norm {
    /// Over `axes` of a tensor of that shape: layer normalisation over the last ones, instance normalisation over
    /// those of the image. `scale` and `bias` have a stride per axis of the tensor; without one it is 1, or 0.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        kind: NormKind,
        shape: &[usize],
        axes: &[usize],
        source_strides: &[usize],
        target_strides: &[usize],
        scale: Option<&[usize]>,
        bias: Option<&[usize]>,
        epsilon: f32,
    ) -> Norm {
        let none = vec![0; shape.len()];
        let strides = [source_strides, target_strides, scale.unwrap_or(&none), bias.unwrap_or(&none)];
        Norm { kind, split: Split::new(shape, axes, strides), epsilon }
    }

    /// Computes it. The target may be the source, with the same strides.
    pub(crate) fn run(
        &self,
        source: Source<'_, f32>,
        scale: Option<Source<'_, f32>>,
        bias: Option<Source<'_, f32>>,
        target: Target<'_, f32>,
        threads: &Threads,
    ) {
        let scale = scale.unwrap_or(Source::from(&[1.0][..]));
        let bias = bias.unwrap_or(Source::from(&[0.0][..]));
        let lens = [source.len(), target.len(), scale.len(), bias.len()];
        for (len, extent) in lens.into_iter().zip(self.split.extents) {
            assert!(len >= extent, "{len} elements, {extent} are touched");
        }
        if self.split.extents[1] == 0 {
            return;
        }
        walk::share(threads, self.split.units(), 2 * self.split.bytes, &|units| {
            Part { norm: self, source, scale, bias, target, units }.dispatch();
        });
    }
}

/// Some units of a run.
struct Part<'a> {
    norm: &'a Norm,
    source: Source<'a, f32>,
    scale: Source<'a, f32>,
    bias: Source<'a, f32>,
    target: Target<'a, f32>,
    units: Range<usize>,
}

/// First elements of what one result needs.
#[derive(Clone, Copy)]
struct Firsts {
    x: *const f32,
    out: *mut f32,
    scale: *const f32,
    bias: *const f32,
}

impl Firsts {
    #[inline(always)]
    unsafe fn add(self, at: [usize; 4]) -> Firsts {
        // SAFETY: the caller's promise.
        unsafe {
            Firsts {
                x: self.x.add(at[0]),
                out: self.out.add(at[1]),
                scale: self.scale.add(at[2]),
                bias: self.bias.add(at[3]),
            }
        }
    }
}

impl SimdOp for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let split = &self.norm.split;
        let lanes = isa.f32().len();
        let firsts = Firsts {
            x: self.source.as_ptr(),
            out: self.target.as_ptr(),
            scale: self.scale.as_ptr(),
            bias: self.bias.as_ptr(),
        };
        let pieces = split.pieces();
        let mut cursor = Cursor::new(&split.kept, self.units.start / pieces);
        let mut piece = self.units.start % pieces;
        let strides = split.lane.strides;
        for _ in self.units {
            // SAFETY: the loops stay within the extents that `run` compared with the lengths.
            unsafe {
                let firsts = firsts.add(cursor.at);
                if split.across {
                    let end = split.lane.len.min((piece + 1) * COLUMNS);
                    let mut i = piece * COLUMNS;
                    let at = |i: usize| firsts.add(strides.map(|stride| i * stride));
                    while i < end {
                        if strides[..2] == [1, 1] && i + 4 * lanes <= end {
                            columns::results::<I, 4>(isa, self.norm, at(i), lanes);
                            i += 4 * lanes;
                        } else {
                            columns::results::<I, 1>(isa, self.norm, at(i), (end - i).min(lanes));
                            i += lanes;
                        }
                    }
                } else if strides == [1; 4] {
                    rows::result(isa, self.norm, firsts, [1; 4]);
                } else {
                    rows::result(isa, self.norm, firsts, strides);
                }
            }
            piece += 1;
            if piece == pieces {
                piece = 0;
                cursor.advance();
            }
        }
    }
}

//! The inner loops of convolution channel by channel: some vectors of channels of one pixel or of four.

#![expect(
    clippy::needless_range_loop,
    reason = "indices of register arrays, which unroll as they are written"
)]

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, Simd};

use super::{Columns, Line, PIXELS, Run};

impl Run<'_> {
    /// NV vectors of channels of four pixels. `PART`: there are fewer channels than lanes.
    #[inline(always)]
    pub(super) unsafe fn tile<
        I: Isa,
        const KW: usize,
        const SX: usize,
        const NV: usize,
        const BORDER: bool,
        const PART: bool,
    >(
        &self,
        isa: I,
        line: &Line,
        ox: usize,
        x: *const f32,
        table: &Columns,
        channel: usize,
    ) {
        let (ops, conv) = (isa.f32(), self.conv);
        let lanes = ops.len();
        let left = if PART { conv.out_c - channel } else { lanes };
        let vector = conv.taps() * lanes;
        // SAFETY: as the caller promises; weights are filled up to full vectors.
        unsafe {
            let mut acc = [[ops.zero(); NV]; PIXELS];
            for v in 0..NV {
                let bias = self.bias::<I, PART>(isa, channel + v * lanes, left);
                for p in 0..PIXELS {
                    acc[p][v] = bias;
                }
            }
            let mut weights = self.packed.as_ptr().add(channel * conv.taps() + line.top * KW * lanes);
            let mut x = x.wrapping_add(channel);
            for row in 0..line.rows {
                for v in 0..NV {
                    let mut weight = [ops.zero(); KW];
                    for kx in 0..KW {
                        weight[kx] = ops.load_ptr(weights.add(v * vector + kx * lanes));
                    }
                    let mut at = x;
                    for column in 0..(PIXELS - 1) * SX + KW {
                        let from = if BORDER { table[row][column].add(channel) } else { at };
                        let value = load::<I, PART>(isa, from.add(v * lanes), left);
                        at = at.wrapping_add(conv.x_pixel_stride);
                        for p in 0..PIXELS {
                            if column >= p * SX && column - p * SX < KW {
                                acc[p][v] = ops.mul_add(value, weight[column - p * SX], acc[p][v]);
                            }
                        }
                    }
                }
                x = x.wrapping_add(line.step * conv.x_pixel_stride);
                weights = weights.wrapping_add(KW * lanes);
            }
            self.store::<I, PIXELS, NV, PART>(isa, &mut acc, line.pixel + ox, channel, left);
        }
    }

    /// NV vectors of channels of a pixel, with the `taps` columns of the kernel from `first` on, the first of which
    /// meets column `column` of the input.
    #[inline(always)]
    pub(super) unsafe fn single<I: Isa, const NV: usize, const PART: bool>(
        &self,
        isa: I,
        line: &Line,
        ox: usize,
        (first, taps): (usize, usize),
        column: usize,
        channel: usize,
    ) {
        let (ops, conv) = (isa.f32(), self.conv);
        let (lanes, vector) = (ops.len(), conv.taps() * ops.len());
        let left = if PART { conv.out_c - channel } else { lanes };
        let mut acc = [[ops.zero(); NV]; 1];
        // SAFETY: as the caller promises; weights are filled up to full vectors.
        unsafe {
            for v in 0..NV {
                acc[0][v] = self.bias::<I, PART>(isa, channel + v * lanes, left);
            }
            for row in 0..line.rows {
                for tap in 0..taps {
                    let pixel = line.input + row * line.step + column + tap * conv.dilation_w;
                    let x = self.x.as_ptr().add(pixel * conv.x_pixel_stride + channel);
                    let tap = (line.top + row) * conv.kernel_w + first + tap;
                    let weights = self.packed.as_ptr().add(channel * conv.taps() + tap * lanes);
                    for v in 0..NV {
                        let value = load::<I, PART>(isa, x.add(v * lanes), left);
                        acc[0][v] = ops.mul_add(value, ops.load_ptr(weights.add(v * vector)), acc[0][v]);
                    }
                }
            }
            self.store::<I, 1, NV, PART>(isa, &mut acc, line.pixel + ox, channel, left);
        }
    }

    #[inline(always)]
    unsafe fn bias<I: Isa, const PART: bool>(&self, isa: I, channel: usize, left: usize) -> I::F32 {
        match self.epilogue.bias {
            // SAFETY: the bias has as many elements as channels.
            Some(bias) => unsafe { load::<I, PART>(isa, bias.as_ptr().add(channel), left) },
            None => isa.f32().zero(),
        }
    }

    /// Residual and clamp, and the store, of NV vectors of channels of PX pixels.
    #[inline(always)]
    unsafe fn store<I: Isa, const PX: usize, const NV: usize, const PART: bool>(
        &self,
        isa: I,
        acc: &mut [[I::F32; NV]; PX],
        pixel: usize,
        channel: usize,
        left: usize,
    ) {
        let ops = isa.f32();
        let lanes = ops.len();
        // SAFETY: residual and output have these pixels, and of each `left` channels or the full vectors.
        unsafe {
            if let Some((residual, stride)) = self.epilogue.residual {
                let from = residual.as_ptr().add(pixel * stride + channel);
                for p in 0..PX {
                    for v in 0..NV {
                        let from = from.add(p * stride + v * lanes);
                        acc[p][v] = ops.add(acc[p][v], load::<I, PART>(isa, from, left));
                    }
                }
            }
            if let Some((low, high)) = self.epilogue.clamp {
                let (low, high) = (ops.splat(low), ops.splat(high));
                for p in 0..PX {
                    for v in 0..NV {
                        // In this order of operands x86 passes a NaN on.
                        acc[p][v] = ops.min(high, ops.max(low, acc[p][v]));
                    }
                }
            }
            let to = self.out.add(pixel * self.conv.out_pixel_stride + channel);
            for p in 0..PX {
                let to = to.add(p * self.conv.out_pixel_stride);
                for v in 0..NV {
                    if PART {
                        let part = acc[p][v].to_array();
                        for (at, &x) in part.as_ref().iter().enumerate().take(left) {
                            *to.add(at) = x;
                        }
                    } else {
                        ops.store_ptr(acc[p][v], to.add(v * lanes));
                    }
                }
            }
        }
    }
}

/// A vector, or its first `left` elements.
#[inline(always)]
unsafe fn load<I: Isa, const PART: bool>(isa: I, at: *const f32, left: usize) -> I::F32 {
    let ops = isa.f32();
    // SAFETY: the caller has so many elements there.
    unsafe { if PART { ops.load_ptr_mask(at, ops.first_n_mask(left)) } else { ops.load_ptr(at) } }
}

//! Convolution of f32 images, channels last (NHWC), without im2col: inputs are read where they lie.
//!
//! Four ways, chosen by shape: 1×1 is a matrix multiplication; channel by channel (`depthwise`) is vectorised over
//! channels; anything else multiplies through a table of pointers to pixels (`indirect`; Dukhan 2019, The Indirect
//! Convolution Algorithm); transposed convolution (`transpose`) does the same for each phase of the output.

mod depthwise;
mod indirect;
#[cfg(test)]
mod tests;
mod transpose;

pub(crate) use super::matmul::Epilogue;
pub(crate) use transpose::ConvTranspose;

use super::matmul::{B, Batch, MatMul, Panels, lanes};
use crate::device::cpu::threads::Threads;

/// A convolution of `batch` images of `in_h` × `in_w` pixels to `out_h` × `out_w` pixels. What lies outside of the
/// input counts as zero, so that padding at the bottom and on the right follows from the output's size. A
/// one-dimensional convolution has height 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv {
    pub(crate) batch: usize,
    pub(crate) in_h: usize,
    pub(crate) in_w: usize,
    pub(crate) in_c: usize,
    pub(crate) out_h: usize,
    pub(crate) out_w: usize,
    pub(crate) out_c: usize,
    pub(crate) kernel_h: usize,
    pub(crate) kernel_w: usize,
    pub(crate) stride_h: usize,
    pub(crate) stride_w: usize,
    pub(crate) dilation_h: usize,
    pub(crate) dilation_w: usize,
    pub(crate) pad_top: usize,
    pub(crate) pad_left: usize,
    /// Divides `in_c` and `out_c`.
    pub(crate) groups: usize,
    /// Elements from one pixel to the next, at least `in_c` and `out_c`.
    pub(crate) x_pixel_stride: usize,
    pub(crate) out_pixel_stride: usize,
}

/// How a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Pointwise,
    Depthwise,
    Indirect,
}

impl Conv {
    /// The elements that `pack` writes.
    pub(crate) fn packed_len(&self) -> usize {
        match self.path() {
            Path::Depthwise => self.taps() * self.out_c.next_multiple_of(lanes()),
            Path::Pointwise | Path::Indirect => self.groups * self.panels().len(),
        }
    }

    /// Lays constant weights `[out_c][kernel_h][kernel_w][in_c / groups]` out for this machine: for each group the
    /// panels (`Panels`) of a matrix of kernel_h × kernel_w × in_c / groups rows and out_c / groups columns; depthwise
    /// for each vector of channels `[kernel_h][kernel_w][lanes]`, channels filled up with zeros to full vectors.
    pub(crate) fn pack(&self, weights: &[f32], out: &mut [f32]) {
        let (k, columns) = (self.k(), self.out_c / self.groups.max(1));
        assert!(weights.len() >= self.out_c * k, "{} of {} weights", weights.len(), self.out_c * k);
        assert!(out.len() >= self.packed_len(), "packed weights: {} of {}", out.len(), self.packed_len());
        if self.path() == Path::Depthwise {
            let lanes = lanes();
            for (at, out) in out[..self.packed_len()].iter_mut().enumerate() {
                let (tap, channel) = (at / lanes % k, at / lanes / k * lanes + at % lanes);
                *out = if channel < self.out_c { weights[channel * k + tap] } else { 0.0 };
            }
            return;
        }
        let panels = self.panels();
        for group in 0..self.groups {
            let weights = &weights[group * columns * k..];
            panels.pack_all(&mut out[group * panels.len()..][..panels.len()], |at, column, row| {
                row.iter_mut().enumerate().for_each(|(n, to)| *to = weights[(column + n) * k + at]);
            });
        }
    }

    /// The elements of scratch that `run` needs with so many threads.
    pub(crate) fn scratch_len(&self, threads: usize) -> usize {
        match self.path() {
            Path::Depthwise => self.in_c,
            Path::Pointwise => self.pointwise().scratch_len(true, threads),
            Path::Indirect => self.indirect_plan(threads).scratch_len(threads),
        }
    }

    /// Convolves `x`, which begins at the first channel of the first pixel, to `out`, which does likewise. A row of
    /// the epilogue is a pixel of the output, over all images. Allocates nothing; `scratch` has `scratch_len`
    /// elements of any value.
    pub(crate) fn run(
        &self,
        x: &[f32],
        packed: &[f32],
        epilogue: &Epilogue,
        out: &mut [f32],
        scratch: &mut [f32],
        threads: &Threads,
    ) {
        if self.out_pixels() == 0 || self.out_c == 0 {
            return;
        }
        self.check(x.len(), packed.len(), epilogue, out.len());
        match self.path() {
            Path::Depthwise => self.depthwise(x, packed, epilogue, out, scratch, threads),
            Path::Pointwise => self.pointwise().run(x, B::Packed(packed), epilogue, out, scratch, threads),
            Path::Indirect => self.indirect(x, packed, epilogue, out, scratch, threads),
        }
    }

    fn path(&self) -> Path {
        let whole = self.in_h == self.out_h && self.in_w == self.out_w && self.pad_top + self.pad_left == 0;
        if self.groups > 1 && self.groups == self.in_c && self.groups == self.out_c {
            Path::Depthwise
        } else if self.groups == 1 && self.taps() == 1 && whole && self.stride_h == 1 && self.stride_w == 1 {
            Path::Pointwise
        } else {
            Path::Indirect
        }
    }

    fn pointwise(&self) -> MatMul {
        MatMul {
            m: self.out_pixels(),
            n: self.out_c,
            k: self.in_c,
            batch: [Batch::ONE; 4],
            a_strides: (self.x_pixel_stride, 1),
            b_strides: (self.out_c, 1),
            c_strides: (self.out_pixel_stride, 1),
        }
    }

    fn taps(&self) -> usize {
        self.kernel_h * self.kernel_w
    }

    /// The products of an element of the output.
    fn k(&self) -> usize {
        self.taps() * (self.in_c / self.groups.max(1))
    }

    fn out_pixels(&self) -> usize {
        self.batch * self.out_h * self.out_w
    }

    /// The weights of a group as a matrix.
    fn panels(&self) -> Panels {
        Panels::new(self.k(), self.out_c / self.groups.max(1))
    }

    fn check(&self, x: usize, packed: usize, epilogue: &Epilogue, out: usize) {
        let groups = self.groups;
        assert!(
            groups > 0 && self.in_c.is_multiple_of(groups) && self.out_c.is_multiple_of(groups),
            "groups"
        );
        assert!(
            self.stride_h > 0 && self.stride_w > 0 && self.dilation_h > 0 && self.dilation_w > 0,
            "strides"
        );
        let needed = image_len(self.batch * self.in_h * self.in_w, self.in_c, self.x_pixel_stride);
        assert!(x >= needed, "x has {x} of {needed} elements");
        let needed = image_len(self.out_pixels(), self.out_c, self.out_pixel_stride);
        assert!(out >= needed, "out has {out} of {needed} elements");
        assert!(packed >= self.packed_len(), "packed weights: {packed} of {}", self.packed_len());
        epilogue.check(self.out_pixels(), self.out_c);
    }
}

/// The elements of so many pixels; panics where pixels overlap.
fn image_len(pixels: usize, channels: usize, stride: usize) -> usize {
    assert!(stride >= channels, "pixels of {channels} channels, {stride} elements apart");
    if pixels == 0 { 0 } else { (pixels - 1) * stride + channels }
}

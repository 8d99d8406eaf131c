//! Depthwise convolutions with one output channel an input channel: which of depthwise.cu's kernels, its argument, and
//! how weights are packed for it.

use super::conv::Pixels;
use super::epilogue::{Epilogue, Order, Pointers};
use super::grid::{Div, Gpu, Grid};
use cudarc::driver::sys::CUdeviceptr;
use half::f16;

/// Threads of a block.
const THREADS: usize = 128;

/// A depthwise convolution; pairs are (y, x), strides as those of [`Conv`](super::conv::Conv).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depthwise {
    /// Whether elements are f16; f32 otherwise. Sums are f32.
    pub(crate) half: bool,
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    pub(crate) input: [usize; 2],
    pub(crate) output: [usize; 2],
    pub(crate) window: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) dilation: [usize; 2],
    pub(crate) before: [usize; 2],
    pub(crate) x: Pixels,
    pub(crate) y: Pixels,
    pub(crate) operand: Pixels,
    pub(crate) epilogue: Epilogue,
}

/// How a depthwise convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    half: bool,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    /// Any strides, a channel a thread.
    Any,
    /// Any window.
    Vectors,
    /// A square window of that size and stride, and so many pixels a thread.
    Window { size: usize, stride: usize, pixels: usize },
}

impl Candidate {
    /// The kernel's name.
    pub(crate) fn kernel(&self) -> String {
        let prefix = if self.half { "depthwise_f16" } else { "depthwise_f32" };
        match self.way {
            Way::Any => format!("{prefix}_any"),
            Way::Vectors => prefix.into(),
            Way::Window { size, stride, pixels } => format!("{prefix}_{size}_{stride}_{pixels}"),
        }
    }

    /// Channels and pixels that a thread computes.
    fn share(&self) -> (usize, usize) {
        let channels = if self.half { 8 } else { 4 };
        match self.way {
            Way::Any => (1, 1),
            Way::Vectors => (channels, 1),
            Way::Window { pixels, .. } => (channels, pixels),
        }
    }
}

/// The kernels' argument. As `Args` in depthwise.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args {
    x: CUdeviceptr,
    weights: CUdeviceptr,
    y: CUdeviceptr,
    bias: CUdeviceptr,
    operand: CUdeviceptr,
    threads: i32,
    channels: i32,
    pitch: i32,
    groups: Div,
    spans: Div,
    lines: Div,
    in_h: i32,
    in_w: i32,
    out_w: i32,
    x_strides: [i32; 4],
    y_strides: [i32; 4],
    operand_strides: [i32; 4],
    window: [i32; 2],
    stride: [i32; 2],
    dilation: [i32; 2],
    before: [i32; 2],
    act: i32,
    order: i32,
    alpha: f32,
    beta: f32,
}

// As large as the kernels take it for.
const _: () = assert!(size_of::<Args>() == 200);

impl Depthwise {
    /// Channels that a tap of the packed weights has room for.
    fn pitch(&self) -> usize {
        self.channels.next_multiple_of(8)
    }

    /// Bytes of the packed weights, `[tap][channels up to a multiple of 8]`.
    pub(crate) fn packed_bytes(&self) -> usize {
        self.window[0] * self.window[1] * self.pitch() * if self.half { 2 } else { 4 }
    }

    /// Packs weights whose element (channel, tap) is what `weight` says. `out` has as many bytes as they take.
    pub(crate) fn pack(&self, weight: impl Fn(usize, usize) -> f32, out: &mut [u8]) {
        let pitch = self.pitch();
        let at = |i: usize| if i % pitch < self.channels { weight(i % pitch, i / pitch) } else { 0.0 };
        if self.half {
            for (i, bytes) in out.chunks_exact_mut(2).enumerate() {
                bytes.copy_from_slice(&f16::from_f32(at(i)).to_ne_bytes());
            }
        } else {
            for (i, bytes) in out.chunks_exact_mut(4).enumerate() {
                bytes.copy_from_slice(&at(i).to_ne_bytes());
            }
        }
    }

    /// What a tuner may try, the most promising first. `aligned` says whether all tensors begin at multiples of 16
    /// bytes.
    pub(crate) fn candidates(&self, aligned: bool, gpu: &Gpu) -> Vec<Candidate> {
        let width = if self.half { 8 } else { 4 };
        let whole = |s: &Pixels| s[3] == 1 && s[..3].iter().all(|stride| stride.is_multiple_of(width));
        let operand = self.epilogue.order == Order::Alone || whole(&self.operand);
        let half = self.half;
        if !(aligned && self.channels.is_multiple_of(width) && whole(&self.x) && whole(&self.y) && operand) {
            return vec![Candidate { half, way: Way::Any }];
        }
        let ([h, w], [sy, sx]) = (self.window, self.stride);
        let known = h == w && [3, 5].contains(&h) && sy == sx && [1, 2].contains(&sy);
        if !known || self.dilation != [1, 1] {
            return vec![Candidate { half, way: Way::Vectors }];
        }
        // Several pixels a thread save loads where there are threads enough to hide what remains.
        let most = self.batch * self.output[0] * self.output[1] * self.channels / width;
        let order = if most > gpu.processors * 4096 { [4, 2, 1] } else { [1, 2, 4] };
        let window = |pixels| Candidate { half, way: Way::Window { size: h, stride: sy, pixels } };
        order.into_iter().filter(|pixels| *pixels <= self.output[1]).map(window).collect()
    }

    /// Threads of all blocks, and how they divide.
    fn threads(&self, candidate: &Candidate) -> (usize, usize, usize) {
        let (channels, pixels) = candidate.share();
        let (groups, spans) = (self.channels.div_ceil(channels), self.output[1].div_ceil(pixels));
        (self.batch * self.output[0] * spans * groups, groups, spans)
    }

    /// The launch.
    pub(crate) fn grid(&self, candidate: &Candidate, gpu: &Gpu) -> Grid {
        Grid {
            blocks: [self.threads(candidate).0.div_ceil(THREADS) as u32, 1, 1],
            threads: THREADS as u32,
            shared_bytes: 0,
            cluster: 1,
            dependent: gpu.capability >= 90,
        }
    }

    /// The kernel's argument for that candidate; of the pointers, `a` is the image and `b` the weights.
    pub(crate) fn args(&self, candidate: &Candidate, pointers: &Pointers) -> Args {
        let pair = |p: [usize; 2]| p.map(|x| x as i32);
        let strides = |s: Pixels| s.map(|stride| stride as i32);
        let (threads, groups, spans) = self.threads(candidate);
        let (act, alpha, beta) = self.epilogue.act.encode();
        Args {
            x: pointers.a,
            weights: pointers.b,
            y: pointers.c,
            bias: if self.epilogue.bias { pointers.bias } else { 0 },
            operand: pointers.operand,
            threads: threads as i32,
            channels: self.channels as i32,
            pitch: self.pitch() as i32,
            groups: Div::new(groups),
            spans: Div::new(spans),
            lines: Div::new(self.output[0]),
            in_h: self.input[0] as i32,
            in_w: self.input[1] as i32,
            out_w: self.output[1] as i32,
            x_strides: strides(self.x),
            y_strides: strides(self.y),
            operand_strides: strides(self.operand),
            window: pair(self.window),
            stride: pair(self.stride),
            dilation: pair(self.dilation),
            before: pair(self.before),
            act,
            order: self.epilogue.order as i32,
            alpha,
            beta,
        }
    }
}

//! Convolutions: which of conv.cu's and gemm.cu's kernels, and its argument.

use super::epilogue::{Epilogue, Order, Pointers};
use super::few;
use super::gemm::{B, Gemm, Strides};
use super::grid::{Div, Gpu, Grid};
use super::pack::Packed;
use super::tile::{self, Args, Candidate, Family, Precision, Size};

/// Elements from one position to the next along image, y, x and channel.
pub(crate) type Pixels = [usize; 4];

/// A convolution of images. Pairs are (y, x); one-dimensional ones have height 1. What lies outside of the input is
/// zero, so that padding after it follows from the output's size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv {
    pub(crate) precision: Precision,
    pub(crate) batch: usize,
    /// Height and width.
    pub(crate) input: [usize; 2],
    pub(crate) output: [usize; 2],
    /// Channels of all groups.
    pub(crate) in_c: usize,
    pub(crate) out_c: usize,
    pub(crate) groups: usize,
    pub(crate) window: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) dilation: [usize; 2],
    /// Pixels of border before the image; fewer than none where it begins later.
    pub(crate) before: [i32; 2],
    pub(crate) x: Pixels,
    pub(crate) y: Pixels,
    pub(crate) operand: Pixels,
    pub(crate) epilogue: Epilogue,
}

impl Conv {
    /// The form of its weights.
    pub(crate) fn packed(&self) -> Packed {
        if few::possible(self) {
            return few::packed(self);
        }
        Packed {
            groups: self.groups,
            n: self.out_c / self.groups,
            taps: self.window[0] * self.window[1],
            channels: self.in_c / self.groups,
            precision: self.precision,
        }
    }

    /// Packs weights whose element (output channel of all groups, channel of the group, y, x) is what `weight` says.
    pub(crate) fn pack(&self, weight: impl Fn(usize, usize, usize, usize) -> f32, out: &mut [u8]) {
        let (w, c) = (self.window[1], self.in_c);
        if few::possible(self) {
            few::packed(self).pack(|n, element, y| weight(n, element % c, y, element / c), out);
        } else {
            self.packed().pack(|n, channel, tap| weight(n, channel, tap / w, tap % w), out);
        }
    }

    /// What candidates depend on.
    pub(crate) fn size(&self) -> Size {
        let packed = self.packed();
        let m = self.batch * self.output[0] * self.output[1];
        Size { batch: self.groups, m, n: packed.n, k_blocks: packed.k_blocks() }
    }

    /// The kernels for operands that lie so.
    pub(crate) fn family(&self, pointers: &Pointers) -> Family {
        let aligned = (pointers.a | pointers.b).is_multiple_of(16);
        if few::possible(self) {
            return Family::Few;
        }
        let (packed, chunk) = (self.packed(), self.precision.chunk());
        let strides = self.x[..3].iter().all(|stride| stride.is_multiple_of(chunk)) && self.x[3] == 1;
        let groups = self.groups == 1 || packed.channels.is_multiple_of(chunk);
        if !(aligned && strides && groups && packed.tap_channels().is_multiple_of(chunk)) {
            Family::ConvAny
        } else if self.gemm().is_some() {
            Family::Gemm
        } else {
            Family::Conv
        }
    }

    /// Whether all pixels of all images are equally far apart.
    fn flat(&self, s: &Pixels, [h, w]: [usize; 2]) -> bool {
        (h == 1 || s[1] == s[2] * w) && (self.batch == 1 || s[0] == s[2] * h * w)
    }

    fn flat_operand(&self) -> bool {
        self.epilogue.order == Order::Alone || self.flat(&self.operand, self.output)
    }

    /// The same as a product of matrices, where every pixel is a row: a window of one pixel that moves by one.
    fn gemm(&self) -> Option<Gemm> {
        let one = self.window == [1, 1] && self.stride == [1, 1] && self.before == [0, 0] && self.groups == 1;
        let flat = self.flat(&self.x, self.input) && self.flat(&self.y, self.output) && self.flat_operand();
        (one && self.input == self.output && flat).then(|| {
            let rows = |s: &Pixels| Strides { batch: [0, 0], row: s[2], column: s[3] };
            Gemm {
                precision: self.precision,
                batch: [1, 1],
                m: self.batch * self.output[0] * self.output[1],
                n: self.out_c,
                k: self.in_c,
                a: rows(&self.x),
                b: B::Packed([0, 0]),
                c: rows(&self.y),
                operand: rows(&self.operand),
                epilogue: self.epilogue,
            }
        })
    }

    /// What a tuner may try, the most promising first; of the pointers, it matters which are multiples of 16.
    pub(crate) fn candidates(&self, pointers: &Pointers, gpu: &Gpu) -> Vec<Candidate> {
        if few::possible(self) {
            return few::candidates(self, gpu);
        }
        let whole = self.args(&tile::ANY, pointers).vector == 1;
        tile::candidates(self.family(pointers), self.precision, &self.size(), whole, gpu)
    }

    /// The launch.
    pub(crate) fn grid(&self, candidate: &Candidate, gpu: &Gpu) -> Grid {
        match candidate.family {
            Family::Few => few::grid(self, candidate),
            _ => candidate.grid(&self.size(), gpu),
        }
    }

    /// The kernel's argument for that candidate.
    pub(crate) fn args(&self, candidate: &Candidate, pointers: &Pointers) -> Args {
        if let (Family::Gemm | Family::GemmWide, Some(gemm)) = (candidate.family, self.gemm()) {
            return gemm.args(candidate, pointers);
        }
        let (packed, size) = (self.packed(), self.size());
        let pair = |p: [usize; 2]| p.map(|x| x as i32);
        let strides = |s: Pixels| s.map(|stride| stride as i32);
        let group = |channels: usize, s: &Pixels| [0, (channels * s[3]) as i64];
        let mut args = Args {
            a: pointers.a,
            a_batch: group(packed.channels, &self.x),
            b_batch: [0, packed.group_bytes() as i64],
            c_batch: group(packed.n, &self.y),
            operand_batch: group(packed.n, &self.operand),
            bias_batch: [0, packed.n as i32],
            batch_inner: self.groups as i32,
            m: size.m as i32,
            n: size.n as i32,
            k: packed.k() as i32,
            k_blocks: size.k_blocks as i32,
            packed_rows: packed.rows() as i32,
            out_w: Div::new(self.output[1]),
            out_hw: Div::new(self.output[0] * self.output[1]),
            flat: i32::from(self.flat(&self.y, self.output) && self.flat_operand()),
            c_strides: strides(self.y),
            operand_strides: strides(self.operand),
            a_strides: strides(self.x),
            in_h: self.input[0] as i32,
            in_w: self.input[1] as i32,
            channels: packed.channels as i32,
            tap_channels: Div::new(packed.tap_channels()),
            window_w: Div::new(self.window[1]),
            window_h: self.window[0] as i32,
            stride: pair(self.stride),
            dilation: pair(self.dilation),
            before: self.before,
            ..Args::default()
        };
        if self.groups == 1 {
            (args.a_batch, args.c_batch, args.operand_batch, args.bias_batch) = Default::default();
        }
        candidate.inform(&self.size(), &mut args);
        if candidate.family == Family::Few {
            args.channels = self.in_c as i32;
            args.tiles_n = Div::new(few::spans(self));
            args.part_rows = Div::new(few::lines(candidate));
        }
        args.finish(&self.epilogue, pointers, self.precision.chunk());
        args
    }
}

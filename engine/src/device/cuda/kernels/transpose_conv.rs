//! Transposed convolution, by gathering.

use super::axes::Divider;
use super::launch::{self, Float, Queue, Unsupported, blocks};
use super::pool::{Image, SPATIAL, Window, in_front};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;

const BLOCK: usize = 128;
/// Elements along the last axis that a thread makes.
const PIXELS: usize = 4;

/// What follows at once on each element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activation {
    /// Nothing.
    None,
    /// min(max(x, low), high).
    Clamp(f32, f32),
    /// x · sigmoid(x).
    Silu,
    /// x · max(0, min(1, x / 6 + 1 / 2)).
    HardSwish,
    /// 1 / (1 + exp(−x)).
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// x / 2 · (1 + erf(x / √2)).
    GeluErf,
    /// x where x ≥ 0, else x · that.
    LeakyRelu(f32),
}

/// The weights' strides, in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights<'a> {
    /// Along the channels of the input.
    pub(crate) in_stride: usize,
    /// Along the channels of the output within a group.
    pub(crate) out_stride: usize,
    /// Along the window's axes.
    pub(crate) strides: &'a [usize],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    x: u64,
    weights: u64,
    bias: u64,
    out: u64,
    threads: u32,
    channels: Divider,
    columns: Divider,
    size: [Divider; SPATIAL - 1],
    group_in: u32,
    group_out: u32,
    wide_bias: u32,
    in_size: [i32; SPATIAL],
    out_size: [i32; SPATIAL],
    window: [i32; SPATIAL],
    dilation: [i32; SPATIAL],
    before: [i32; SPATIAL],
    stride: [Divider; SPATIAL],
    x_strides: [u32; SPATIAL + 2],
    out_strides: [u32; SPATIAL + 2],
    weight_strides: [u32; SPATIAL + 2],
    activation: u32,
    low: f32,
    high: f32,
}

/// A transposed convolution, made for one shape.
pub(crate) struct TransposeConv {
    float: Float,
    args: Args,
    threads: usize,
    /// Whether four channels of the input can be read at once, if its address allows it.
    packs: bool,
}

impl TransposeConv {
    /// From one image to another: input pixel i adds to output pixels i · stride + k · dilation − before. The
    /// bias, where there is one, is f32 if `wide_bias`.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        float: Float,
        x: &Image<'_>,
        out: &Image<'_>,
        window: &Window<'_>,
        weights: &Weights<'_>,
        groups: usize,
        activation: Activation,
        wide_bias: bool,
    ) -> Result<TransposeConv, Unsupported> {
        x.check()?;
        out.check()?;
        let (size, stride) = (in_front(out.size, 1), in_front(window.stride, 1));
        // Whole groups of PIXELS · stride columns, each of which has `stride` threads.
        let step = stride[SPATIAL - 1] as usize;
        let columns = (size[SPATIAL - 1] as usize).div_ceil(step * PIXELS) * step;
        let spatial = in_front(weights.strides, 0).map(|stride| stride as u32);
        let (activation, low, high) = match activation {
            Activation::None => (0, 0.0, 0.0),
            Activation::Clamp(low, high) => (1, low, high),
            Activation::Silu => (2, 0.0, 0.0),
            Activation::HardSwish => (3, 0.0, 0.0),
            Activation::Sigmoid => (4, 0.0, 0.0),
            Activation::Tanh => (5, 0.0, 0.0),
            Activation::GeluErf => (6, 0.0, 0.0),
            Activation::LeakyRelu(slope) => (7, slope, 0.0),
        };
        let threads = out.batch * size[0] as usize * size[1] as usize * columns * out.channels;
        if threads >= 1 << 31 {
            return Err(Unsupported::TooLarge(threads));
        }
        let args = Args {
            x: 0,
            weights: 0,
            bias: 0,
            out: 0,
            threads: threads as u32,
            channels: Divider::new(out.channels),
            columns: Divider::new(columns),
            size: [Divider::new(size[1] as usize), Divider::new(size[0] as usize)],
            group_in: (x.channels / groups.max(1)) as u32,
            group_out: (out.channels / groups.max(1)).max(1) as u32,
            wide_bias: u32::from(wide_bias),
            in_size: in_front(x.size, 1),
            out_size: size,
            window: in_front(window.size, 1),
            dilation: in_front(window.dilation, 1),
            before: in_front(window.before, 0),
            stride: stride.map(|stride| Divider::new(stride as usize)),
            x_strides: x.all_strides(),
            out_strides: out.all_strides(),
            weight_strides: [
                weights.in_stride as u32,
                spatial[0],
                spatial[1],
                spatial[2],
                weights.out_stride as u32,
            ],
            activation,
            low,
            high,
        };
        let packs = x.packs(4) && args.group_in.is_multiple_of(4);
        Ok(TransposeConv { float, args, threads, packs })
    }

    /// Computes it. The output must not overlap what is read.
    ///
    /// # Safety
    /// The tensors lie at these addresses and stay there until the stream has come past the launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch(
        &self,
        queue: Queue<'_>,
        x: CUdeviceptr,
        weights: CUdeviceptr,
        bias: Option<CUdeviceptr>,
        out: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let packed = self.packs && launch::aligned(x, 4 * self.float.bytes());
        let kernel = match (self.float, packed) {
            (Float::F32, false) => "transpose_conv_f32_1",
            (Float::F32, true) => "transpose_conv_f32_4",
            (Float::F16, false) => "transpose_conv_f16_1",
            (Float::F16, true) => "transpose_conv_f16_4",
        };
        let args = Args { x, weights, bias: bias.unwrap_or(0), out, ..self.args };
        // SAFETY: the caller's promise; `args` is the kernel's struct, and the kernel reads inside the image
        // only.
        unsafe { queue.launch(kernel, blocks(self.threads, BLOCK), (BLOCK as u32, 1), 0, &args) }
    }
}

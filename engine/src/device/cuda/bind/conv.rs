//! Convolutions: as products on the matrix units, depthwise ones at memory's speed, transposed ones by gathering.

use super::super::kernels::conv::{Conv, Pixels};
use super::super::kernels::depthwise::{self, Depthwise};
use super::super::kernels::epilogue::{Act, Order, Pointers};
use super::super::kernels::grid::Gpu;
use super::super::kernels::tile::Candidate;
use super::super::kernels::transpose_conv::{Activation, TransposeConv, Weights};
use super::super::launch::{Binder, Kernel, Operands, Ways, none};
use super::choice::Choice;
use super::image::{Axes, Lies, window};
use super::product::{Scratch, within};
use super::tail::Tail;
use super::{float, halves, like, pack_halves, refused};
use crate::device::NoKernel;
use crate::device::weights::Packing;
use crate::graph;
use crate::plan::{Place, Step};
use crate::tensor::DType;
use cudarc::driver::result::DriverError;

/// A convolution on the matrix units.
struct Product {
    conv: Conv,
    choice: Choice<Candidate>,
    scratch_bytes: usize,
    tail: Tail,
}

/// One output channel an input channel.
struct Apart {
    conv: Depthwise,
    choice: Choice<depthwise::Candidate>,
    tail: Tail,
}

/// What a step's operands are to a convolution's launcher.
struct Shape {
    x: Lies,
    y: Lies,
    operand: Pixels,
    tail: Tail,
    /// Pairs are (y, x).
    window: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    before: [i32; 2],
    /// Addresses that lie as those of a run among multiples of 16 bytes.
    like: Pointers,
}

/// An image of one spatial axis is one line.
fn pair(list: &[usize], missing: usize) -> [usize; 2] {
    match *list {
        [rows, columns] => [rows, columns],
        [columns] => [missing, columns],
        _ => [missing; 2],
    }
}

impl Lies {
    /// Strides of images, lines, pixels and channels.
    fn pixels(&self) -> Pixels {
        match self.strides[..] {
            [rows, columns] => [self.batch_stride, rows, columns, self.channel_stride],
            [columns] => [self.batch_stride, columns * self.size[0], columns, self.channel_stride],
            _ => [0; 4],
        }
    }
}

/// What every convolution must be.
fn check(step: &Step, conv: &graph::Conv) -> Result<(), NoKernel> {
    if !matches!(step.inputs[1].place, Place::Constant(_)) {
        return Err(none(step, "weights that are computed"));
    }
    let (x, y, w) = (step.inputs[0].dtype, step.outputs[0].dtype, step.inputs[1].dtype);
    if x != y || w != DType::F32 {
        return Err(none(step, format!("{y} of {x} and weights of {w}")));
    }
    let elements = |shape: &[usize]| shape.iter().product::<usize>();
    let largest = elements(&step.inputs[0].shape).max(elements(&step.outputs[0].shape));
    if largest >= 1 << 31 {
        return Err(none(step, format!("{largest} elements, fewer than 2^31 can be addressed")));
    }
    match conv.window.size.len() {
        1 | 2 => Ok(()),
        axes => Err(none(step, format!("a window of {axes} axes"))),
    }
}

fn shape(step: &Step, conv: &graph::Conv) -> Result<Shape, NoKernel> {
    let (x, y, w) = (&step.inputs[0], &step.outputs[0], &conv.window);
    let axes = Axes::new(&conv.image, w.size.len());
    let tail = Tail::new(step, &conv.epilogue, |_| true)?;
    let operand = tail.operand(step);
    Ok(Shape {
        x: axes.of(x, &x.shape),
        y: axes.of(y, &y.shape),
        operand: operand.map_or([0; 4], |operand| axes.of(operand, &y.shape).pixels()),
        like: Pointers { a: like(x), c: like(y), operand: operand.map_or(0, like), ..Pointers::default() },
        tail,
        window: pair(&w.size, 1),
        stride: pair(&w.stride, 1),
        dilation: pair(&w.dilation, 1),
        before: pair(&w.before, 0).map(|before| before as i32),
    })
}

pub(super) fn bind(step: &Step, conv: &graph::Conv, binder: Binder<'_>) -> Result<Box<dyn Kernel>, NoKernel> {
    check(step, conv)?;
    let shape = shape(step, conv)?;
    let gpu = binder.modules.gpu();
    if conv.groups > 1 && conv.groups == shape.x.channels && conv.groups == shape.y.channels {
        return apart(step, shape, gpu, binder);
    }
    let Shape { x, y, operand, tail, window, stride, dilation, before, like } = shape;
    let conv = Conv {
        precision: binder.product(step, &step.inputs[0])?,
        batch: x.batch,
        input: pair(&x.size, 1),
        output: pair(&y.size, 1),
        in_c: x.channels,
        out_c: y.channels,
        groups: conv.groups,
        window,
        stride,
        dilation,
        before,
        x: x.pixels(),
        y: y.pixels(),
        operand,
        epilogue: tail.epilogue,
    };
    let size = conv.size();
    let (candidates, scratch_bytes) = within(conv.candidates(&like, gpu), &size, binder);
    let made = |candidate: &Candidate| (candidate.kernel(), conv.grid(candidate, gpu));
    let choice = Choice::new(step, binder, &(&conv, &like), candidates, made)?;
    Ok(Box::new(Product { conv, choice, scratch_bytes, tail }))
}

impl Kernel for Product {
    fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    fn packing(&self, input: usize) -> Option<Packing> {
        let packed = self.conv.packed();
        (input == 1).then(|| Packing { form: format!("cuda conv {packed:?}"), bytes: packed.bytes() })
    }

    fn pack(&self, _input: usize, from: &[f32], to: &mut [u8]) {
        // Laid out as [out, window, in].
        let ([height, width], channels) = (self.conv.window, self.conv.in_c / self.conv.groups);
        let weight = |out: usize, channel: usize, y: usize, x: usize| {
            from[((out * height + y) * width + x) * channels + channel]
        };
        self.conv.pack(weight, to);
    }

    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        let (bias, operand) = self.tail.addresses(on);
        let (candidate, grid, function) = self.choice.now()?;
        // SAFETY: the scratch is as large as the largest of the candidates wants.
        let (partials, counters) = unsafe { Scratch::of(candidate, &self.conv.size()).ready(on)? };
        let (a, b, c) = (on.inputs[0], on.inputs[1], on.outputs[0]);
        let pointers = Pointers { a, b, c, bias, operand, partials, counters };
        let args = self.conv.args(candidate, &pointers);
        // SAFETY: the caller's promise; the argument is the kernel's struct.
        unsafe {
            grid.launch(function.0, on.stream(), &args)?;
            self.tail.launch(on)
        }
    }

    fn ways(&self) -> Option<&dyn Ways> {
        Some(&self.choice)
    }
}

fn apart(step: &Step, shape: Shape, gpu: &Gpu, binder: Binder<'_>) -> Result<Box<dyn Kernel>, NoKernel> {
    let Shape { x, y, operand, tail, window, stride, dilation, before, like } = shape;
    let aligned = (like.a | like.c | like.operand) == 0;
    let conv = Depthwise {
        half: step.inputs[0].dtype == DType::F16,
        batch: x.batch,
        channels: x.channels,
        input: pair(&x.size, 1),
        output: pair(&y.size, 1),
        window,
        stride,
        dilation,
        before: before.map(|before| before as usize),
        x: x.pixels(),
        y: y.pixels(),
        operand,
        epilogue: tail.epilogue,
    };
    let made = |candidate: &depthwise::Candidate| (candidate.kernel(), conv.grid(candidate, gpu));
    let choice = Choice::new(step, binder, &(&conv, aligned), conv.candidates(aligned, gpu), made)?;
    Ok(Box::new(Apart { conv, choice, tail }))
}

impl Kernel for Apart {
    fn packing(&self, input: usize) -> Option<Packing> {
        let Depthwise { channels, window, half, .. } = &self.conv;
        let form = || format!("cuda depthwise {channels} × {window:?} {half}");
        (input == 1).then(|| Packing { form: form(), bytes: self.conv.packed_bytes() })
    }

    fn pack(&self, _input: usize, from: &[f32], to: &mut [u8]) {
        let taps = self.conv.window[0] * self.conv.window[1];
        self.conv.pack(|channel, tap| from[channel * taps + tap], to);
    }

    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        let (bias, operand) = self.tail.addresses(on);
        let (a, b, c) = (on.inputs[0], on.inputs[1], on.outputs[0]);
        let pointers = Pointers { a, b, c, bias, operand, ..Pointers::default() };
        let (candidate, grid, function) = self.choice.now()?;
        let args = self.conv.args(candidate, &pointers);
        // SAFETY: the caller's promise; the argument is the kernel's struct.
        unsafe {
            grid.launch(function.0, on.stream(), &args)?;
            self.tail.launch(on)
        }
    }

    fn ways(&self) -> Option<&dyn Ways> {
        Some(&self.choice)
    }
}

/// A transposed convolution.
struct Transposed {
    kernel: TransposeConv,
    /// Elements of the weights that are to be f16.
    halves: Option<usize>,
    tail: Tail,
}

pub(super) fn bind_transpose(step: &Step, conv: &graph::Conv) -> Result<Box<dyn Kernel>, NoKernel> {
    check(step, conv)?;
    let (x, y, w) = (&step.inputs[0], &step.outputs[0], &conv.window);
    let axes = Axes::new(&conv.image, w.size.len());
    let (from, to) = (axes.of(x, &x.shape), axes.of(y, &y.shape));
    // An operand is read by a chain of its own.
    let mut tail = Tail::new(step, &conv.epilogue, |_| false)?;
    let mut activation = activation(tail.epilogue.act);
    if activation.is_none() {
        tail = Tail::whole(step, &conv.epilogue)?;
        activation = Some(Activation::None);
    }
    debug_assert_eq!(tail.epilogue.order, Order::Alone);
    // Laid out as [in, window, out].
    let out_channels = to.channels / conv.groups.max(1);
    let mut strides: Vec<usize> = vec![];
    let mut stride = out_channels;
    for size in w.size.iter().rev() {
        strides.insert(0, stride);
        stride *= size;
    }
    let weights = Weights { in_stride: stride, out_stride: 1, strides: &strides };
    let kernel = TransposeConv::new(
        float(step, x)?,
        &from.image(),
        &to.image(),
        &window(w),
        &weights,
        conv.groups,
        activation.unwrap_or(Activation::None),
        true,
    );
    let halves = (x.dtype == DType::F16).then(|| step.inputs[1].shape.iter().product());
    Ok(Box::new(Transposed { kernel: kernel.map_err(refused(step))?, halves, tail }))
}

/// The activation as the transposed convolution's kernel has it.
fn activation(act: Act) -> Option<Activation> {
    Some(match act {
        Act::None => Activation::None,
        Act::Relu => Activation::Clamp(0.0, f32::INFINITY),
        Act::Clamp(low, high) => Activation::Clamp(low, high),
        Act::LeakyRelu(slope) => Activation::LeakyRelu(slope),
        Act::Sigmoid => Activation::Sigmoid,
        Act::Silu => Activation::Silu,
        Act::HardSwish => Activation::HardSwish,
        Act::Tanh => Activation::Tanh,
        Act::GeluErf => Activation::GeluErf,
        Act::HardSigmoid(..) | Act::GeluTanh => return None,
    })
}

impl Kernel for Transposed {
    fn packing(&self, input: usize) -> Option<Packing> {
        self.halves.filter(|_| input == 1).map(halves)
    }

    fn pack(&self, _input: usize, from: &[f32], to: &mut [u8]) {
        pack_halves(from, to);
    }

    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        let bias = self.tail.epilogue.bias.then(|| on.inputs[2]);
        // SAFETY: the caller's promise.
        unsafe {
            self.kernel.launch(on.queue, on.inputs[0], on.inputs[1], bias, on.outputs[0])?;
            self.tail.launch(on)
        }
    }
}

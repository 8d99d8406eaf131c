//! Convolutions.

use super::super::args::{Args, Columns, Kernel, Packing};
use super::super::kernels::conv::{Conv, ConvTranspose};
use super::super::kernels::matmul::lanes;
use super::epilogue::Tail;
use super::image::image;
use super::none;
use crate::device::NoKernel;
use crate::error::Error;
use crate::graph;
use crate::plan::{Step, pixel_stride};
use smallvec::SmallVec;

struct Convolution<K> {
    kernel: K,
    tail: Tail,
}

impl Kernel for Convolution<Conv> {
    fn scratch_len(&self, threads: usize) -> usize {
        self.kernel.scratch_len(threads)
    }

    fn packing(&self, input: usize) -> Option<Packing> {
        let c = &self.kernel;
        let height = c.kernel_h * c.kernel_w * c.in_c;
        let columns = (c.groups == 1).then(|| Columns { axis: 0, unit: 2 * lanes(), height });
        (input == 1).then(|| Packing { form: form(c), len: c.packed_len(), columns })
    }

    fn pack(&self, _input: usize, columns: Option<usize>, from: &[f32], to: &mut [f32]) {
        Conv { out_c: columns.unwrap_or(self.kernel.out_c), ..self.kernel }.pack(from, to);
    }

    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        let (x, packed, scratch) = (args.source(0).as_slice(), args.constant(1), args.scratch());
        self.tail.run(args, |epilogue| {
            self.kernel.run(x, packed, epilogue, args.target(0).as_mut_slice(), scratch, args.threads);
        });
        Ok(())
    }
}

impl Kernel for Convolution<ConvTranspose> {
    fn scratch_len(&self, threads: usize) -> usize {
        self.kernel.scratch_len(threads)
    }

    fn packing(&self, input: usize) -> Option<Packing> {
        let (form, len) = (format!("transposed {:?} by {}", self.kernel, lanes()), self.kernel.packed_len());
        (input == 1).then_some(Packing { form, len, columns: None })
    }

    fn pack(&self, _input: usize, _columns: Option<usize>, from: &[f32], to: &mut [f32]) {
        self.kernel.pack(from, to);
    }

    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        let (x, packed, scratch) = (args.source(0).as_slice(), args.constant(1), args.scratch());
        self.tail.run(args, |epilogue| {
            self.kernel.run(x, packed, epilogue, args.target(0).as_mut_slice(), scratch, args.threads);
        });
        Ok(())
    }
}

/// What the packed weights depend on.
fn form(c: &Conv) -> String {
    let Conv { kernel_h, kernel_w, in_c, out_c, groups, .. } = c;
    format!("conv {kernel_h} × {kernel_w} × {in_c} → {out_c} in {groups} by {}", lanes())
}

pub(super) fn bind(step: &Step, conv: &graph::Conv) -> Result<Box<dyn Kernel>, NoKernel> {
    Ok(Box::new(Convolution { kernel: shape(step, conv)?, tail: tail(step, conv)? }))
}

pub(super) fn bind_transpose(step: &Step, conv: &graph::Conv) -> Result<Box<dyn Kernel>, NoKernel> {
    let c = shape(step, conv)?;
    let kernel = ConvTranspose {
        batch: c.batch,
        in_h: c.in_h,
        in_w: c.in_w,
        in_c: c.in_c,
        out_h: c.out_h,
        out_w: c.out_w,
        out_c: c.out_c,
        kernel_h: c.kernel_h,
        kernel_w: c.kernel_w,
        stride_h: c.stride_h,
        stride_w: c.stride_w,
        dilation_h: c.dilation_h,
        dilation_w: c.dilation_w,
        pad_top: c.pad_top,
        pad_left: c.pad_left,
        groups: c.groups,
        x_pixel_stride: c.x_pixel_stride,
        out_pixel_stride: c.out_pixel_stride,
    };
    Ok(Box::new(Convolution { kernel, tail: tail(step, conv)? }))
}

/// The axes of batch and space, outermost first, and the channel's.
fn axes(conv: &graph::Conv) -> (SmallVec<[usize; 4]>, [usize; 1]) {
    let spatial = (0..conv.window.size.len()).map(|at| conv.image.spatial + at);
    (conv.image.batch.into_iter().chain(spatial).collect(), [conv.image.channel])
}

fn tail(step: &Step, conv: &graph::Conv) -> Result<Tail, NoKernel> {
    let (rows, columns) = axes(conv);
    Tail::new(step, &conv.epilogue, Some((&rows, &columns)))
}

fn shape(step: &Step, conv: &graph::Conv) -> Result<Conv, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let (rows, columns) = axes(conv);
    let order: SmallVec<[usize; 6]> = rows.iter().chain(&columns).copied().collect();
    let stride = |operand: &crate::plan::Operand| {
        let stride = pixel_stride(&operand.view, &operand.shape, &order);
        stride
            .ok_or_else(|| none(step, format!("an image with strides {:?}", operand.view.strides.as_slice())))
    };
    let (x_pixel_stride, out_pixel_stride) = (stride(x)?, stride(y)?);
    let spatial = &rows[usize::from(conv.image.batch.is_some())..];
    let (from, to) = (
        image(x, conv.image.batch.as_slice(), spatial, Some(conv.image.channel)),
        image(y, conv.image.batch.as_slice(), spatial, Some(conv.image.channel)),
    );
    let w = &conv.window;
    // A window of one axis is a row.
    let pair = |list: &[usize], missing: usize| match *list {
        [rows, columns] => Ok((rows, columns)),
        [columns] => Ok((missing, columns)),
        _ => Err(none(step, format!("a window of {} axes", list.len()))),
    };
    let (kernel_h, kernel_w) = pair(&w.size, 1)?;
    let (stride_h, stride_w) = pair(&w.stride, 1)?;
    let (dilation_h, dilation_w) = pair(&w.dilation, 1)?;
    let (pad_top, pad_left) = pair(&w.before, 0)?;
    Ok(Conv {
        batch: from.count,
        in_h: from.image.height,
        in_w: from.image.width,
        in_c: from.channels,
        out_h: to.image.height,
        out_w: to.image.width,
        out_c: to.channels,
        kernel_h,
        kernel_w,
        stride_h,
        stride_w,
        dilation_h,
        dilation_w,
        pad_top,
        pad_left,
        groups: conv.groups,
        x_pixel_stride,
        out_pixel_stride,
    })
}

//! Pooling and resizing of channels-last images.

use super::super::args::{Args, Kernel};
use super::super::kernels::pool::{Image, Pool, PoolKind, Window};
use super::super::kernels::resize::{Mix, Resize, TAPS};
use super::none;
use crate::device::NoKernel;
use crate::error::Error;
use crate::graph::{self, Taps};
use crate::plan::{Operand, Step};
use smallvec::SmallVec;

/// An operand as images: how many, their channels, and how they lie. Batch axes, outermost first, step as one.
pub(super) fn image(operand: &Operand, batch: &[usize], spatial: &[usize], channel: Option<usize>) -> Images {
    let (shape, strides) = (&operand.shape, &operand.view.strides);
    let channels = channel.map_or(1, |axis| shape[axis]);
    // An image of one axis is one row.
    let (rows, pixels) = match *spatial {
        [rows, pixels] => (Some(rows), Some(pixels)),
        [pixels] => (None, Some(pixels)),
        _ => (None, None),
    };
    let width = pixels.map_or(1, |axis| shape[axis]);
    let height = rows.map_or(1, |axis| shape[axis]);
    // The stride of an axis of size 1 means nothing.
    let stride = |axis: Option<usize>, least: usize| {
        axis.filter(|&axis| shape[axis] > 1).map_or(least, |axis| strides[axis])
    };
    let pixel_stride = stride(pixels, channels);
    let row_stride = stride(rows, pixel_stride * width);
    let innermost = batch.iter().rev().copied().find(|&axis| shape[axis] > 1);
    let image_stride = stride(innermost, row_stride * height);
    let image = Image { height, width, image_stride, row_stride, pixel_stride };
    Images { count: batch.iter().map(|&axis| shape[axis]).product(), channels, image }
}

/// Images as the kernels take them.
pub(super) struct Images {
    pub(super) count: usize,
    pub(super) channels: usize,
    pub(super) image: Image,
}

impl Kernel for Pool {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        self.run(args.source(0), args.target(0), args.threads);
        Ok(())
    }
}

pub(super) fn bind_pool(step: &Step, pool: &graph::Pool) -> Result<Box<dyn Kernel>, NoKernel> {
    let spatial: SmallVec<[usize; 2]> =
        (0..pool.window.size.len()).map(|at| pool.image.spatial + at).collect();
    let channel = Some(pool.image.channel);
    let batch = pool.image.batch.as_slice();
    let x = image(&step.inputs[0], batch, &spatial, channel);
    let y = image(&step.outputs[0], batch, &spatial, channel);
    let w = &pool.window;
    let pair = |of: &dyn Fn(usize) -> usize, missing: usize| match spatial.len() {
        1 => [missing, of(0)],
        _ => [of(0), of(1)],
    };
    let after = |at: usize| {
        let (from, to) = (step.inputs[0].shape[spatial[at]], step.outputs[0].shape[spatial[at]]);
        ((to.max(1) - 1) * w.stride[at] + w.span(at)).saturating_sub(from + w.before[at])
    };
    let window = Window {
        kernel: pair(&|at| w.size[at], 1),
        stride: pair(&|at| w.stride[at], 1),
        dilation: pair(&|at| w.dilation[at], 1),
        before: pair(&|at| w.before[at], 0),
        after: pair(&after, 0),
    };
    let kind = match pool.kind {
        graph::PoolKind::Max => PoolKind::Max,
        graph::PoolKind::Sum => PoolKind::Sum,
        graph::PoolKind::Average => PoolKind::AverageWithPadding,
        graph::PoolKind::AverageInside => PoolKind::Average,
    };
    Ok(Box::new(Pool::new(kind, x.count, x.channels, x.image, y.image, &window)))
}

impl Kernel for Resize {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        self.run(args.source(0), args.target(0), args.threads);
        Ok(())
    }
}

pub(super) fn bind_resize(step: &Step, axes: &[(usize, Taps)]) -> Result<Box<dyn Kernel>, NoKernel> {
    let (from, to) = (&step.inputs[0], &step.outputs[0]);
    if axes.len() > 2 {
        return Err(none(step, format!("{} of {} axes resized", axes.len(), from.shape.len())));
    }
    let resized: SmallVec<[usize; 2]> = axes.iter().map(|(axis, _)| *axis).collect();
    let mut others: SmallVec<[usize; 6]> =
        (0..from.shape.len()).filter(|axis| !resized.contains(axis)).collect();
    let channel = others.pop();
    let (x, y) = (image(from, &others, &resized, channel), image(to, &others, &resized, channel));
    let mut tables = vec![];
    for (_, taps) in axes {
        tables.push(table(step, taps)?);
    }
    let cols = tables.pop().unwrap_or_else(|| vec![still()]);
    let rows = tables.pop().unwrap_or_else(|| vec![still()]);
    Ok(Box::new(Resize::new(x.count, x.channels, x.image, y.image, rows, cols)))
}

fn still() -> Mix {
    Mix { count: 1, weight: [1.0, 0.0, 0.0, 0.0], ..Mix::default() }
}

fn table(step: &Step, taps: &Taps) -> Result<Vec<Mix>, NoKernel> {
    let mix = |pairs: &SmallVec<[(usize, f32); 2]>| {
        if pairs.len() > TAPS {
            return Err(none(step, format!("{} taps", pairs.len())));
        }
        let mut mix = Mix { count: pairs.len(), ..Mix::default() };
        for (at, (index, weight)) in pairs.iter().enumerate() {
            (mix.index[at], mix.weight[at]) = (*index, *weight);
        }
        Ok(mix)
    };
    taps.0.iter().map(mix).collect()
}

//! Operands as images, pooling and resizing.

use super::super::kernels::pool::{Image, Pool, PoolKind, Window};
use super::super::kernels::resize::{Resize, Table};
use super::super::launch::{Kernel, Operands};
use super::{float, refused};
use crate::device::NoKernel;
use crate::graph::{self, Taps};
use crate::plan::{Operand, Step};
use cudarc::driver::result::DriverError;
use smallvec::SmallVec;

/// Which axes of an operand are an image's, as a kernel takes them.
pub(super) struct Axes {
    batch: Option<usize>,
    channel: usize,
    spatial: SmallVec<[usize; 3]>,
}

/// Sizes and strides of an image; strides in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lies {
    pub(super) batch: usize,
    pub(super) channels: usize,
    pub(super) size: SmallVec<[usize; 3]>,
    pub(super) batch_stride: usize,
    pub(super) strides: SmallVec<[usize; 3]>,
    pub(super) channel_stride: usize,
}

impl Axes {
    /// Of a graph's image with so many spatial axes.
    pub(super) fn new(image: &graph::Image, spatial: usize) -> Axes {
        let spatial = (0..spatial).map(|at| image.spatial + at).collect();
        Axes { batch: image.batch, channel: image.channel, spatial }
    }

    /// How an operand lies, by the shape that it is broadcast to.
    pub(super) fn of(&self, operand: &Operand, shape: &[usize]) -> Lies {
        let view = operand.view.broadcast(&operand.shape, shape);
        let channels = shape[self.channel];
        // The stride of an axis of one element means nothing: it is set such that its neighbours step as one.
        let long = |axis: usize| (shape[axis] > 1).then(|| view.strides[axis]);
        let batch = self.batch.map_or(1, |axis| shape[axis]);
        let outer = self.batch.and_then(long);
        let mut strides: SmallVec<[usize; 3]> = SmallVec::new();
        let mut missing = outer;
        for &axis in &self.spatial {
            let stride = long(axis);
            strides.push(stride.or(missing).unwrap_or(usize::MAX));
            missing = stride.or(missing);
        }
        // Axes of one element before the first longer one lie as far apart as all that follows is long.
        let mut whole = channels;
        for (stride, &axis) in strides.iter_mut().zip(&self.spatial).rev() {
            if *stride == usize::MAX {
                *stride = whole;
            }
            whole = whole.max(*stride * shape[axis]);
        }
        Lies {
            batch,
            channels,
            size: self.spatial.iter().map(|axis| shape[*axis]).collect(),
            batch_stride: outer.unwrap_or(whole),
            strides,
            channel_stride: long(self.channel).unwrap_or(1),
        }
    }
}

impl Lies {
    /// As the launchers of windows take it.
    pub(super) fn image(&self) -> Image<'_> {
        Image {
            batch: self.batch,
            size: &self.size,
            channels: self.channels,
            batch_stride: self.batch_stride,
            strides: &self.strides,
            channel_stride: self.channel_stride,
        }
    }
}

/// A graph's window as the launchers take it.
pub(super) fn window(window: &graph::Window) -> Window<'_> {
    Window { size: &window.size, stride: &window.stride, dilation: &window.dilation, before: &window.before }
}

pub(super) fn bind_pool(step: &Step, pool: &graph::Pool) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let axes = Axes::new(&pool.image, pool.window.size.len());
    let kind = match pool.kind {
        graph::PoolKind::Max => PoolKind::Max,
        graph::PoolKind::Sum => PoolKind::Sum,
        graph::PoolKind::Average => PoolKind::Average,
        graph::PoolKind::AverageInside => PoolKind::AverageInside,
    };
    let (from, to) = (axes.of(x, &x.shape), axes.of(y, &y.shape));
    let kernel = Pool::new(kind, float(step, x)?, &from.image(), &to.image(), &window(&pool.window));
    Ok(Box::new(kernel.map_err(refused(step))?))
}

impl Kernel for Pool {
    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { Pool::launch(self, on.queue, on.inputs[0], on.outputs[0]) }
    }
}

pub(super) fn bind_resize(step: &Step, axes: &[(usize, Taps)]) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let tables: Vec<Table<'_, _>> =
        axes.iter().map(|(axis, taps)| Table { axis: *axis, taps: &taps.0 }).collect();
    let (from, to) = (&x.view.strides, &y.view.strides);
    let kernel = Resize::new(float(step, x)?, &x.shape, &y.shape, from, to, &tables);
    Ok(Box::new(kernel.map_err(refused(step))?))
}

impl Kernel for Resize {
    fn table(&self) -> &[u8] {
        self.tables()
    }

    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { Resize::launch(self, on.queue, on.inputs[0], on.table, on.outputs[0]) }
    }
}

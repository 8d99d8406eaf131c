//! Reductions, softmax and norms.

use super::super::kernels::norm::{self, Norm, NormKind};
use super::super::kernels::reduce::{ArgReduce, Reduce, ReduceOp};
use super::super::kernels::softmax::Softmax;
use super::super::launch::{Kernel, Operands, none};
use super::{float, refused};
use crate::device::NoKernel;
use crate::graph::{self, Reducer};
use crate::plan::{Step, View};
use cudarc::driver::result::DriverError;

pub(super) fn bind_reduce(
    step: &Step,
    reducer: Reducer,
    axes: &[usize],
) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let float = float(step, x)?;
    let arg = |min: bool, last: bool| -> Result<Box<dyn Kernel>, NoKernel> {
        let [axis] = *axes else { return Err(none(step, format!("over {} axes at once", axes.len()))) };
        let kernel = ArgReduce::new(min, last, float, &x.shape, axis, &x.view.strides, &y.view.strides);
        Ok(Box::new(kernel.map_err(refused(step))?))
    };
    let op = match reducer {
        Reducer::ArgMax { last } => return arg(false, last),
        Reducer::ArgMin { last } => return arg(true, last),
        Reducer::Sum => ReduceOp::Sum,
        Reducer::Mean => ReduceOp::Mean,
        Reducer::Max => ReduceOp::Max,
        Reducer::Min => ReduceOp::Min,
        Reducer::Product => ReduceOp::Product,
        Reducer::SumOfSquares => ReduceOp::SumOfSquares,
        Reducer::MeanOfSquares => ReduceOp::MeanOfSquares,
    };
    let kernel = Reduce::new(op, float, &x.shape, axes, &x.view.strides, &y.view.strides);
    Ok(Box::new(kernel.map_err(refused(step))?))
}

impl Kernel for Reduce {
    fn scratch_bytes(&self) -> usize {
        Reduce::scratch_bytes(self)
    }

    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { Reduce::launch(self, on.queue, on.inputs[0], on.outputs[0], on.scratch) }
    }
}

impl Kernel for ArgReduce {
    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { ArgReduce::launch(self, on.queue, on.inputs[0], on.outputs[0]) }
    }
}

pub(super) fn bind_softmax(step: &Step, axes: &[usize], log: bool) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let kernel = Softmax::new(float(step, x)?, &x.shape, axes, &x.view.strides, &y.view.strides, log);
    Ok(Box::new(kernel.map_err(refused(step))?))
}

impl Kernel for Softmax {
    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { Softmax::launch(self, on.queue, on.inputs[0], on.outputs[0]) }
    }
}

/// A normalization and which inputs are its scale and shift.
struct Normalization {
    kernel: Norm,
    scale: Option<usize>,
    shift: Option<usize>,
}

impl Kernel for Normalization {
    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        let [scale, shift] = [self.scale, self.shift].map(|at| at.map(|at| on.inputs[at]));
        // SAFETY: the caller's promise.
        unsafe { self.kernel.launch(on.queue, on.inputs[0], scale, shift, on.outputs[0]) }
    }
}

pub(super) fn bind_norm(step: &Step, norm: &graph::Norm) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let scale = norm.scale.then_some(1);
    let shift = norm.shift.then_some(1 + usize::from(norm.scale));
    let view = |at: usize| -> View { step.inputs[at].view.broadcast(&step.inputs[at].shape, &x.shape) };
    let (scale_view, shift_view) = (scale.map(view), shift.map(view));
    let problem = norm::Problem {
        kind: if norm.center { NormKind::Layer } else { NormKind::Rms },
        float: float(step, x)?,
        shape: &x.shape,
        axes: &norm.axes,
        source_strides: &x.view.strides,
        target_strides: &y.view.strides,
        scale_strides: scale_view.as_ref().map(|view| &view.strides[..]),
        shift_strides: shift_view.as_ref().map(|view| &view.strides[..]),
        wide_parameters: true,
        epsilon: norm.epsilon,
    };
    let kernel = Norm::new(&problem).map_err(refused(step))?;
    Ok(Box::new(Normalization { kernel, scale, shift }))
}

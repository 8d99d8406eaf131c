//! Reductions, softmax and norms.

use super::super::args::{Args, Kernel};
use super::super::kernels::norm::{Norm, NormKind};
use super::super::kernels::reduce::{ArgReduce, Reduce, ReduceOp};
use super::super::kernels::softmax::Softmax;
use super::none;
use crate::device::NoKernel;
use crate::error::Error;
use crate::graph::{self, Reducer};
use crate::plan::{Operand, Step};

impl Kernel for Reduce {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        self.run(args.source(0), args.target(0), args.threads);
        Ok(())
    }
}

pub(super) fn bind_reduce(
    step: &Step,
    reducer: Reducer,
    axes: &[usize],
) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let arg = |min: bool, last: bool| -> Result<Box<dyn Kernel>, NoKernel> {
        let [axis] = *axes else { return Err(none(step, format!("over {} axes at once", axes.len()))) };
        Ok(Box::new(ArgReduce::new(min, last, &x.shape, axis, &x.view.strides, &y.view.strides)))
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
    Ok(Box::new(Reduce::new(op, &x.shape, axes, &x.view.strides, &y.view.strides)))
}

impl Kernel for ArgReduce {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        self.run(args.source(0), args.target(0), args.threads);
        Ok(())
    }
}

impl Kernel for Softmax {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        self.run(args.source(0), args.target(0), args.threads);
        Ok(())
    }
}

pub(super) fn bind_softmax(step: &Step, axes: &[usize], log: bool) -> Result<Box<dyn Kernel>, NoKernel> {
    let [axis] = *axes else { return Err(none(step, format!("over {} axes at once", axes.len()))) };
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    Ok(Box::new(Softmax::new(&x.shape, axis, &x.view.strides, &y.view.strides, log)))
}

/// A normalization and which inputs are its scale and shift.
struct Normalization {
    kernel: Norm,
    scale: Option<usize>,
    shift: Option<usize>,
}

impl Kernel for Normalization {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        let (scale, shift) = (self.scale.map(|at| args.source(at)), self.shift.map(|at| args.source(at)));
        self.kernel.run(args.source(0), scale, shift, args.target(0), args.threads);
        Ok(())
    }
}

pub(super) fn bind_norm(step: &Step, norm: &graph::Norm) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let scale = norm.scale.then_some(1);
    let shift = norm.shift.then_some(1 + usize::from(norm.scale));
    let strides = |at: usize| {
        let operand: &Operand = &step.inputs[at];
        operand.view.broadcast(&operand.shape, &x.shape).strides
    };
    let kind = if norm.center { NormKind::Layer } else { NormKind::Rms };
    let kernel = Norm::new(
        kind,
        &x.shape,
        &norm.axes,
        &x.view.strides,
        &y.view.strides,
        scale.map(strides).as_deref(),
        shift.map(strides).as_deref(),
        norm.epsilon,
    );
    Ok(Box::new(Normalization { kernel, scale, shift }))
}

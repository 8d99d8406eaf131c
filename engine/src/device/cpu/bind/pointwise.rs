//! Chains, as steps of their own.

use super::super::args::{Args, Kernel};
use super::super::kernels::pointwise::{Input, Load, Operand, Output, Pointwise, Store};
use super::none;
use crate::device::NoKernel;
use crate::error::Error;
use crate::graph::Chain;
use crate::plan::{self, Step};
use crate::tensor::DType;
use smallvec::SmallVec;

/// A chain over operands of any layout.
pub(super) struct Whole {
    kernel: Pointwise,
    loads: SmallVec<[Load; 4]>,
    store: Store,
}

pub(super) fn bind(step: &Step, chain: &Chain) -> Result<Box<dyn Kernel>, NoKernel> {
    let operands: Vec<&plan::Operand> = step.inputs.iter().collect();
    Ok(Box::new(Whole::new(step, chain, &operands)?))
}

impl Whole {
    /// A chain over these operands, which makes the step's output.
    pub(super) fn new(step: &Step, chain: &Chain, operands: &[&plan::Operand]) -> Result<Whole, NoKernel> {
        let output = &step.outputs[0];
        let loads = operands.iter().map(|operand| match operand.dtype {
            DType::F32 => Ok(Load::F32),
            DType::I32 => Ok(Load::I32),
            DType::Bool => Ok(Load::Bool),
            other => Err(none(step, format!("an operand of {other}"))),
        });
        let loads = loads.collect::<Result<SmallVec<[Load; 4]>, NoKernel>>()?;
        let store = match output.dtype {
            DType::F32 => Store::F32,
            DType::Bool => Store::Bool,
            other => return Err(none(step, format!("a result of {other}"))),
        };
        let strides: Vec<plan::View> =
            operands.iter().map(|operand| operand.view.broadcast(&operand.shape, &output.shape)).collect();
        let bound: Vec<Operand<'_>> = strides
            .iter()
            .zip(&loads)
            .map(|(view, &dtype)| Operand { strides: &view.strides, dtype })
            .collect();
        let kernel = Pointwise::new(chain, &output.shape, &bound, &output.view.strides, store);
        let kernel = kernel.map_err(|error| none(step, error.to_string()))?;
        Ok(Whole { kernel, loads, store })
    }

    /// Runs the chain; `at` tells which input of the step each operand is, `None` for the output itself.
    pub(super) fn run(&self, args: &Args<'_>, at: impl Iterator<Item = Option<usize>>) {
        let inputs: SmallVec<[Input<'_>; 8]> = at
            .zip(&self.loads)
            .map(|(at, load)| match (at, load) {
                (Some(at), Load::F32) => Input::F32(args.source(at)),
                (Some(at), Load::I32) => Input::I32(args.source(at)),
                (Some(at), Load::Bool) => Input::Bool(args.source(at)),
                (None, _) => Input::F32(args.written()),
            })
            .collect();
        let output = match self.store {
            Store::F32 => Output::F32(args.target(0)),
            Store::Bool => Output::Bool(args.target(0)),
        };
        self.kernel.run(&inputs, output, args.threads);
    }
}

impl Kernel for Whole {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        Whole::run(self, args, (0..self.loads.len()).map(Some));
        Ok(())
    }
}

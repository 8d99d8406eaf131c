//! Chains, as steps of their own and after products.

use super::super::kernels::pointwise::{self, Elements, Pointwise};
use super::super::launch::{Kernel, Operands};
use super::refused;
use crate::device::NoKernel;
use crate::graph::Chain;
use crate::plan::{Operand, Step, View};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;

struct Whole(Pointwise);

pub(super) fn bind(step: &Step, chain: &Chain) -> Result<Box<dyn Kernel>, NoKernel> {
    let operands: Vec<&Operand> = step.inputs.iter().collect();
    Ok(Box::new(Whole(chain_over(step, chain, &operands)?)))
}

/// A chain over these operands, which makes the step's output.
pub(super) fn chain_over(step: &Step, chain: &Chain, operands: &[&Operand]) -> Result<Pointwise, NoKernel> {
    let output = &step.outputs[0];
    let views: Vec<View> =
        operands.iter().map(|operand| operand.view.broadcast(&operand.shape, &output.shape)).collect();
    let mut bound: SmallVec<[pointwise::Operand<'_>; 4]> = SmallVec::new();
    for (operand, view) in operands.iter().zip(&views) {
        let elements = Elements::of(operand.dtype).map_err(refused(step))?;
        bound.push(pointwise::Operand { strides: &view.strides, elements });
    }
    let store = Elements::of(output.dtype).map_err(refused(step))?;
    Pointwise::new(chain, &output.shape, &bound, &output.view.strides, store).map_err(refused(step))
}

impl Kernel for Whole {
    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        let inputs: SmallVec<[CUdeviceptr; 12]> = on.inputs.iter().copied().collect();
        // SAFETY: the caller's promise; the plan overwrites an operand only where it lies as the output does.
        unsafe { self.0.launch(on.queue, &inputs, on.outputs[0]) }
    }
}

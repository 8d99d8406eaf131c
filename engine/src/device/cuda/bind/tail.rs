//! What follows a product: in registers where the kernels can, else a chain over the output, in place.

use super::super::kernels::epilogue::{Epilogue, Order};
use super::super::kernels::pointwise::Pointwise;
use super::super::launch::Operands;
use super::ending::ending;
use super::pointwise::chain_over;
use crate::device::NoKernel;
use crate::graph;
use crate::plan::{Operand, Place, Step};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;

/// How a step's epilogue is computed.
pub(super) struct Tail {
    /// What the product's kernel does.
    pub(super) epilogue: Epilogue,
    /// Which input the kernel's further operand is.
    operand: Option<usize>,
    /// What follows it.
    after: Option<Box<Pointwise>>,
    /// Which input the chain's second operand is.
    first: usize,
}

impl Tail {
    /// The epilogue of a step; `fits` says whether the product's kernel can read an operand next to the output.
    pub(super) fn new(
        step: &Step,
        epilogue: &graph::Epilogue,
        fits: impl Fn(&Operand) -> bool,
    ) -> Result<Tail, NoKernel> {
        if let Some(ending) = epilogue.chain.as_ref().and_then(ending) {
            let (first, alone) = (first_operand(epilogue), ending.order == Order::Alone);
            if alone
                || step
                    .inputs
                    .get(first)
                    .is_some_and(|other| other.dtype == step.outputs[0].dtype && fits(other))
            {
                let epilogue = Epilogue { bias: epilogue.bias, act: ending.act, order: ending.order };
                return Ok(Tail { epilogue, operand: (!alone).then_some(first), after: None, first });
            }
        }
        Tail::whole(step, epilogue)
    }

    /// The epilogue of a step with nothing but the bias in the product's kernel.
    pub(super) fn whole(step: &Step, epilogue: &graph::Epilogue) -> Result<Tail, NoKernel> {
        let first = first_operand(epilogue);
        let mut tail = Tail {
            epilogue: Epilogue { bias: epilogue.bias, ..Epilogue::default() },
            operand: None,
            after: None,
            first,
        };
        let Some(chain) = &epilogue.chain else { return Ok(tail) };
        let all: Vec<&Operand> = step.outputs.iter().take(1).chain(&step.inputs[first..]).collect();
        tail.after = Some(Box::new(chain_over(step, chain, &all)?));
        Ok(tail)
    }

    /// The kernel's further operand.
    pub(super) fn operand<'a>(&self, step: &'a Step) -> Option<&'a Operand> {
        self.operand.map(|at| &step.inputs[at])
    }

    /// The addresses of bias and further operand, 0 where there is none.
    pub(super) fn addresses(&self, on: &Operands<'_>) -> (CUdeviceptr, CUdeviceptr) {
        let bias = if self.epilogue.bias { on.inputs[2] } else { 0 };
        (bias, self.operand.map_or(0, |at| on.inputs[at]))
    }

    /// Launches what the product's kernel has left.
    ///
    /// # Safety
    /// As for a step's launch.
    ///
    /// # Errors
    /// The driver's.
    pub(super) unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        let Some(after) = &self.after else { return Ok(()) };
        let inputs: SmallVec<[CUdeviceptr; 12]> =
            on.outputs.iter().take(1).chain(&on.inputs[self.first..]).copied().collect();
        // SAFETY: the caller's promise; the first operand is the output itself.
        unsafe { after.launch(on.queue, &inputs, on.outputs[0]) }
    }
}

/// Whether the step's bias is computed. Kernels read it before they wait for the launch ahead, so that it must not begin
/// early then.
pub(super) fn bias_is_computed(step: &Step, epilogue: &graph::Epilogue) -> bool {
    epilogue.bias && step.inputs.get(2).is_some_and(|bias| !matches!(bias.place, Place::Constant(_)))
}

/// Which input the chain's second operand is.
fn first_operand(epilogue: &graph::Epilogue) -> usize {
    2 + usize::from(epilogue.bias)
}

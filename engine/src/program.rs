//! A model made ready for one set of input shapes, and the workspace that a worker runs it in.

use crate::arena::Arena;
use crate::device::Runnable;
pub use crate::device::Workspace;
use crate::error::Error;
use crate::import::{Panicked, Reference, Signature, caught};
use crate::plan::{Plan, Report};
use crate::slab::Reservation;
use crate::tensor::{Shape, Tensor, volume};
use std::sync::Arc;

/// How a program computes.
pub(crate) enum Executor {
    /// Step by step, as planned.
    Planned(Box<dyn Runnable>),
    /// As tract's own plan; the text says why the model is not planned, where nobody asked for this.
    Whole(Reference, Option<String>),
}

/// A model compiled for one set of input shapes; shared by every worker that runs it.
pub struct Program {
    owner: String,
    signature: Arc<Signature>,
    shapes: Vec<Shape>,
    executor: Executor,
    arena: Arc<Arena>,
    /// Host memory, held as long as anyone holds the program.
    _host: Option<Reservation>,
}

impl Program {
    pub(crate) fn new(
        owner: &str,
        signature: Arc<Signature>,
        shapes: Vec<Shape>,
        executor: Executor,
        arena: Arc<Arena>,
        host: Option<Reservation>,
    ) -> Program {
        Program { owner: owner.into(), signature, shapes, executor, arena, _host: host }
    }

    /// The model that it belongs to, as the ledger names it.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The shapes that the inputs must have, in the signature's order.
    pub fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// Bytes of workspace that a run takes.
    pub fn workspace_bytes(&self) -> usize {
        self.executor.workspace_bytes()
    }

    /// Bytes of weights and other constants, those that other programs of the model share included.
    pub fn constant_bytes(&self) -> usize {
        self.executor.constant_bytes()
    }

    /// The plan; `None` where the model is run whole.
    pub fn plan(&self) -> Option<&Plan> {
        match &self.executor {
            Executor::Planned(program) => Some(program.plan()),
            Executor::Whole(..) => None,
        }
    }

    /// Bytes of an output; `None` where they are not known before the run.
    pub fn output_bytes(&self, index: usize) -> Option<usize> {
        let output = self.plan()?.layout.outputs.get(index)?;
        volume(&output.shape)?.checked_mul(output.dtype.size_bytes()?)
    }

    /// The plan's figures; `None` where the model is run whole.
    pub fn report(&self) -> Option<Report> {
        self.plan().map(|plan| Report::new(plan, self.constant_bytes() as u64))
    }

    /// Why the model is not planned but run whole.
    pub fn unplanned(&self) -> Option<&str> {
        match &self.executor {
            Executor::Planned(_) => None,
            Executor::Whole(_, reason) => Some(reason.as_deref().unwrap_or("as was asked for")),
        }
    }

    /// Runs the program in `workspace` on `inputs`, in the signature's order, and puts the outputs, in the
    /// signature's order, into `outputs`.
    ///
    /// # Errors
    /// An input has another dtype or shape than the program was made for, or the run fails on these values; program
    /// and workspace stay usable.
    pub fn run(
        &self,
        workspace: &mut Workspace,
        inputs: &[Tensor],
        outputs: &mut Vec<Tensor>,
    ) -> Result<(), Error> {
        self.check(inputs)?;
        match &self.executor {
            Executor::Whole(reference, _) => workspace.host.scope(|| reference.run(inputs, outputs)),
            Executor::Planned(program) => {
                let Workspace { lane, host } = workspace;
                lane.at_least(self.workspace_bytes())?;
                let run = || program.run(lane.as_mut(), inputs, outputs, self.arena.tick());
                // A worker must outlive a fault in a kernel.
                host.scope(|| caught(run)).unwrap_or_else(|Panicked(reason)| Err(Error::Fault { reason }))
            }
        }
    }

    fn check(&self, inputs: &[Tensor]) -> Result<(), Error> {
        if inputs.len() != self.shapes.len() {
            return Err(Error::InputCount { expected: self.shapes.len(), got: inputs.len() });
        }
        for ((port, shape), tensor) in self.signature.inputs.iter().zip(&self.shapes).zip(inputs) {
            port.check(tensor.dtype(), tensor.shape())?;
            if tensor.shape() != shape.as_slice() {
                return Err(Error::Mismatch(crate::import::Mismatch::Shape {
                    input: port.name.clone(),
                    expected: format!("{:?}", shape.as_slice()),
                    got: tensor.shape().to_vec(),
                }));
            }
        }
        Ok(())
    }
}

impl Executor {
    pub(crate) fn workspace_bytes(&self) -> usize {
        match self {
            Executor::Planned(program) => program.plan().workspace_bytes as usize,
            Executor::Whole(reference, _) => reference.live_peak_bytes,
        }
    }

    pub(crate) fn constant_bytes(&self) -> usize {
        match self {
            Executor::Planned(program) => program.weights_bytes(),
            Executor::Whole(reference, _) => reference.constant_bytes,
        }
    }
}

#[cfg(test)]
mod tests;

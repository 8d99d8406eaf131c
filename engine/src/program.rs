//! A model made ready for one set of input shapes, and the workspace that a worker runs it in.

use crate::arena::Arena;
pub use crate::device::StepTime;
pub use crate::device::Workspace;
use crate::device::{Batch, Runnable};
use crate::error::Error;
use crate::import::{Panicked, Reference, Signature, caught};
use crate::plan::{Plan, Report};
use crate::slab::Reservation;
use crate::tensor::{Shape, Tensor, volume};
use std::sync::Arc;
use std::time::Duration;

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

    /// Bytes of workspace that a run takes of its lane: none where the model is run whole, in memory of the host.
    pub fn lane_bytes(&self) -> usize {
        if self.plan().is_some() { self.workspace_bytes() } else { 0 }
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
            Executor::Whole(reference, _) => reference.run(inputs, outputs),
            Executor::Planned(program) => {
                outputs.clear();
                self.planned(&**program, workspace, Batch::one(&inputs), std::slice::from_mut(outputs))
            }
        }
    }

    /// Runs the program once for several requests, or for one of fewer rows than it has room for: each brings its inputs in
    /// the signature's order, whose first axes are its rows, and gets its outputs, in the order of the requests.
    ///
    /// # Errors
    /// The inputs of a request are not some rows of what the program was made for, together they are more than it has
    /// ([`Program::rows`]), or the run fails on these values; program and workspace stay usable.
    pub fn run_together(
        &self,
        workspace: &mut Workspace,
        requests: &[&[Tensor]],
    ) -> Result<Vec<Vec<Tensor>>, Error> {
        let mut outputs = vec![vec![]; requests.len()];
        let alone = requests.first().filter(|inputs| requests.len() == 1 && self.check(inputs).is_ok());
        match (&self.executor, alone, outputs.first_mut()) {
            (_, Some(inputs), Some(outputs)) => self.run(workspace, inputs, outputs)?,
            (Executor::Planned(program), ..) => {
                self.check_rows(requests)?;
                self.planned(&**program, workspace, Batch::shared(requests), &mut outputs)?;
            }
            (Executor::Whole(..), ..) => {
                requests.iter().try_for_each(|inputs| self.check(inputs))?;
                let reason = "requests were brought together for a model that is run whole".into();
                return Err(Error::Fault { reason });
            }
        }
        Ok(outputs)
    }

    /// Rows that a run has room for: the first axis of every input and every output; `None` where those differ or there
    /// is one without axes, so that no two requests can be run together, or where the model is run whole.
    pub fn rows(&self) -> Option<usize> {
        let layout = &self.plan()?.layout;
        let rows = *self.shapes.first()?.first()?;
        let ports = self.shapes.iter().chain(layout.outputs.iter().map(|output| &output.shape));
        ports.map(|shape| shape.first()).all(|first| first == Some(&rows)).then_some(rows)
    }

    /// How long each step takes in a workspace that has run the program; `None` where the device does not tell, or the model
    /// is run whole.
    ///
    /// # Errors
    /// The device's.
    pub fn step_times(&self, workspace: &mut Workspace) -> Result<Option<Vec<StepTime>>, Error> {
        let Executor::Planned(program) = &self.executor else { return Ok(None) };
        workspace.lane.at_least(self.workspace_bytes())?;
        program.step_times(workspace.lane.as_mut(), self.arena.tick())
    }

    /// How long runs take whose inputs and outputs stay in the device's memory, timed for as long as `limit` says; `None`
    /// where the device has no memory of its own, or the model is run whole.
    ///
    /// # Errors
    /// As for [`Program::run`].
    pub fn resident_times(
        &self,
        workspace: &mut Workspace,
        inputs: &[Tensor],
        limit: Duration,
    ) -> Result<Option<Vec<Duration>>, Error> {
        self.check(inputs)?;
        let Executor::Planned(program) = &self.executor else { return Ok(None) };
        workspace.lane.at_least(self.workspace_bytes())?;
        program.resident_times(workspace.lane.as_mut(), Batch::one(&inputs), self.arena.tick(), limit)
    }

    fn planned(
        &self,
        program: &dyn Runnable,
        workspace: &mut Workspace,
        batch: Batch<'_>,
        outputs: &mut [Vec<Tensor>],
    ) -> Result<(), Error> {
        let lane = &mut workspace.lane;
        lane.at_least(self.workspace_bytes())?;
        let run = || program.run(lane.as_mut(), batch, outputs, self.arena.tick());
        // A worker must outlive a fault in a kernel.
        caught(run).unwrap_or_else(|Panicked(reason)| Err(Error::Fault { reason }))
    }

    /// Some rows of what the program was made for, and not more than it has.
    fn check_rows(&self, requests: &[&[Tensor]]) -> Result<(), Error> {
        let room = self.rows().unwrap_or(0);
        let mut rows = 0;
        for inputs in requests {
            let mine = inputs.first().and_then(|tensor| tensor.shape().first()).copied().unwrap_or(0);
            let mut shapes = self.shapes.clone();
            shapes.iter_mut().filter_map(|shape| shape.first_mut()).for_each(|first| *first = mine);
            self.check_against(inputs, &shapes)?;
            rows += mine;
        }
        if rows > room {
            return Err(Error::Fault { reason: format!("{rows} rows for a run that has room for {room}") });
        }
        Ok(())
    }

    fn check(&self, inputs: &[Tensor]) -> Result<(), Error> {
        self.check_against(inputs, &self.shapes)
    }

    fn check_against(&self, inputs: &[Tensor], shapes: &[Shape]) -> Result<(), Error> {
        if inputs.len() != self.shapes.len() {
            return Err(Error::InputCount { expected: self.shapes.len(), got: inputs.len() });
        }
        for ((port, shape), tensor) in self.signature.inputs.iter().zip(shapes).zip(inputs) {
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

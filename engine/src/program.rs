//! A model made ready for one set of input shapes, and the workspace that a worker runs it in.

use crate::error::Error;
use crate::import::{Reference, Signature, Threads};
use crate::slab::Reservation;
use crate::tensor::{Shape, Tensor};
use std::sync::Arc;

/// A model compiled for one set of input shapes; shared by every worker that runs it.
pub struct Program {
    signature: Arc<Signature>,
    shapes: Vec<Shape>,
    reference: Reference,
    /// Held as long as anyone holds the program.
    _bytes: Reservation,
}

impl Program {
    pub(crate) fn new(
        signature: Arc<Signature>,
        shapes: Vec<Shape>,
        reference: Reference,
        bytes: Reservation,
    ) -> Program {
        Program { signature, shapes, reference, _bytes: bytes }
    }

    /// The shapes that the inputs must have, in the signature's order.
    pub fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// Bytes of values alive at once during a run, at their peak.
    pub fn workspace_bytes(&self) -> usize {
        self.reference.live_peak_bytes
    }

    /// Bytes of weights and other constants that the program's plan holds.
    pub fn constant_bytes(&self) -> usize {
        self.reference.constant_bytes
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
        workspace.threads.scope(|| self.reference.run(inputs, outputs))
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

/// What a lane runs programs with: its threads.
pub struct Workspace {
    threads: Threads,
}

impl Workspace {
    /// A workspace whose runs use `threads` threads inside an op (1: the caller's own).
    ///
    /// # Errors
    /// The threads cannot be started.
    pub fn new(threads: usize) -> Result<Workspace, Error> {
        Ok(Workspace { threads: Threads::new(threads)? })
    }
}

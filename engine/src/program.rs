//! A model made ready for one set of input shapes, and the workspace that a worker runs it in.

use crate::error::Error;
use crate::import::{Reference, ReferenceState, Signature, Threads};
use crate::slab::Reservation;
use crate::tensor::{Shape, Tensor};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A model compiled for one set of input shapes; shared by every worker that runs it.
pub struct Program {
    id: u64,
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
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Program { id, signature, shapes, reference, _bytes: bytes }
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
    /// An input has another dtype or shape than the program was made for, or the run fails on these values; the
    /// workspace stays usable.
    pub fn run(
        &self,
        workspace: &mut Workspace,
        inputs: &[Tensor],
        outputs: &mut Vec<Tensor>,
    ) -> Result<(), Error> {
        self.check(inputs)?;
        let mut state = match workspace.states.pop(&self.id) {
            Some(state) => state,
            None => self.reference.state()?,
        };
        let result = workspace.threads.scope(|| self.reference.run(&mut state, inputs, outputs));
        // A state that failed half way through may hold anything: the next run makes a new one.
        if result.is_ok() {
            workspace.states.put(self.id, state);
        }
        result
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

/// What one worker keeps between runs: its threads, and the states of the programs that it ran last.
pub struct Workspace {
    threads: Threads,
    states: LruCache<u64, ReferenceState>,
}

impl Workspace {
    /// States kept; one more evicts the least recently used, which costs its program some microseconds.
    const STATES: NonZeroUsize = NonZeroUsize::new(32).unwrap();

    /// A workspace whose runs use `threads` threads inside an op (1: the caller's own).
    ///
    /// # Errors
    /// The threads cannot be started.
    pub fn new(threads: usize) -> Result<Workspace, Error> {
        let threads = Threads::new(threads)?;
        Ok(Workspace { threads, states: LruCache::new(Workspace::STATES) })
    }
}

//! A program that computes nothing: what is left of a request is the time of whoever asks for it.

use super::{Batch, Lane, Runnable};
use crate::error::Error;
use crate::plan::Plan;
use crate::tensor::Tensor;

/// Another device's program whose steps are left out; its outputs are zeros.
pub(crate) struct Null {
    program: Box<dyn Runnable>,
    /// As many as the largest output has.
    zeros: Vec<u8>,
}

impl Null {
    /// Takes the place of a program, whose plan and weights stay.
    pub(crate) fn of(program: Box<dyn Runnable>) -> Null {
        let largest = program.plan().layout.outputs.iter().map(|output| output.bytes()).max();
        Null { program, zeros: vec![0; largest.unwrap_or(0)] }
    }
}

impl Runnable for Null {
    fn plan(&self) -> &Plan {
        self.program.plan()
    }

    fn weights_bytes(&self) -> usize {
        self.program.weights_bytes()
    }

    fn run(
        &self,
        _lane: &mut dyn Lane,
        batch: Batch<'_>,
        outputs: &mut [Vec<Tensor>],
        _now: u64,
    ) -> Result<(), Error> {
        for operand in &self.plan().layout.outputs {
            batch.scatter(operand.dtype, &operand.shape, &self.zeros[..operand.bytes()], outputs)?;
        }
        Ok(())
    }
}

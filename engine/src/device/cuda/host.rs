//! Host steps: the operands are copied out of the workspace into tensors, and the results back.

use super::pinned::{Pinned, Stream};
use super::transfers;
use crate::error::Error;
use crate::graph::HostStep;
use crate::plan::{Operand, Step};
use crate::tensor::{DType, Shape, Tensor};
use cudarc::driver::sys::CUdeviceptr;
use std::sync::Arc;

/// A step that runs on the host.
pub(super) struct Host {
    step: Arc<dyn HostStep>,
    inputs: Vec<(DType, Shape)>,
    outputs: Vec<(DType, Shape)>,
    name: String,
}

impl Host {
    /// The work of a host step.
    pub(super) fn new(step: &Step, host: &Arc<dyn HostStep>) -> Host {
        let facts = |operands: &[Operand]| operands.iter().map(|o| (o.dtype, o.shape.clone())).collect();
        Host {
            step: Arc::clone(host),
            inputs: facts(&step.inputs),
            outputs: facts(&step.outputs),
            name: step.name.clone(),
        }
    }

    /// Waits for what the stream has, and computes.
    ///
    /// # Errors
    /// What went wrong in the stream before, or the library's words.
    pub(super) fn run(
        &self,
        from: &[CUdeviceptr],
        to: &[CUdeviceptr],
        pinned: &mut Pinned,
        stream: &Stream,
    ) -> Result<(), Error> {
        stream.wait()?;
        let mut inputs = vec![];
        for ((dtype, shape), from) in self.inputs.iter().zip(from) {
            let mut bytes = vec![0; shape.iter().product::<usize>() * dtype.size_bytes().unwrap_or(1)];
            transfers::fetch(*from, &mut bytes, pinned, stream)?;
            inputs.push(Tensor::plain(*dtype, shape.clone(), bytes.into())?);
        }
        let mut outputs = vec![];
        self.step.run(&inputs, &mut outputs)?;
        for ((fact, tensor), to) in self.outputs.iter().zip(&outputs).zip(to) {
            let made =
                tensor.as_bytes().filter(|_| tensor.dtype() == fact.0 && tensor.shape() == fact.1.as_slice());
            let made = made.ok_or_else(|| Error::Run {
                reason: format!(
                    "`{}` made {} {:?}, planned were {} {:?}",
                    self.name,
                    tensor.dtype(),
                    tensor.shape(),
                    fact.0,
                    fact.1
                ),
            })?;
            transfers::bring(made, *to, pinned, stream)?;
        }
        Ok(())
    }
}

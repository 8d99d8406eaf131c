//! Host steps, to every device: tensors of the planned dtypes and shapes go in, and what comes out is held against the
//! plan. How the bytes get there and back is the device's.

use crate::error::Error;
use crate::graph::HostStep;
use crate::plan::{Operand, Step};
use crate::tensor::{DType, Shape, Tensor};
use bytes::Bytes;
use std::sync::Arc;

/// A step that runs on the host.
pub(super) struct Host {
    step: Arc<dyn HostStep>,
    inputs: Vec<Fact>,
    outputs: Vec<Fact>,
    name: String,
}

/// What an operand is.
type Fact = (DType, Shape);

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

    /// Computes on what `bring` gives for each input, by its place and how many bytes it has, and hands each result to
    /// `take`.
    ///
    /// # Errors
    /// The importer's library's words; a result that is not what was planned; or what `bring` or `take` answer.
    pub(super) fn run(
        &self,
        mut bring: impl FnMut(usize, usize) -> Result<Bytes, Error>,
        mut take: impl FnMut(usize, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut inputs = vec![];
        for (at, (dtype, shape)) in self.inputs.iter().enumerate() {
            let bytes = shape.iter().product::<usize>() * dtype.size_bytes().unwrap_or(1);
            inputs.push(Tensor::plain(*dtype, shape.clone(), bring(at, bytes)?)?);
        }
        let mut outputs = vec![];
        self.step.run(&inputs, &mut outputs)?;
        for (at, (fact, tensor)) in self.outputs.iter().zip(&outputs).enumerate() {
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
            take(at, made)?;
        }
        Ok(())
    }
}

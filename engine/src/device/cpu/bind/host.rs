//! Host steps: the operands are copied into tensors, and the results back.

use super::super::args::{Args, Kernel};
use crate::error::Error;
use crate::graph::HostStep;
use crate::plan::Step;
use crate::tensor::{DType, Shape, Tensor};
use bytes::Bytes;
use std::sync::Arc;

struct Host {
    step: Arc<dyn HostStep>,
    inputs: Vec<(DType, Shape)>,
    outputs: Vec<(DType, Shape)>,
    name: String,
}

/// The kernel that runs a host step.
pub(super) fn bind(step: &Step, host: &Arc<dyn HostStep>) -> Box<dyn Kernel> {
    let facts =
        |operands: &[crate::plan::Operand]| operands.iter().map(|o| (o.dtype, o.shape.clone())).collect();
    Box::new(Host {
        step: Arc::clone(host),
        inputs: facts(&step.inputs),
        outputs: facts(&step.outputs),
        name: step.name.clone(),
    })
}

fn bytes((dtype, shape): &(DType, Shape)) -> usize {
    shape.iter().product::<usize>() * dtype.size_bytes().unwrap_or(1)
}

impl Kernel for Host {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        let mut inputs = vec![];
        for (at, fact) in self.inputs.iter().enumerate() {
            let source = args.bytes(at, bytes(fact));
            inputs.push(Tensor::plain(fact.0, fact.1.clone(), Bytes::copy_from_slice(source))?);
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
            args.bytes_mut(at, made.len()).copy_from_slice(made);
        }
        Ok(())
    }
}

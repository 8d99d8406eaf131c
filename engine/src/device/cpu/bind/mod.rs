//! A step → the kernel that computes it, bound to the shapes and strides of its operands.

mod attention;
mod conv;
mod epilogue;
mod host;
mod image;
mod moves;
mod pointwise;
mod product;
mod rows;

use super::args::Kernel;
use crate::device::NoKernel;
use crate::device::host::Host;
use crate::graph::Op;
use crate::plan::Step;

/// The kernel for a step.
///
/// # Errors
/// There is none: an earlier stage let something through.
pub(super) fn bind(step: &Step) -> Result<Box<dyn Kernel>, NoKernel> {
    match &step.op {
        Op::Conv(op) => conv::bind(step, op),
        Op::ConvTranspose(op) => conv::bind_transpose(step, op),
        Op::Einsum(einsum) => product::bind(step, einsum),
        Op::Attention(op) => attention::bind(step, op),
        Op::Pointwise(chain) => pointwise::bind(step, chain),
        Op::Reduce(reducer, axes) => rows::bind_reduce(step, *reducer, axes),
        Op::Softmax { axes, log } => rows::bind_softmax(step, axes, *log),
        Op::Norm(norm) => rows::bind_norm(step, norm),
        Op::Pool(pool) => image::bind_pool(step, pool),
        Op::Resize(axes) => image::bind_resize(step, axes),
        Op::Pad(pad) => moves::bind_pad(step, pad),
        Op::Gather(axis) => moves::bind_gather(step, *axis),
        Op::Cast => moves::bind_cast(step),
        Op::Copy => moves::bind_copy(step),
        Op::Host(host) => Ok(Box::new(Host::new(step, host))),
        Op::Concat(_) | Op::Slice { .. } | Op::Reshape | Op::Permute(_) | Op::Broadcast => {
            Err(none(step, "a view is no step"))
        }
    }
}

fn none(step: &Step, reason: impl Into<String>) -> NoKernel {
    NoKernel { step: step.name.clone(), op: step.op.name().into(), reason: reason.into() }
}

//! A step → the launcher of its kernels, made for the shapes and strides of its operands.

mod attention;
mod choice;
mod conv;
mod ending;
mod image;
mod moves;
mod pointwise;
mod product;
mod rows;
mod tail;

use super::kernels::launch::{Float, Unsupported};
use super::launch::{Binder, Kernel, none};
use crate::device::NoKernel;
use crate::device::weights::Packing;
use crate::graph::Op;
use crate::plan::{Operand, Step};
use crate::tensor::DType;
use cudarc::driver::sys::CUdeviceptr;
use half::f16;

/// Chooses the kernels of a step.
///
/// # Errors
/// There is none for it.
pub(super) fn bind(step: &Step, binder: Binder<'_>) -> Result<Box<dyn Kernel>, NoKernel> {
    match &step.op {
        Op::Conv(conv) => conv::bind(step, conv, binder),
        Op::ConvTranspose(conv) => conv::bind_transpose(step, conv),
        Op::Einsum(einsum) => product::bind(step, einsum, binder),
        Op::Attention(attention) => attention::bind(step, attention, binder),
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
        Op::Host(_) => Err(none(step, "a host step has no kernel")),
        Op::Concat(_) | Op::Slice { .. } | Op::Reshape | Op::Permute(_) | Op::Broadcast => {
            Err(none(step, "a view is no step"))
        }
    }
}

/// What a launcher cannot do, as the refusal of a step.
fn refused(step: &Step) -> impl Fn(Unsupported) -> NoKernel + '_ {
    |why| none(step, why.to_string())
}

/// How the elements of an operand are stored.
fn float(step: &Step, operand: &Operand) -> Result<Float, NoKernel> {
    match operand.dtype {
        DType::F32 => Ok(Float::F32),
        DType::F16 => Ok(Float::F16),
        other => Err(none(step, format!("an operand of {other}"))),
    }
}

/// A constant of so many elements as f16.
fn halves(elements: usize) -> Packing {
    Packing { form: "cuda f16".into(), bytes: elements * 2 }
}

/// Stores numbers as f16, those out of its range as the nearest that it has.
fn pack_halves(from: &[f32], to: &mut [u8]) {
    const LARGEST: f32 = 65504.0;
    for (number, bytes) in from.iter().zip(to.chunks_exact_mut(2)) {
        bytes.copy_from_slice(&f16::from_f32(number.clamp(-LARGEST, LARGEST)).to_le_bytes());
    }
}

/// An address that lies as an operand's will among multiples of 16 bytes: blocks and packed constants begin at one.
fn like(operand: &Operand) -> CUdeviceptr {
    (operand.view.offset * operand.dtype.size_bytes().unwrap_or(1) % 16) as CUdeviceptr
}

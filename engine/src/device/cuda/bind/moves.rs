//! Steps that move elements: copies, borders, gathers and casts.

use super::super::kernels::cast::Cast;
use super::super::kernels::copy::Copy;
use super::super::kernels::gather::{Gather, Indices};
use super::super::kernels::pad::{Pad, PadMode};
use super::super::launch::{Kernel, Operands, none};
use super::refused;
use crate::device::NoKernel;
use crate::graph;
use crate::plan::Step;
use crate::tensor::DType;
use cudarc::driver::result::DriverError;
use half::f16;

fn elem_bytes(step: &Step) -> usize {
    step.outputs[0].dtype.size_bytes().unwrap_or(1)
}

pub(super) fn bind_copy(step: &Step) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let kernel = Copy::new(elem_bytes(step), &y.shape, &x.view.strides, &y.view.strides);
    Ok(Box::new(kernel.map_err(refused(step))?))
}

impl Kernel for Copy {
    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { Copy::launch(self, on.queue, on.inputs[0], on.outputs[0]) }
    }
}

pub(super) fn bind_pad(step: &Step, pad: &graph::Pad) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let before: Vec<isize> = pad.before.iter().map(|&before| before as isize).collect();
    let mode = match &pad.mode {
        graph::PadMode::Constant(bytes) => {
            let mut bits = [0; 8];
            let len = bytes.len().min(8);
            bits[..len].copy_from_slice(&bytes[..len]);
            // What was stored as f32 when the border was made of it.
            if let (DType::F16, [a, b, c, d, ..], 4) = (y.dtype, bits, len) {
                bits[..2].copy_from_slice(&f16::from_f32(f32::from_le_bytes([a, b, c, d])).to_le_bytes());
                bits[2..].fill(0);
            }
            PadMode::Constant(u64::from_le_bytes(bits))
        }
        graph::PadMode::Edge => PadMode::Edge,
        graph::PadMode::Reflect => PadMode::Reflect,
    };
    let (from, to) = (&x.view.strides, &y.view.strides);
    let kernel = Pad::new(elem_bytes(step), &x.shape, &y.shape, from, to, &before, mode);
    Ok(Box::new(kernel.map_err(refused(step))?))
}

impl Kernel for Pad {
    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { Pad::launch(self, on.queue, on.inputs[0], on.outputs[0]) }
    }
}

pub(super) fn bind_cast(step: &Step) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let kernel = Cast::new(x.dtype, y.dtype, &x.shape, &x.view.strides, &y.view.strides);
    Ok(Box::new(kernel.map_err(refused(step))?))
}

impl Kernel for Cast {
    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { Cast::launch(self, on.queue, on.inputs[0], on.outputs[0]) }
    }
}

pub(super) fn bind_gather(step: &Step, axis: usize) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, indices, y) = (&step.inputs[0], &step.inputs[1], &step.outputs[0]);
    let kind = match indices.dtype {
        DType::I32 => Indices::I32,
        DType::I64 => Indices::I64,
        other => return Err(none(step, format!("indices of {other}"))),
    };
    let kernel = Gather::new(
        elem_bytes(step),
        &x.shape,
        &x.view.strides,
        axis,
        kind,
        &indices.shape,
        &indices.view.strides,
        &y.view.strides,
    );
    Ok(Box::new(kernel.map_err(refused(step))?))
}

impl Kernel for Gather {
    fn fault(&self) -> Option<&'static str> {
        Some("an index is out of range")
    }

    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { Gather::launch(self, on.queue, on.inputs[0], on.inputs[1], on.outputs[0], on.flag) }
    }
}

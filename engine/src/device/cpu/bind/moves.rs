//! Steps that move elements: copies, borders, gathers and casts.

use super::super::args::{Args, Kernel};
use super::super::kernels::cast::Cast;
use super::super::kernels::copy::Copy;
use super::super::kernels::gather::{Gather, Indices};
use super::super::kernels::pad::{Pad, PadMode};
use super::none;
use crate::device::NoKernel;
use crate::error::Error;
use crate::graph;
use crate::plan::Step;
use crate::tensor::DType;

fn elem_bytes(step: &Step) -> usize {
    step.outputs[0].dtype.size_bytes().unwrap_or(1)
}

/// A kernel that counts bytes, whatever the elements are.
struct Bytes<K> {
    kernel: K,
    elem_bytes: usize,
    from_bytes: usize,
}

impl Kernel for Bytes<Copy> {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        let (source, target) = args.as_bytes(self.from_bytes, self.elem_bytes);
        self.kernel.run(source, target, args.threads);
        Ok(())
    }
}

pub(super) fn bind_copy(step: &Step) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let elem_bytes = elem_bytes(step);
    let kernel = Copy::new(elem_bytes, &y.shape, &x.view.strides, &y.view.strides);
    Ok(Box::new(Bytes { kernel, elem_bytes, from_bytes: elem_bytes }))
}

impl Kernel for Bytes<Pad> {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        let (source, target) = args.as_bytes(self.from_bytes, self.elem_bytes);
        self.kernel.run(source, target, args.threads);
        Ok(())
    }
}

pub(super) fn bind_pad(step: &Step, pad: &graph::Pad) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let elem_bytes = elem_bytes(step);
    let before: Vec<isize> = pad.before.iter().map(|&before| before as isize).collect();
    let sizes = y.shape.iter().zip(&x.shape).zip(&before);
    let after: Vec<isize> =
        sizes.map(|((to, from), before)| *to as isize - *from as isize - before).collect();
    let mode = match &pad.mode {
        graph::PadMode::Constant(bytes) => {
            let mut bits = [0; 8];
            let len = bytes.len().min(8);
            bits[..len].copy_from_slice(&bytes[..len]);
            PadMode::Constant(u64::from_le_bytes(bits))
        }
        graph::PadMode::Edge => PadMode::Edge,
        graph::PadMode::Reflect => PadMode::Reflect,
    };
    let kernel = Pad::new(elem_bytes, &x.shape, &x.view.strides, &y.view.strides, &before, &after, mode);
    Ok(Box::new(Bytes { kernel, elem_bytes, from_bytes: elem_bytes }))
}

impl Kernel for Bytes<Cast> {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        let (source, target) = args.as_bytes(self.from_bytes, self.elem_bytes);
        self.kernel.run(source, target, args.threads);
        Ok(())
    }
}

pub(super) fn bind_cast(step: &Step) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let kernel = Cast::new(x.dtype, y.dtype, &x.shape, &x.view.strides, &y.view.strides);
    let kernel = kernel.ok_or_else(|| none(step, format!("from {} to {}", x.dtype, y.dtype)))?;
    Ok(Box::new(Bytes {
        kernel,
        elem_bytes: elem_bytes(step),
        from_bytes: x.dtype.size_bytes().unwrap_or(1),
    }))
}

/// A gather, with what an error needs to name its place.
struct Gathering {
    kernel: Gather,
    elem_bytes: usize,
    indices: DType,
    name: String,
}

impl Kernel for Gathering {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        let (source, target) = args.as_bytes(self.elem_bytes, self.elem_bytes);
        let indices = match self.indices {
            DType::I32 => Indices::I32(args.source(1)),
            _ => Indices::I64(args.source(1)),
        };
        let run = self.kernel.run(source, indices, target, args.threads);
        run.map_err(|error| Error::Run { reason: format!("node `{}` (Gather): {error}", self.name) })
    }
}

pub(super) fn bind_gather(step: &Step, axis: usize) -> Result<Box<dyn Kernel>, NoKernel> {
    let (x, indices, y) = (&step.inputs[0], &step.inputs[1], &step.outputs[0]);
    let elem_bytes = elem_bytes(step);
    let kernel = Gather::new(
        elem_bytes,
        &x.shape,
        &x.view.strides,
        axis,
        &indices.shape,
        &indices.view.strides,
        &y.view.strides,
    );
    Ok(Box::new(Gathering { kernel, elem_bytes, indices: indices.dtype, name: step.name.clone() }))
}

//! Which steps' results do not fit in f16, seen once before a model is served: with noise as input each step is run, and
//! what it stores as f16 is looked at. A store beyond the range leaves the largest number there is, so that the steps
//! after it are seen too.

use super::super::lane::CudaLane;
use super::super::modules::done;
use super::super::transfers;
use super::run::bases;
use super::{CudaProgram, Work};
use crate::device::GiveRoom;
use crate::error::Error;
use crate::plan::Operand;
use crate::tensor::DType;
use half::f16;

/// No model is looked at that has a longer input or result: each is in host memory for a moment.
const LONGEST: usize = 64 << 20;

/// The largest number of f16, without its sign.
const LARGEST: u16 = 0x7bff;

impl CudaProgram {
    /// The steps' names; `None` where there is no room for a workspace, or it cannot be found out with noise.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn beyond(&self, room: &GiveRoom<'_>, now: u64) -> Result<Option<Vec<String>>, Error> {
        self.shared.context.enter()?;
        let ports = self.plan.layout.inputs.iter();
        let made = self.plan.layout.steps.iter().flat_map(|step| &step.outputs);
        if ports.chain(made).any(|operand| operand.bytes() > LONGEST) {
            return Ok(None);
        }
        let Ok(room) = room(CudaLane::borrowed_bytes(self.plan.workspace_bytes)) else { return Ok(None) };
        let (kept, held) = (room.hold(now), self.hold(now));
        let mut lane = CudaLane::borrowed(&self.shared, kept.first as u64, room.bytes() as u64)?;
        let bases = bases(&lane, &held);
        for (operand, transfer) in self.plan.layout.inputs.iter().zip(&self.inputs) {
            let to = lane.first + transfer.offset as u64;
            transfers::bring(&noise(operand), to, &mut lane.staging, &lane.stream)?;
        }
        let mut found = vec![];
        for (at, bound) in self.steps.iter().enumerate() {
            let ran = match &bound.work {
                Work::Host(_) => self.host_step(&mut lane, &bases, at),
                Work::Kernel(_) => done(self.launch_step(&lane, &bases, at)),
            };
            lane.stream.wait()?;
            if ran.is_err() {
                // Noise may be no input for a step; a model that runs on others is served all the same.
                return Ok(None);
            }
            let step = &self.plan.layout.steps[at];
            for (operand, slot) in step.outputs.iter().zip(&bound.outputs) {
                let first = lane.first + slot.offset;
                if operand.dtype == DType::F16 && is_beyond(&mut lane, operand, first)? {
                    found.push(step.name.clone());
                }
            }
        }
        Ok(Some(found))
    }
}

/// Whether an element of an operand at an address is no number that f16 has room beyond.
fn is_beyond(lane: &mut CudaLane, operand: &Operand, first: u64) -> Result<bool, Error> {
    let mut bytes = Vec::with_capacity(operand.view.span(&operand.shape) * 2);
    let (len, CudaLane { staging, stream, .. }) = (bytes.capacity(), lane);
    transfers::fetch(first, len, staging, stream, |part| bytes.extend_from_slice(part))?;
    let beyond = |at: usize| {
        let bits = u16::from_le_bytes([bytes[at * 2], bytes[at * 2 + 1]]);
        bits & 0x7fff >= LARGEST
    };
    Ok(any(&operand.shape, &operand.view.strides, 0, &beyond))
}

/// Whether it is so at any position of a strided operand.
fn any(shape: &[usize], strides: &[usize], at: usize, is: &impl Fn(usize) -> bool) -> bool {
    match (shape, strides) {
        ([len, shape @ ..], [stride, strides @ ..]) => {
            (0..*len).any(|index| any(shape, strides, at + index * stride, is))
        }
        _ => is(at),
    }
}

/// An input of numbers between −3 and 3, or of ones.
fn noise(operand: &Operand) -> Vec<u8> {
    let (count, mut state) = (operand.shape.iter().product::<usize>(), 0x9e37_79b9_7f4a_7c15u64);
    let mut float = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 40) as f32 / (1u64 << 24) as f32 * 6.0 - 3.0
    };
    match operand.dtype {
        DType::F32 => (0..count).flat_map(|_| float().to_le_bytes()).collect(),
        DType::F16 => (0..count).flat_map(|_| f16::from_f32(float()).to_le_bytes()).collect(),
        dtype => {
            let size = dtype.size_bytes().unwrap_or(1);
            (0..operand.bytes()).map(|at| u8::from(at % size == 0)).collect()
        }
    }
}

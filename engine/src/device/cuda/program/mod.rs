//! A plan with kernels a step and packed constants on the GPU: what a lane runs.
//!
//! The first run of a program in a lane launches step by step and records the launches afterwards; later runs start
//! what was recorded. Host steps divide a program into parts, each recorded on its own.

mod prepared;
mod range;
mod resident;
mod run;
mod tune;

pub(super) use prepared::Prepared;

use super::Shared;
use super::lane::{FLAGS_BYTES, TRANSFER_BYTES};
use super::launch::Kernel;
use super::transfers::{self, Transfer};
use crate::device::Pick;
use crate::device::host::Host;
use crate::device::weights::{Piece, Weights, among};
use crate::error::Error;
use crate::plan::{Operand, Place, Plan};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A step's work.
enum Work {
    Kernel(Box<dyn Kernel>),
    Host(Host),
}

/// A plan made ready for the GPU.
struct CudaProgram {
    shared: Arc<Shared>,
    /// Told from all other programs by it, and gone with the program.
    id: u64,
    alive: Arc<()>,
    plan: Plan,
    steps: Vec<Bound>,
    weights: Vec<Arc<Weights>>,
    parts: Vec<Part>,
    inputs: Vec<Transfer>,
    outputs: Vec<Transfer>,
    /// Whether all inputs and outputs have places in a lane's host memory, so that their copies can be recorded too.
    staged: bool,
    /// Whether the fastest kernels are known, or not looked for.
    tuned: Mutex<bool>,
}

/// Work, and where its operands lie.
struct Bound {
    work: Work,
    inputs: SmallVec<[Slot; 4]>,
    outputs: SmallVec<[Slot; 1]>,
    scratch: Slot,
    table: Slot,
}

/// An operand's first byte, relative to the workspace (0) or to one of the weights (from 1 on).
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    base: usize,
    offset: u64,
}

/// Steps that are recorded together, or one that runs on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Device(Range<usize>),
    Host(usize),
}

/// A packed constant as an operand; the extent that it lies in joins those of the program.
fn in_weights(weights: &mut Vec<Arc<Weights>>, piece: Option<Piece>) -> Slot {
    let Some(piece) = piece else { return Slot::default() };
    let at = among(weights, &piece);
    Slot { base: at + 1, offset: piece.offset as u64 }
}

impl CudaProgram {
    fn new(shared: Arc<Shared>, plan: Plan, works: Vec<Work>, pieces: Vec<Piece>, pick: Pick) -> CudaProgram {
        static PROGRAMS: AtomicU64 = AtomicU64::new(0);
        let mut pieces = pieces.into_iter();
        let (mut steps, mut weights) = (vec![], vec![]);
        for (at, work) in works.into_iter().enumerate() {
            let step = &plan.layout.steps[at];
            let inputs = step.inputs.iter().map(|operand| match operand.place {
                Place::Workspace(_) => in_workspace(&plan, operand),
                Place::Constant(_) => in_weights(&mut weights, pieces.next()),
            });
            let inputs = inputs.collect();
            let has_table = matches!(&work, Work::Kernel(kernel) if !kernel.table().is_empty());
            let table = if has_table { in_weights(&mut weights, pieces.next()) } else { Slot::default() };
            let outputs = step.outputs.iter().map(|operand| in_workspace(&plan, operand)).collect();
            let scratch = Slot { base: 0, offset: plan.scratch[at].0 };
            steps.push(Bound { work, inputs, outputs, scratch, table });
        }
        let transfer = |operand: &Operand| Transfer {
            offset: in_workspace(&plan, operand).offset as usize,
            bytes: operand.bytes(),
            staged: 0,
        };
        let mut inputs: Vec<Transfer> = plan.layout.inputs.iter().map(transfer).collect();
        let mut outputs: Vec<Transfer> = plan.layout.outputs.iter().map(transfer).collect();
        let room = FLAGS_BYTES + TRANSFER_BYTES;
        let staged = transfers::place(inputs.iter_mut().chain(&mut outputs), room);
        let parts = parts(&steps);
        let id = PROGRAMS.fetch_add(1, Ordering::Relaxed);
        let alive = Arc::new(());
        let tuned = Mutex::new(pick != Pick::Fastest);
        CudaProgram { shared, id, alive, plan, steps, weights, parts, inputs, outputs, staged, tuned }
    }
}

/// Runs of steps between host steps, with one of either kind at both ends, which may be empty.
fn parts(steps: &[Bound]) -> Vec<Part> {
    let (mut parts, mut start) = (vec![], 0);
    for (at, step) in steps.iter().enumerate() {
        if matches!(step.work, Work::Host(_)) {
            parts.extend([Part::Device(start..at), Part::Host(at)]);
            start = at + 1;
        }
    }
    parts.push(Part::Device(start..steps.len()));
    parts
}

fn in_workspace(plan: &Plan, operand: &Operand) -> Slot {
    let size = operand.dtype.size_bytes().unwrap_or(1);
    let offset = match operand.place {
        Place::Workspace(block) => plan.offset(block) + (operand.view.offset * size) as u64,
        Place::Constant(_) => 0,
    };
    Slot { base: 0, offset }
}

/// What can only be a fault of ours.
fn anothers(what: &str) -> Error {
    Error::Fault { reason: format!("a program of a GPU was given another device's {what}") }
}

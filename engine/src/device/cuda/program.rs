//! A plan with kernels a step and packed constants on the GPU: what a lane runs.
//!
//! The first run of a program in a lane launches step by step and records the launches afterwards; later runs start
//! what was recorded. Host steps divide a program into parts, each recorded on its own.

use super::bind::bind;
use super::graphs::{Bases, Graph};
use super::kernels::launch::Queue;
use super::lane::{CudaLane, FLAGS, FLAGS_BYTES, TRANSFER_BYTES};
use super::launch::{Binder, Kernel, Operands};
use super::modules::done;
use super::transfers::{self, Transfer};
use super::weights::{Reader, bring};
use super::{ALIGNMENT, Shared};
use crate::device::host::Host;
use crate::device::weights::{Piece, Wanted, WeightStore, Weights, among};
use crate::device::{self, Batch, Constants, GiveRoom, Held, Kept, Lane, NoKernel, Runnable};
use crate::error::Error;
use crate::fuse::Precision;
use crate::graph::{Data, Graph as ModelGraph, Op, ValueId};
use crate::plan::{self, Constant, Layout, Operand, Place, Plan, Step, View};
use crate::tensor::{DType, Tensor};
use bytes::Bytes;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;
use std::any::Any;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A step's work.
enum Work {
    Kernel(Box<dyn Kernel>),
    Host(Host),
}

/// What a program is made of before its constants have a place.
pub(super) struct Prepared {
    shared: Arc<Shared>,
    graph: ModelGraph,
    plan: Plan,
    works: Vec<Work>,
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

impl Prepared {
    /// Chooses kernels for the steps of a graph's layout and plans the workspace.
    ///
    /// # Errors
    /// A step has no kernel.
    pub(super) fn new(
        shared: &Arc<Shared>,
        graph: ModelGraph,
        layout: Layout,
        precision: Precision,
    ) -> Result<Prepared, NoKernel> {
        let failed =
            |error: Error| NoKernel { step: String::new(), op: String::new(), reason: error.to_string() };
        shared.context.enter().map_err(failed)?;
        let binder = Binder { modules: &shared.modules, precision };
        let work = |step: &Step| {
            Ok(match &step.op {
                Op::Host(host) => Work::Host(Host::new(step, host)),
                _ => Work::Kernel(bind(step, binder)?),
            })
        };
        let works = layout.steps.iter().map(work).collect::<Result<Vec<_>, _>>()?;
        let scratch: Vec<u64> = works.iter().map(|work| work.scratch_bytes() as u64).collect();
        Ok(Prepared {
            shared: Arc::clone(shared),
            graph,
            plan: Plan::new(layout, &scratch, ALIGNMENT),
            works,
        })
    }
}

impl Work {
    fn scratch_bytes(&self) -> usize {
        match self {
            Work::Kernel(kernel) => kernel.scratch_bytes(),
            Work::Host(_) => 0,
        }
    }
}

/// How a kernel's own table lies.
fn table(bytes: usize) -> Constant {
    let shape = [bytes].into_iter().collect();
    let (source, order) = (View::row_major(&[bytes]), [0].into_iter().collect());
    Constant { value: ValueId(u32::MAX), dtype: DType::U8, shape, source, order }
}

impl device::Prepared for Prepared {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn finish(
        self: Box<Self>,
        constants: &Constants,
        kept: Option<&Kept<'_>>,
        room: &GiveRoom<'_>,
    ) -> Result<Box<dyn Runnable>, Error> {
        let Prepared { shared, graph, plan, works } = *self;
        let Some(store) = constants.downcast_ref::<WeightStore>() else { return Err(anothers("constants")) };
        let tables: Vec<Constant> = works
            .iter()
            .map(|work| match work {
                Work::Kernel(kernel) => table(kernel.table().len()),
                Work::Host(_) => table(0),
            })
            .collect();
        let (mut wanted, mut readers): (Vec<Wanted<'_>>, Vec<Reader<'_>>) = (vec![], vec![]);
        for ((step, work), table) in plan.layout.steps.iter().zip(&works).zip(&tables) {
            for (input, operand) in step.inputs.iter().enumerate() {
                let Place::Constant(id) = operand.place else { continue };
                let constant = &plan.layout.constants[id.0 as usize];
                let reader = match work {
                    Work::Kernel(kernel) => Some((&**kernel, input)),
                    Work::Host(_) => None,
                };
                let packing = reader.and_then(|(kernel, input)| kernel.packing(input));
                wanted.push(Wanted::of(&graph, constant, packing));
                readers.push(reader);
            }
            if let Work::Kernel(kernel) = work
                && !kernel.table().is_empty()
            {
                let data = Data::Bytes(Bytes::copy_from_slice(kernel.table()));
                wanted.push(Wanted { name: &step.name, data, size: 1, constant: table, packing: None });
                readers.push(None);
            }
        }
        let pieces = store.packed(&wanted, ALIGNMENT as usize, room, &mut |held, places| {
            bring(&shared, &wanted, &readers, kept, held, places)
        })?;
        drop((wanted, readers));
        Ok(Box::new(CudaProgram::new(shared, plan, works, pieces)))
    }
}

/// A packed constant as an operand; the extent that it lies in joins those of the program.
fn in_weights(weights: &mut Vec<Arc<Weights>>, piece: Option<Piece>) -> Slot {
    let Some(piece) = piece else { return Slot::default() };
    let at = among(weights, &piece);
    Slot { base: at + 1, offset: piece.offset as u64 }
}

impl CudaProgram {
    fn new(shared: Arc<Shared>, plan: Plan, works: Vec<Work>, pieces: Vec<Piece>) -> CudaProgram {
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
            bytes: bytes_of(operand),
            staged: 0,
        };
        let mut inputs: Vec<Transfer> = plan.layout.inputs.iter().map(transfer).collect();
        let mut outputs: Vec<Transfer> = plan.layout.outputs.iter().map(transfer).collect();
        let room = FLAGS_BYTES + TRANSFER_BYTES;
        let staged = transfers::place(inputs.iter_mut().chain(&mut outputs), room);
        let parts = parts(&steps);
        let id = PROGRAMS.fetch_add(1, Ordering::Relaxed);
        let alive = Arc::new(());
        CudaProgram { shared, id, alive, plan, steps, weights, parts, inputs, outputs, staged }
    }

    /// Puts a step into the lane's stream.
    fn launch_step(&self, lane: &CudaLane, bases: &Bases, at: usize) -> Result<(), DriverError> {
        let Bound { work, inputs, outputs, scratch, table } = &self.steps[at];
        let Work::Kernel(kernel) = work else { return Ok(()) };
        let address = |slot: &Slot| bases.get(slot.base).copied().unwrap_or(0) + slot.offset;
        let inputs: SmallVec<[CUdeviceptr; 8]> = inputs.iter().map(address).collect();
        let outputs: SmallVec<[CUdeviceptr; 2]> = outputs.iter().map(address).collect();
        let on = Operands {
            queue: Queue { functions: &self.shared.modules, stream: lane.stream.raw() },
            inputs: &inputs,
            outputs: &outputs,
            scratch: address(scratch),
            table: address(table),
            flag: lane.flags + (at % FLAGS * 4) as u64,
        };
        // SAFETY: the plan placed every operand inside the workspace (whose size was checked) or the weights, which
        // are held; a recording is replayed for the same addresses only.
        unsafe { kernel.launch(&on) }
    }

    /// Whether the copies of inputs and outputs are a lane's to record: they have places, in memory that is pinned.
    fn staged_in(&self, lane: &CudaLane) -> bool {
        self.staged && lane.staging.is_pinned()
    }

    /// Puts a part into the lane's stream, with the copies of inputs and outputs where it is the first or the last.
    fn launch_part(&self, lane: &mut CudaLane, bases: &Bases, part: usize) -> Result<(), DriverError> {
        let Part::Device(steps) = &self.parts[part] else { return Ok(()) };
        let (workspace, stream) = (lane.first, lane.stream.raw());
        let staged = self.staged_in(lane);
        if staged && part == 0 {
            for input in &self.inputs {
                input.to_device(&mut lane.staging, workspace, stream)?;
            }
        }
        for at in steps.clone() {
            self.launch_step(lane, bases, at)?;
        }
        if staged && part + 1 == self.parts.len() {
            for output in &self.outputs {
                output.to_host(&mut lane.staging, workspace, stream)?;
            }
        }
        Ok(())
    }

    /// Records every part that launches; those that cannot be recorded are launched each time.
    fn record(&self, lane: &mut CudaLane, bases: Bases) {
        let record = |part: usize| {
            let stream = lane.stream.raw();
            matches!(self.parts[part], Part::Device(_))
                .then(|| Graph::record(stream, || self.launch_part(lane, &bases, part)).ok())
                .flatten()
        };
        let parts = (0..self.parts.len()).map(record).collect();
        lane.graphs.put(self.id, &self.alive, bases, parts);
    }

    /// Everything between the inputs in the lane's host memory or its workspace, and the outputs there.
    fn compute(&self, lane: &mut CudaLane, bases: &Bases) -> Result<(), Error> {
        for part in 0..self.parts.len() {
            if let Part::Host(at) = self.parts[part] {
                self.host_step(lane, bases, at)?;
                continue;
            }
            let recorded = lane.graphs.get(self.id, bases);
            match recorded.and_then(|recording| recording.parts.get(part)?.as_ref()) {
                // SAFETY: recorded for these addresses; the weights are held and the workspace is the lane's.
                Some(graph) => done(unsafe { graph.launch(lane.stream.raw()) })?,
                None => done(self.launch_part(lane, bases, part))?,
            }
        }
        lane.stream.wait()
    }

    fn host_step(&self, lane: &mut CudaLane, bases: &Bases, at: usize) -> Result<(), Error> {
        let Bound { work: Work::Host(host), inputs, outputs, .. } = &self.steps[at] else { return Ok(()) };
        let address = |slot: &Slot| bases.get(slot.base).copied().unwrap_or(0) + slot.offset;
        let inputs: Vec<CUdeviceptr> = inputs.iter().map(address).collect();
        let outputs: Vec<CUdeviceptr> = outputs.iter().map(address).collect();
        let CudaLane { staging, stream, .. } = lane;
        // What the stream has comes first.
        stream.wait()?;
        let staging = RefCell::new(staging);
        let bring = |at: usize, bytes: usize| {
            let mut fetched = vec![0; bytes];
            transfers::fetch(inputs[at], &mut fetched, &mut staging.borrow_mut(), stream)?;
            Ok(fetched.into())
        };
        host.run(bring, |at, made| transfers::bring(made, outputs[at], &mut staging.borrow_mut(), stream))
    }

    /// Whether a kernel found that values do not suit.
    fn check(&self, lane: &mut CudaLane) -> Result<(), Error> {
        let Some(set) = lane.take_flag()? else { return Ok(()) };
        let steps = self.steps.iter().zip(&self.plan.layout.steps).skip(set).step_by(FLAGS);
        let found = steps.into_iter().find_map(|(bound, step)| match &bound.work {
            Work::Kernel(kernel) => Some((kernel.fault()?, step)),
            Work::Host(_) => None,
        });
        let (fault, name) = found.map_or(("a value does not suit", ""), |(fault, step)| (fault, &step.name));
        Err(Error::Run { reason: format!("node `{name}`: {fault}") })
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

fn bytes_of(operand: &plan::Operand) -> usize {
    operand.shape.iter().product::<usize>() * operand.dtype.size_bytes().unwrap_or(1)
}

impl Runnable for CudaProgram {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn weights_bytes(&self) -> usize {
        self.weights.iter().map(|weights| weights.bytes()).sum()
    }

    fn run(
        &self,
        lane: &mut dyn Lane,
        batch: Batch<'_>,
        outputs: &mut [Vec<Tensor>],
        now: u64,
    ) -> Result<(), Error> {
        let lane = (lane as &mut dyn Any).downcast_mut::<CudaLane>();
        let lane = lane.filter(|lane| Arc::ptr_eq(&lane.shared, &self.shared));
        let Some(lane) = lane else { return Err(anothers("lane")) };
        assert!(lane.bytes >= self.plan.workspace_bytes, "a workspace that is too small");
        self.shared.context.enter()?;
        // Nobody moves or evicts the weights while they are held.
        let held: SmallVec<[Held<'_>; 4]> = self.weights.iter().map(|weights| weights.hold(now)).collect();
        let mut bases: Bases = SmallVec::new();
        bases.push(lane.first);
        bases.extend(held.iter().map(|held| held.first as u64));
        let staged = self.staged_in(lane);
        for (input, transfer) in self.inputs.iter().enumerate() {
            if staged {
                let place = &mut lane.staging.bytes()[transfer.staged..transfer.staged + transfer.bytes];
                batch.gather(input, place);
            } else {
                let mut to = lane.first + transfer.offset as u64;
                for bytes in batch.pieces(input, transfer.bytes) {
                    transfers::bring(bytes, to, &mut lane.staging, &lane.stream)?;
                    to += bytes.len() as u64;
                }
            }
        }
        let known = lane.graphs.get(self.id, &bases).is_some();
        let computed = self.compute(lane, &bases);
        if let Err(error) = computed {
            // What is still under way must not outlive the hold on the weights, nor a flag the run that it tells of.
            let _ = lane.stream.wait().and_then(|()| lane.take_flag());
            return Err(error);
        }
        self.check(lane)?;
        for (operand, transfer) in self.plan.layout.outputs.iter().zip(&self.outputs) {
            if staged {
                let place = &lane.staging.bytes()[transfer.staged..transfer.staged + transfer.bytes];
                batch.scatter(operand.dtype, &operand.shape, place, outputs)?;
            } else {
                let mut bytes = vec![0; transfer.bytes];
                let from = lane.first + transfer.offset as u64;
                transfers::fetch(from, &mut bytes, &mut lane.staging, &lane.stream)?;
                batch.scatter(operand.dtype, &operand.shape, &bytes, outputs)?;
            }
        }
        if !known {
            self.record(lane, bases);
        }
        Ok(())
    }
}

/// What can only be a fault of ours.
fn anothers(what: &str) -> Error {
    Error::Fault { reason: format!("a program of a GPU was given another device's {what}") }
}

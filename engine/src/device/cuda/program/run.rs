//! One run: inputs, launches or what was recorded of them, outputs.

use super::super::graphs::{Bases, Graph};
use super::super::kernels::launch::Queue;
use super::super::lane::{CudaLane, FLAGS};
use super::super::launch::Operands;
use super::super::modules::done;
use super::super::transfers;
use super::{Bound, CudaProgram, Part, Slot, Work, anothers};
use crate::device::{Batch, GiveRoom, Held, Lane, Runnable, StepTime};
use crate::error::Error;
use crate::plan::Plan;
use crate::tensor::Tensor;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

impl CudaProgram {
    /// Puts a step into the lane's stream.
    pub(super) fn launch_step(&self, lane: &CudaLane, bases: &Bases, at: usize) -> Result<(), DriverError> {
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

    pub(super) fn host_step(&self, lane: &mut CudaLane, bases: &Bases, at: usize) -> Result<(), Error> {
        let Bound { work: Work::Host(host), inputs, outputs, .. } = &self.steps[at] else { return Ok(()) };
        let address = |slot: &Slot| bases.get(slot.base).copied().unwrap_or(0) + slot.offset;
        let inputs: Vec<CUdeviceptr> = inputs.iter().map(address).collect();
        let outputs: Vec<CUdeviceptr> = outputs.iter().map(address).collect();
        let CudaLane { staging, stream, .. } = lane;
        // What the stream has comes first.
        stream.wait()?;
        let staging = RefCell::new(staging);
        let bring = |at: usize, bytes: usize| {
            let mut fetched = Vec::with_capacity(bytes);
            let take = |part: &[u8]| fetched.extend_from_slice(part);
            transfers::fetch(inputs[at], bytes, &mut staging.borrow_mut(), stream, take)?;
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

    /// The lane as one of this GPU, with room enough.
    fn own<'a>(&self, lane: &'a mut dyn Lane) -> Result<&'a mut CudaLane, Error> {
        let lane = (lane as &mut dyn Any).downcast_mut::<CudaLane>();
        let lane = lane.filter(|lane| Arc::ptr_eq(&lane.shared, &self.shared));
        let Some(lane) = lane else { return Err(anothers("lane")) };
        assert!(lane.bytes >= self.plan.workspace_bytes, "a workspace that is too small");
        self.shared.context.enter()?;
        Ok(lane)
    }

    pub(super) fn hold(&self, now: u64) -> SmallVec<[Held<'_>; 4]> {
        self.weights.iter().map(|weights| weights.hold(now)).collect()
    }
}

/// The addresses that launches depend on.
pub(super) fn bases(lane: &CudaLane, held: &[Held<'_>]) -> Bases {
    std::iter::once(lane.first).chain(held.iter().map(|held| held.first as u64)).collect()
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
        let lane = self.own(lane)?;
        // Nobody moves or evicts the weights while they are held.
        let held = self.hold(now);
        let bases = bases(lane, &held);
        self.tune(lane, &bases)?;
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
                let mut division = batch.division(&operand.shape, transfer.bytes);
                let from = lane.first + transfer.offset as u64;
                let take = |part: &[u8]| division.put(part);
                transfers::fetch(from, transfer.bytes, &mut lane.staging, &lane.stream, take)?;
                division.finish(operand.dtype, outputs)?;
            }
        }
        if !known {
            self.record(lane, bases);
        }
        Ok(())
    }

    fn beyond_range(&self, room: &GiveRoom<'_>, now: u64) -> Result<Option<Vec<String>>, Error> {
        self.beyond(room, now)
    }

    fn step_times(&self, lane: &mut dyn Lane, now: u64) -> Result<Option<Vec<StepTime>>, Error> {
        let (lane, held) = (self.own(lane)?, self.hold(now));
        let bases = bases(lane, &held);
        let times = self.times(lane, &bases)?;
        // What operands held may have been no indices.
        lane.take_flag()?;
        Ok(Some(times))
    }

    fn resident_times(
        &self,
        lane: &mut dyn Lane,
        batch: Batch<'_>,
        now: u64,
        limit: Duration,
    ) -> Result<Option<Vec<Duration>>, Error> {
        let (lane, held) = (self.own(lane)?, self.hold(now));
        let bases = bases(lane, &held);
        self.resident(lane, &bases, batch, limit).map(Some)
    }
}

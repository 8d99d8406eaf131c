//! A plan with a kernel a step and packed constants: what a lane runs.

use super::ALIGNMENT;
use super::args::{Args, Kernel, Raw};
use super::bind::bind;
use super::block::Block;
use super::lane::CpuLane;
use super::threads::Threads;
use super::weights::{Reader, bring};
use crate::device::weights::{Packing, Piece, Wanted, WeightStore, Weights, among};
use crate::device::{self, Batch, Constants, GiveRoom, Held, Kept, Lane, NoKernel, Runnable, StepTime};
use crate::error::Error;
use crate::graph::Graph;
use crate::plan::{Layout, Operand, Place, Plan, Step};
use crate::tensor::Tensor;
use smallvec::SmallVec;
use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A plan made ready for the processor.
struct CpuProgram {
    plan: Plan,
    steps: Vec<Bound>,
    weights: Vec<Arc<Weights>>,
}

/// A kernel and where its operands lie.
struct Bound {
    kernel: Box<dyn Kernel>,
    inputs: SmallVec<[Slot; 4]>,
    outputs: SmallVec<[Slot; 1]>,
    scratch: Slot,
}

/// An operand, relative to what it lies in.
#[derive(Clone, Copy, Debug)]
struct Slot {
    base: Base,
    offset_bytes: usize,
    /// Elements from the first to the last that the view reaches; bytes for scratch.
    len: usize,
}

#[derive(Clone, Copy, Debug)]
enum Base {
    Workspace,
    Weights(usize),
}

/// What a program is made of before its constants have a place.
pub(super) struct Prepared {
    graph: Graph,
    plan: Plan,
    kernels: Vec<Box<dyn Kernel>>,
}

impl Prepared {
    /// Chooses kernels for the steps of a graph's layout and plans the workspace.
    ///
    /// # Errors
    /// A step has no kernel.
    pub(super) fn new(graph: Graph, layout: Layout, threads: usize) -> Result<Prepared, NoKernel> {
        let kernels = layout.steps.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        let scratch: Vec<u64> = kernels.iter().map(|kernel| kernel.scratch_len(threads) as u64 * 4).collect();
        Ok(Prepared { graph, plan: Plan::new(layout, &scratch, ALIGNMENT), kernels })
    }
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
        let Prepared { graph, plan, kernels } = *self;
        let Some(store) = constants.downcast_ref::<WeightStore>() else { return Err(anothers("constants")) };
        let (mut wanted, mut readers): (Vec<Wanted<'_>>, Vec<Reader<'_>>) = (vec![], vec![]);
        for (step, kernel) in plan.layout.steps.iter().zip(&kernels) {
            for (input, operand) in step.inputs.iter().enumerate() {
                let Place::Constant(id) = operand.place else { continue };
                let constant = &plan.layout.constants[id.0 as usize];
                let packing = kernel.packing(input);
                let packing = packing.map(|packing| Packing { form: packing.form, bytes: packing.len * 4 });
                wanted.push(Wanted::of(&graph, constant, packing));
                readers.push((&**kernel, input));
            }
        }
        let pieces = store.packed(&wanted, ALIGNMENT as usize, room, &mut |held, places| {
            bring(&wanted, &readers, kept, held, places)
        });
        let mut pieces = pieces?.into_iter();
        let mut program = CpuProgram { plan, steps: vec![], weights: vec![] };
        for (at, kernel) in kernels.into_iter().enumerate() {
            let step = &program.plan.layout.steps[at];
            let (mut inputs, mut outputs) = (SmallVec::new(), SmallVec::new());
            let mut weights = std::mem::take(&mut program.weights);
            for operand in &step.inputs {
                inputs.push(match operand.place {
                    Place::Workspace(_) => program.in_workspace(operand),
                    Place::Constant(_) => in_weights(&mut weights, operand, pieces.next()),
                });
            }
            outputs.extend(step.outputs.iter().map(|operand| program.in_workspace(operand)));
            let (offset, bytes) = program.plan.scratch[at];
            let scratch = Slot { base: Base::Workspace, offset_bytes: offset as usize, len: bytes as usize };
            program.weights = weights;
            program.steps.push(Bound { kernel, inputs, outputs, scratch });
        }
        Ok(Box::new(program))
    }
}

/// A packed constant as an operand; the extent that it lies in joins those of the program.
fn in_weights(weights: &mut Vec<Arc<Weights>>, operand: &Operand, piece: Option<Piece>) -> Slot {
    let Some(piece) = piece else { return Slot { base: Base::Workspace, offset_bytes: 0, len: 0 } };
    let at = among(weights, &piece);
    let len = piece.bytes / operand.dtype.size_bytes().unwrap_or(1);
    Slot { base: Base::Weights(at), offset_bytes: piece.offset, len }
}

impl CpuProgram {
    fn in_workspace(&self, operand: &Operand) -> Slot {
        let len = operand.view.span(&operand.shape);
        Slot { base: Base::Workspace, offset_bytes: self.offset(operand), len }
    }

    fn offset(&self, operand: &Operand) -> usize {
        let size = operand.dtype.size_bytes().unwrap_or(1);
        match operand.place {
            Place::Workspace(block) => self.plan.offset(block) as usize + operand.view.offset * size,
            Place::Constant(_) => 0,
        }
    }
}

impl Bound {
    /// Runs the step.
    fn run(&self, workspace: &Block, held: &[Held<'_>], threads: &Threads) -> Result<(), Error> {
        let resolve = |slot: &Slot| resolve(workspace, held, *slot);
        let inputs: SmallVec<[Raw; 8]> = self.inputs.iter().map(resolve).collect();
        let outputs: SmallVec<[Raw; 2]> = self.outputs.iter().map(resolve).collect();
        let scratch = resolve(&self.scratch);
        self.kernel.run(&Args { inputs: &inputs, outputs: &outputs, scratch, threads, lent: PhantomData })
    }

    /// How long the step takes on whatever its operands hold, the shortest of some runs; `None` where it refuses that.
    fn time(&self, workspace: &Block, held: &[Held<'_>], threads: &Threads) -> Option<Duration> {
        let (begun, mut shortest) = (Instant::now(), Duration::MAX);
        for _ in 0..TIMED {
            let run = Instant::now();
            self.run(workspace, held, threads).ok()?;
            shortest = shortest.min(run.elapsed());
            if begun.elapsed() > LONGEST {
                break;
            }
        }
        Some(shortest)
    }
}

/// So often a step is timed, unless that takes too long.
const TIMED: usize = 20;
const LONGEST: Duration = Duration::from_millis(50);

impl Runnable for CpuProgram {
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
        let lane = (lane as &mut dyn Any).downcast_mut::<CpuLane>();
        let Some(CpuLane { block: workspace, threads, .. }) = lane else { return Err(anothers("lane")) };
        assert!(workspace.len() as u64 >= self.plan.workspace_bytes, "a workspace that is too small");
        for (input, operand) in self.plan.layout.inputs.iter().enumerate() {
            let at = self.offset(operand);
            batch.gather(input, &mut workspace.bytes_mut()[at..at + operand.bytes()]);
        }
        // Nobody moves or evicts the weights while they are held.
        let held: SmallVec<[Held<'_>; 4]> = self.weights.iter().map(|weights| weights.hold(now)).collect();
        for step in &self.steps {
            step.run(workspace, &held, threads)?;
        }
        for operand in &self.plan.layout.outputs {
            let at = self.offset(operand);
            let place = &workspace.bytes_mut()[at..at + operand.bytes()];
            batch.scatter(operand.dtype, &operand.shape, place, outputs)?;
        }
        Ok(())
    }

    fn step_times(&self, lane: &mut dyn Lane, now: u64) -> Result<Option<Vec<StepTime>>, Error> {
        let lane = (lane as &mut dyn Any).downcast_mut::<CpuLane>();
        let Some(CpuLane { block, threads, .. }) = lane else { return Err(anothers("lane")) };
        assert!(block.len() as u64 >= self.plan.workspace_bytes, "a workspace that is too small");
        let held: SmallVec<[Held<'_>; 4]> = self.weights.iter().map(|weights| weights.hold(now)).collect();
        let steps = self.steps.iter().zip(&self.plan.layout.steps);
        let time = |(bound, step): (&Bound, &Step)| StepTime {
            step: step.name.clone(),
            op: step.op.name().into(),
            kernel: String::new(),
            took: bound.time(block, &held, threads),
        };
        Ok(Some(steps.map(time).collect()))
    }
}

/// What can only be a fault of ours.
fn anothers(what: &str) -> Error {
    Error::Fault { reason: format!("a program of the processor was given another device's {what}") }
}

fn resolve(workspace: &Block, held: &[Held<'_>], slot: Slot) -> Raw {
    let base = match slot.base {
        Base::Workspace => workspace.as_ptr(),
        Base::Weights(at) => held[at].first,
    };
    // SAFETY: the plan placed every operand inside the workspace (whose size was checked) or the weights.
    Raw { first: unsafe { base.add(slot.offset_bytes) }, len: slot.len }
}

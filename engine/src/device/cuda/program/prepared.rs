//! What a program is made of before its constants have a place, and how they get one.

use super::super::bind::bind;
use super::super::launch::Binder;
use super::super::weights::{Reader, bring};
use super::super::{ALIGNMENT, Shared};
use super::{CudaProgram, Work, anothers};
use crate::device::host::Host;
use crate::device::weights::{Wanted, WeightStore};
use crate::device::{self, Constants, GiveRoom, Kept, Manner, NoKernel, Pick, Runnable};
use crate::error::Error;
use crate::graph::{Data, Graph, Op, ValueId};
use crate::plan::{Constant, Layout, Place, Plan, Step, View};
use crate::tensor::DType;
use bytes::Bytes;
use std::sync::Arc;

/// What a program is made of before its constants have a place.
pub(in crate::device::cuda) struct Prepared {
    shared: Arc<Shared>,
    graph: Graph,
    plan: Plan,
    works: Vec<Work>,
    pick: Pick,
}

impl Prepared {
    /// Chooses kernels for the steps of a graph's layout and plans the workspace.
    ///
    /// # Errors
    /// A step has no kernel.
    pub(in crate::device::cuda) fn new(
        shared: &Arc<Shared>,
        graph: Graph,
        layout: Layout,
        manner: Manner,
    ) -> Result<Prepared, NoKernel> {
        let failed =
            |error: Error| NoKernel { step: String::new(), op: String::new(), reason: error.to_string() };
        shared.context.enter().map_err(failed)?;
        let Manner { precision, pick, .. } = manner;
        let binder = Binder { modules: &shared.modules, tuned: &shared.tuned, pick, precision };
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
            pick,
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
        let Prepared { shared, graph, plan, works, pick } = *self;
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
        Ok(Box::new(CudaProgram::new(shared, plan, works, pieces, pick)))
    }
}

//! tract's own optimized plan, run whole: today's executor, and the reference for every later one.

use super::convert::{from_tract, to_tract};
use super::guard::{Panicked, caught};
use super::signature::Port;
use super::tract::{
    Const, IntoArcTensor, SimplePlan, SimpleState, TValue, TVec, TractResult, TypedFact, TypedModel, TypedOp,
    one_line,
};
use crate::error::Error;
use crate::tensor::{DType, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Plan = SimplePlan<TypedFact, Box<dyn TypedOp>>;
type State = SimpleState<TypedFact, Box<dyn TypedOp>>;

/// A model optimized by tract for one set of input shapes.
pub(crate) struct Reference {
    plan: Arc<Plan>,
    outputs: Vec<DType>,
    /// Whether some op remembers values from one run to the next, which a request must never see of another.
    remembers: bool,
    /// States that nobody runs on; as many as ever ran at once. They go when the plan goes.
    idle: Mutex<Vec<State>>,
    /// Bytes of weights and other constants that the plan holds, before packing rounds them up.
    pub(crate) constant_bytes: usize,
    /// Bytes of values alive at once, at the step where they are most.
    pub(crate) live_peak_bytes: usize,
}

impl Reference {
    /// Optimizes a decluttered graph whose outputs are those of the signature.
    ///
    /// # Errors
    /// tract's words.
    pub(super) fn new(model: TypedModel, outputs: &[Port]) -> TractResult<Reference> {
        Reference::of_dtypes(model, outputs.iter().map(|port| port.dtype).collect())
    }

    /// Optimizes a decluttered graph whose outputs are to have these dtypes.
    ///
    /// # Errors
    /// tract's words.
    pub(super) fn of_dtypes(model: TypedModel, outputs: Vec<DType>) -> TractResult<Reference> {
        let constant_bytes = constant_bytes(&model);
        let plan = SimplePlan::new(model.into_optimized()?)?;
        let live_peak_bytes = live_peak_bytes(&plan)?;
        let remembers = plan.spawn()?.op_states.iter().any(Option::is_some);
        Ok(Reference { plan, outputs, remembers, idle: Mutex::default(), constant_bytes, live_peak_bytes })
    }

    /// Runs the plan on inputs in the signature's order and puts the outputs, in order, into `outputs`.
    ///
    /// # Errors
    /// An op fails or panics on these values.
    pub(crate) fn run(&self, inputs: &[Tensor], outputs: &mut Vec<Tensor>) -> Result<(), Error> {
        let mut work = || -> TractResult<()> {
            let idle = self.idle().pop();
            // A state that fails half way through may hold anything: it is not given back.
            let mut state = idle.map_or_else(|| self.plan.spawn(), Ok)?;
            let inputs: TVec<TValue> =
                inputs.iter().map(|tensor| Ok(to_tract(tensor)?.into())).collect::<TractResult<_>>()?;
            let values = state.run(inputs)?;
            outputs.clear();
            for (value, &dtype) in values.into_iter().zip(&self.outputs) {
                outputs.push(from_tract(value.into_arc_tensor(), dtype)?);
            }
            if !self.remembers {
                self.idle().push(state);
            }
            Ok(())
        };
        match caught(&mut work) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Error::Run { reason: one_line(&error) }),
            Err(Panicked(reason)) => Err(Error::Panicked { reason }),
        }
    }
}

impl Reference {
    fn idle(&self) -> MutexGuard<'_, Vec<State>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of the constants of a graph. The optimizer packs most of them anew and hides them inside its ops; packing
/// only rounds them up to whole panels.
fn constant_bytes(model: &TypedModel) -> usize {
    // Several nodes can share one tensor.
    let constants = model.nodes().iter().filter_map(|node| node.op_as::<Const>());
    let sizes: HashMap<_, _> = constants
        .map(|constant| {
            let tensor = constant.val();
            (Arc::as_ptr(tensor), tensor.len() * tensor.datum_type().size_of())
        })
        .collect();
    sizes.values().sum()
}

/// Adds up what is alive at every step: a value lives from the step that makes it to the last that reads it.
fn live_peak_bytes(plan: &Plan) -> TractResult<usize> {
    let model = plan.model();
    let order = plan.order_without_consts();
    let mut last_use: HashMap<usize, usize> = HashMap::new();
    for (step, &id) in order.iter().enumerate() {
        last_use.insert(id, step);
        for input in &model.node(id).inputs {
            last_use.insert(input.node, step);
        }
    }
    for outlet in model.output_outlets()? {
        last_use.insert(outlet.node, order.len());
    }
    let bytes = |id: usize| -> usize {
        let sizes = model.node(id).outputs.iter().filter_map(|outlet| outlet.fact.mem_size().to_i64().ok());
        sizes.filter_map(|bytes| usize::try_from(bytes).ok()).sum()
    };
    let mut ends: Vec<Vec<usize>> = vec![vec![]; order.len() + 1];
    for (&id, &step) in last_use.iter().filter(|(id, _)| !model.node(**id).op_is::<Const>()) {
        ends[step].push(id);
    }
    let (mut live, mut peak) = (0usize, 0);
    for (step, &id) in order.iter().enumerate() {
        live += bytes(id);
        peak = peak.max(live);
        live -= ends[step].iter().map(|&id| bytes(id)).sum::<usize>().min(live);
    }
    Ok(peak)
}

//! tract's own optimized plan, run whole: today's executor, and the reference for every later one.

use super::convert::{from_tract, to_tract};
use super::guard::{Panicked, caught};
use super::signature::Port;
use super::tract::{
    Const, IntoArcTensor, SimplePlan, SimpleState, TValue, TVec, TractResult, TypedModel, one_line,
};
use crate::error::Error;
use crate::tensor::{DType, Tensor};
use std::collections::HashMap;
use std::sync::Arc;
use tract_onnx::prelude::{TypedFact, TypedOp};

type Plan = SimplePlan<TypedFact, Box<dyn TypedOp>>;
type State = SimpleState<TypedFact, Box<dyn TypedOp>>;

/// A model optimized by tract for one set of input shapes.
pub(crate) struct Reference {
    plan: Arc<Plan>,
    outputs: Vec<DType>,
    /// Bytes of weights and other constants that the plan holds, packed ones included.
    pub(crate) constant_bytes: usize,
    /// Bytes of values alive at once, at the step where they are most.
    pub(crate) live_peak_bytes: usize,
}

/// What one thread keeps between runs of a [`Reference`].
pub(crate) struct ReferenceState(State);

impl Reference {
    /// Optimizes a decluttered graph whose outputs are those of the signature.
    ///
    /// # Errors
    /// tract's words.
    pub(super) fn new(model: TypedModel, outputs: &[Port]) -> TractResult<Reference> {
        let plan = SimplePlan::new(model.into_optimized()?)?;
        let constant_bytes = constant_bytes(&plan);
        let live_peak_bytes = live_peak_bytes(&plan)?;
        let outputs = outputs.iter().map(|port| port.dtype).collect();
        Ok(Reference { plan, outputs, constant_bytes, live_peak_bytes })
    }

    /// A state for one thread.
    ///
    /// # Errors
    /// An op cannot make its state.
    pub(crate) fn state(&self) -> Result<ReferenceState, Error> {
        match caught(|| self.plan.spawn()) {
            Ok(Ok(state)) => Ok(ReferenceState(state)),
            Ok(Err(error)) => Err(Error::Run { reason: one_line(&error) }),
            Err(Panicked(reason)) => Err(Error::Panicked { reason }),
        }
    }

    /// Runs the plan on inputs in the signature's order and puts the outputs, in order, into `outputs`.
    ///
    /// # Errors
    /// An op fails or panics on these values; the state must then be thrown away.
    pub(crate) fn run(
        &self,
        state: &mut ReferenceState,
        inputs: &[Tensor],
        outputs: &mut Vec<Tensor>,
    ) -> Result<(), Error> {
        let mut work = || -> TractResult<()> {
            let inputs: TVec<TValue> =
                inputs.iter().map(|tensor| Ok(to_tract(tensor)?.into())).collect::<TractResult<_>>()?;
            let values = state.0.run(inputs)?;
            outputs.clear();
            for (value, &dtype) in values.into_iter().zip(&self.outputs) {
                outputs.push(from_tract(value.into_arc_tensor(), dtype)?);
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

fn constant_bytes(plan: &Plan) -> usize {
    // Several nodes can share one tensor.
    let mut sizes: HashMap<*const (), usize> = HashMap::new();
    for node in plan.model().nodes() {
        if let Some(constant) = node.op_as::<Const>() {
            let tensor = constant.val();
            let bytes = match node.outputs.first().map(|outlet| outlet.fact.mem_size().to_i64()) {
                Some(Ok(bytes)) => usize::try_from(bytes).unwrap_or(0),
                _ => 0,
            };
            sizes.insert(Arc::as_ptr(tensor).cast(), bytes);
        }
    }
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

//! tract's ops with a judgement before each evaluation: what would be made of constants is sized first.
//!
//! While it infers shapes tract evaluates whatever depends on constants alone, and throws away what turns out too large
//! to keep. A few bytes of file can describe gigabytes, so that even for a moment is too long: here the size that was
//! inferred decides, by tract's own bound, before anything is made, and what is made is taken from the import's memory.

use super::staging::Staging;
use super::tract::{
    CONST_FOLD_MEM_BUDGET, Const, EvalContext, EvalOp, Factoid, InferenceFact, InferenceModel,
    InferenceModelPatch, InferenceNode, InferenceOp, InferenceScan, InferenceSource, IntoArcTensor, Op,
    OpState, OutletId, StaticName, TValue, TVec, Tensor, TooEarly, TractResult, TypedModel, TypedOp,
    Validation,
};
use std::collections::HashMap;
use std::sync::Arc;

/// An op whose evaluations are judged.
#[derive(Clone, Debug)]
struct Judged {
    op: Box<dyn InferenceOp>,
    staging: Arc<Staging>,
}

/// Has every op of a graph judged, those of loops' bodies included.
pub(super) fn judge(model: &mut InferenceModel, staging: &Arc<Staging>) {
    for node in &mut model.nodes {
        if let Some(scan) = node.op.as_op_mut().downcast_mut::<InferenceScan>() {
            judge(&mut scan.body, staging);
        }
        if node.op_is::<Const>() || node.op_is::<InferenceSource>() {
            continue;
        }
        node.op = Box::new(Judged { op: node.op.clone(), staging: Arc::clone(staging) });
    }
}

/// Bytes of a value whose shape is known; `None` where it is not.
pub(super) fn bytes(fact: &InferenceFact) -> Option<u64> {
    let shape = fact.shape.as_concrete_finite().ok()??;
    // Of a dtype that is not known yet, the largest.
    let size = fact.datum_type.concretize().map_or(8, |datum| datum.size_of()) as u64;
    Some(shape.iter().fold(size, |bytes, &dim| bytes.saturating_mul(dim as u64)))
}

fn tensor_bytes(tensor: &Tensor) -> u64 {
    (tensor.len() * tensor.datum_type().size_of()) as u64
}

impl Judged {
    /// What the op makes of constants, where tract would keep it.
    fn evaluated(
        &self,
        inputs: &[InferenceFact],
        outputs: &[InferenceFact],
    ) -> TractResult<Option<TVec<InferenceFact>>> {
        let small =
            |tensor: &Arc<Tensor>| tensor.is_plain_ram() && tensor_bytes(tensor) <= CONST_FOLD_MEM_BUDGET;
        let values = inputs.iter().map(|fact| fact.value.concretize().filter(small));
        let Some(values) = values.collect::<Option<TVec<Arc<Tensor>>>>() else { return Ok(None) };
        let known = outputs.iter().all(|fact| fact.value.is_concrete());
        if values.is_empty() || known {
            return Ok(None);
        }
        let input_bytes: u64 = values.iter().map(|value| tensor_bytes(value)).sum();
        let most = input_bytes.max(CONST_FOLD_MEM_BUDGET);
        let foreseen =
            outputs.iter().map(bytes).try_fold(0u64, |sum, bytes| Some(sum.saturating_add(bytes?)));
        if foreseen.is_some_and(|bytes| bytes > most) {
            return Ok(None);
        }
        if let Some(bytes) = self.range_bytes(&values).filter(|bytes| *bytes > most) {
            self.staging.take(bytes)?;
        }
        self.staging.take(foreseen.unwrap_or(0))?;
        let made = match self.op.eval_out_of_plan(values.into_iter().map(TValue::from_const).collect()) {
            Ok(Some(made)) => made,
            Ok(None) => return Ok(None),
            Err(error) if error.root_cause().is::<TooEarly>() => return Ok(None),
            Err(error) => return Err(error.context("Eager eval during inference")),
        };
        let bytes: u64 = made.iter().map(|value| tensor_bytes(value)).sum();
        self.staging.take(bytes.saturating_sub(foreseen.unwrap_or(0)))?;
        if bytes > most {
            return Ok(None);
        }
        let facts = made.into_iter().map(|value| value.into_arc_tensor().try_into());
        Ok(Some(facts.collect::<TractResult<_>>()?))
    }

    /// Bytes of a range of these numbers: tract infers its length modulo 2^32.
    fn range_bytes(&self, values: &[Arc<Tensor>]) -> Option<u64> {
        let [start, limit, step] = values else { return None };
        if self.op.name() != "Range" {
            return None;
        }
        let number = |value: &Tensor| value.cast_to_scalar::<f64>().ok();
        let elements = (number(limit)? - number(start)?) / number(step)?;
        Some(elements.ceil() as u64).map(|elements| elements.saturating_mul(8))
    }
}

impl InferenceOp for Judged {
    fn infer(
        &mut self,
        inputs: TVec<&InferenceFact>,
        outputs: TVec<&InferenceFact>,
        observed: TVec<&InferenceFact>,
    ) -> TractResult<(TVec<InferenceFact>, TVec<InferenceFact>, TVec<InferenceFact>)> {
        let (inputs, outputs, observed) = self.op.infer_facts(inputs, outputs, observed)?;
        let outputs = self.evaluated(&inputs, &outputs)?.unwrap_or(outputs);
        Ok((inputs, outputs, observed))
    }

    fn infer_facts(
        &mut self,
        inputs: TVec<&InferenceFact>,
        outputs: TVec<&InferenceFact>,
        observed: TVec<&InferenceFact>,
    ) -> TractResult<(TVec<InferenceFact>, TVec<InferenceFact>, TVec<InferenceFact>)> {
        self.op.infer_facts(inputs, outputs, observed)
    }

    fn observe_outlets(&self, model: &InferenceModel, node: &InferenceNode) -> TractResult<Vec<OutletId>> {
        self.op.observe_outlets(model, node)
    }

    fn incorporate(
        &self,
        model: &InferenceModel,
        node: &InferenceNode,
    ) -> TractResult<Option<InferenceModelPatch>> {
        self.op.incorporate(model, node)
    }

    fn nboutputs(&self) -> TractResult<usize> {
        self.op.nboutputs()
    }

    // Whoever asks what the op is means the one that is judged.
    fn as_op(&self) -> &dyn Op {
        self.op.as_op()
    }

    fn as_op_mut(&mut self) -> &mut dyn Op {
        self.op.as_op_mut()
    }

    fn to_typed(
        &self,
        source: &InferenceModel,
        node: &InferenceNode,
        target: &mut TypedModel,
        mapping: &HashMap<OutletId, OutletId>,
    ) -> TractResult<TVec<OutletId>> {
        self.op.to_typed(source, node, target, mapping)
    }
}

impl Op for Judged {
    fn name(&self) -> StaticName {
        self.op.name()
    }

    fn validation(&self) -> Validation {
        self.op.validation()
    }

    fn info(&self) -> TractResult<Vec<String>> {
        self.op.info()
    }

    fn as_typed(&self) -> Option<&dyn TypedOp> {
        self.op.as_typed()
    }
}

impl EvalOp for Judged {
    fn eval(&self, context: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        self.op.eval(context, inputs)
    }

    fn eval_out_of_plan(&self, inputs: TVec<TValue>) -> TractResult<Option<TVec<TValue>>> {
        self.op.eval_out_of_plan(inputs)
    }

    fn state(&self, context: &EvalContext) -> TractResult<Option<Box<dyn OpState>>> {
        self.op.state(context)
    }
}

impl PartialEq for Judged {
    fn eq(&self, _: &Judged) -> bool {
        false
    }
}

impl Eq for Judged {}

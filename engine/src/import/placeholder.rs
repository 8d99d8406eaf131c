//! tract's node for a constant whose values it does not see.

use super::tract::{
    AxisChangeConsequence, AxisOp, EvalContext, EvalOp, InOut, Op, StaticName, TValue, TVec, TractResult,
    TypedFact, TypedModel, TypedNode, TypedOp, TypedSource, bail,
};
use super::weights::Weights;

/// A constant that is still in the file. As those of tract's own constants its axes change as the graph around it asks
/// for; what has been asked for is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Placeholder {
    /// The constant's name in the file.
    pub(super) name: String,
    /// dtype, and the shape after the changes.
    pub(super) fact: TypedFact,
    /// What has become of the axes since the file, in that order.
    pub(super) changes: Vec<AxisOp>,
}

/// Turns the inputs of a typed graph that stand for constants into placeholders; all others stay inputs.
pub(super) fn mark(model: &mut TypedModel, weights: &Weights) {
    for outlet in model.inputs.clone() {
        let node = &mut model.nodes[outlet.node];
        let Some(source) = node.op_as::<TypedSource>().filter(|_| weights.get(&node.name).is_some()) else {
            continue;
        };
        let (name, fact) = (node.name.clone(), source.fact.clone());
        node.op = Box::new(Placeholder { name, fact, changes: vec![] });
        model.inputs.retain(|input| *input != outlet);
    }
}

impl Op for Placeholder {
    fn name(&self) -> StaticName {
        "Placeholder".into()
    }

    fn as_typed(&self) -> Option<&dyn TypedOp> {
        Some(self)
    }
}

impl EvalOp for Placeholder {
    fn eval(&self, _: &EvalContext, _: TVec<TValue>) -> TractResult<TVec<TValue>> {
        bail!("the values of `{}` have not been read", self.name)
    }

    fn eval_out_of_plan(&self, _: TVec<TValue>) -> TractResult<Option<TVec<TValue>>> {
        Ok(None)
    }
}

impl TypedOp for Placeholder {
    fn as_op(&self) -> &dyn Op {
        self
    }

    fn as_op_mut(&mut self) -> &mut dyn Op {
        self
    }

    fn output_facts(&self, _: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok([self.fact.clone()].into_iter().collect())
    }

    fn change_axes(
        &self,
        model: &TypedModel,
        node: &TypedNode,
        _: InOut,
        change: &AxisOp,
    ) -> TractResult<Option<AxisChangeConsequence>> {
        let mut changed = self.clone();
        if change.change_shape(&mut changed.fact.shape, false).is_err() {
            return Ok(None);
        }
        changed.changes.push(change.clone());
        Ok(Some(AxisChangeConsequence::new(model, node, Some(Box::new(changed)), change)))
    }
}

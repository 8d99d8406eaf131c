//! Nodes without an op of ours: tract computes them, each as a graph of its own.

use super::super::reference::Reference;
use super::super::tract::{
    DatumType, IntoArcTensor, OutletId, SpecialOps, TractResult, TypedModel, TypedNode,
};
use super::{Fact, Lower, Unplannable};
use crate::error::Error;
use crate::graph::{HostStep, Op, ValueId};
use crate::tensor::{DType, Tensor};
use std::fmt;
use std::sync::Arc;

/// tract's own computation of one node.
struct Step {
    op: String,
    reference: Reference,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.op)
    }
}

impl HostStep for Step {
    fn op(&self) -> &str {
        &self.op
    }

    fn constant_bytes(&self) -> usize {
        self.reference.constant_bytes
    }

    fn run(&self, inputs: &[Tensor], outputs: &mut Vec<Tensor>) -> Result<(), Error> {
        self.reference.run(inputs, outputs)
    }
}

impl Lower<'_> {
    /// A host step for the node. Constants go with the step, those in the file too: their values are wanted then.
    pub(super) fn host(
        &mut self,
        node: &TypedNode,
        facts: &[Fact],
    ) -> TractResult<Result<Vec<ValueId>, Unplannable>> {
        let wanted = self.fixed_inputs(node);
        if !wanted.is_empty() {
            self.wanted.extend(wanted);
            return Ok(Ok(self.unusable(node, facts)));
        }
        let mut model = TypedModel::default();
        let (mut inputs, mut wires) = (vec![], vec![]);
        for (at, outlet) in node.inputs.iter().enumerate() {
            let fact = self.model.outlet_fact(*outlet)?.clone();
            let wire = match &fact.konst {
                Some(constant) => {
                    model.add_const(format!("constant-{at}"), Arc::clone(constant).into_arc_tensor())?
                }
                None if fact.datum_type == DatumType::TDim => {
                    let reason = "reads sizes that only a run tells".into();
                    return Ok(Err(Unplannable { node: node.name.clone(), reason }));
                }
                None => match self.value(*outlet) {
                    Ok(id) => {
                        inputs.push(id);
                        model.add_source(format!("input-{at}"), fact.without_value())?
                    }
                    Err(unplannable) => return Ok(Err(unplannable)),
                },
            };
            wires.push(wire);
        }
        let outlets: Vec<OutletId> = model.wire_node(&node.name, node.op.clone(), &wires)?.to_vec();
        model.select_output_outlets(&outlets)?;
        let dtypes: Vec<DType> = facts.iter().map(|(dtype, _)| *dtype).collect();
        let reference = Reference::of_dtypes(model, dtypes)?;
        let step = Step { op: node.op.name().to_string(), reference };
        let facts: Vec<(DType, &[usize])> =
            facts.iter().map(|(dtype, shape)| (*dtype, shape.as_slice())).collect();
        Ok(Ok(self.builder.nodes(&node.name, Op::Host(Arc::new(step)), &inputs, &facts)))
    }
}

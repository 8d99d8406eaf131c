//! tract's decluttered typed graph → our [`Graph`], node by node.
//!
//! What has no op of ours becomes a host step: tract's own computation of that node. A model with values whose size
//! or dtype is not known ahead cannot be planned at all and is run whole by the reference.

mod fixed;
mod host;
mod image;
mod nodes;
mod pointwise;

use super::convert::{dtype_of_tract, from_tract};
use super::placeholder::Placeholder;
use super::tract::{Const, OutletId, TractResult, TypedModel, TypedNode, TypedSource};
use super::weights::Weights;
use crate::graph::{Builder, Graph, Op, ValueId};
use crate::tensor::{DType, Shape};
use fixed::Fixed;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Why a model cannot be planned and is run whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unplannable {
    /// The node's name in the file.
    pub(crate) node: String,
    /// What is not known ahead.
    pub(crate) reason: String,
}

/// What came of a lowering.
pub(super) enum Lowering {
    /// Our graph.
    Graph(Graph),
    /// The values of these constants are needed for it: tract computes with them.
    Wants(BTreeSet<String>),
    /// The model cannot be planned.
    Unplannable(Unplannable),
}

/// Lowers a decluttered graph; the inputs and outputs keep their order.
///
/// # Errors
/// tract's words, where a host step cannot be made.
pub(super) fn lower(model: &TypedModel, weights: &Weights) -> TractResult<Lowering> {
    let mut lower = Lower {
        model,
        weights,
        builder: Builder::new(),
        made: HashMap::new(),
        fixed: HashMap::new(),
        wanted: BTreeSet::new(),
    };
    let outputs = match lower.graph()? {
        Ok(outputs) => outputs,
        Err(unplannable) => return Ok(Lowering::Unplannable(unplannable)),
    };
    if !lower.wanted.is_empty() {
        return Ok(Lowering::Wants(lower.wanted));
    }
    let mut graph = lower.builder.finish(&outputs);
    graph.prune();
    Ok(Lowering::Graph(graph))
}

/// A lowering under way.
struct Lower<'a> {
    model: &'a TypedModel,
    weights: &'a Weights,
    builder: Builder,
    made: HashMap<OutletId, ValueId>,
    /// The values that depend on constants alone, some of which are in the file.
    fixed: HashMap<OutletId, Fixed>,
    /// Constants in the file whose values are needed.
    wanted: BTreeSet<String>,
}

/// dtype and shape.
type Fact = (DType, Shape);

impl Lower<'_> {
    /// Lowers every node; gives the outputs.
    fn graph(&mut self) -> TractResult<Result<Vec<ValueId>, Unplannable>> {
        for outlet in self.model.input_outlets()? {
            let (dtype, shape) = match self.fact(*outlet) {
                Ok(fact) => fact,
                Err(unplannable) => return Ok(Err(unplannable)),
            };
            let id = self.builder.input(&self.model.node(outlet.node).name, dtype, &shape);
            self.made.insert(*outlet, id);
        }
        for id in self.model.eval_order()? {
            let node = self.model.node(id);
            if node.op_is::<TypedSource>() || node.op_is::<Const>() {
                continue;
            }
            let lowered = match node.op_as::<Placeholder>() {
                Some(op) => self.placeholder(node, op),
                None => self.node(node)?,
            };
            if let Err(unplannable) = lowered {
                return Ok(Err(unplannable));
            }
        }
        Ok(self.model.output_outlets()?.iter().map(|outlet| self.value(*outlet)).collect())
    }

    /// Lowers one node.
    fn node(&mut self, node: &TypedNode) -> TractResult<Result<(), Unplannable>> {
        let outlets = (0..node.outputs.len()).map(|slot| OutletId::new(node.id, slot));
        let facts: Result<Vec<Fact>, Unplannable> = outlets.map(|outlet| self.fact(outlet)).collect();
        let facts = match facts {
            Ok(facts) => facts,
            Err(unplannable) => return Ok(Err(unplannable)),
        };
        let before = self.builder.graph().nodes.len();
        let constant = self.reads_constants_alone(node);
        let native = if constant { None } else { self.native(node, &facts) };
        let made = match native {
            _ if constant => self.fixed_node(node, &facts),
            Some(made) if self.holds_together(before) => made,
            _ => {
                self.builder.forget_nodes_after(before);
                match self.host(node, &facts)? {
                    Ok(made) => made,
                    Err(unplannable) => return Ok(Err(unplannable)),
                }
            }
        };
        for (slot, id) in made.into_iter().enumerate() {
            self.made.insert(OutletId::new(node.id, slot), id);
        }
        Ok(Ok(()))
    }

    /// Whether the nodes from that one on are what their ops demand: an op of tract's may allow more than ours.
    fn holds_together(&self, from: usize) -> bool {
        let graph = self.builder.graph();
        graph.nodes[from..].iter().all(|node| graph.check_node(node).is_ok())
    }

    /// dtype and shape of an outlet.
    fn fact(&self, outlet: OutletId) -> Result<Fact, Unplannable> {
        let node = self.model.node(outlet.node);
        let fact = &node.outputs[outlet.slot].fact;
        let unplannable = |reason: String| Unplannable { node: node.name.clone(), reason };
        let shape =
            fact.shape.as_concrete().ok_or_else(|| unplannable(format!("its shape is {:?}", fact.shape)))?;
        let dtype = dtype_of_tract(fact.datum_type).filter(|dtype| *dtype != DType::Bytes);
        let plain = fact.exotic_fact.is_none();
        let dtype = dtype
            .filter(|_| plain)
            .ok_or_else(|| unplannable(format!("its values are {:?}", fact.datum_type)))?;
        Ok((dtype, shape.into()))
    }

    /// Our value for an outlet; a constant becomes one when it is first asked for.
    fn value(&mut self, outlet: OutletId) -> Result<ValueId, Unplannable> {
        if let Some(id) = self.made.get(&outlet) {
            return Ok(*id);
        }
        let (dtype, shape) = self.fact(outlet)?;
        let node = self.model.node(outlet.node);
        let unplannable = |reason: &str| Unplannable { node: node.name.clone(), reason: reason.into() };
        let constant = self.model.outlet_fact(outlet).ok().and_then(|fact| fact.konst.clone());
        let constant = constant.ok_or_else(|| unplannable("nothing makes it"))?;
        let tensor = from_tract(Arc::clone(&constant), dtype)
            .map_err(|_| unplannable("a constant of another dtype"))?;
        let bytes = tensor.as_bytes().cloned().unwrap_or_default();
        let id = self.builder.constant(&node.name, dtype, &shape, bytes);
        self.made.insert(outlet, id);
        Ok(id)
    }

    /// Whether a value is a constant or a view of one.
    fn is_constant(&self, id: ValueId) -> bool {
        let graph = self.builder.graph();
        let fixed = || self.fixed.keys().any(|outlet| self.made.get(outlet) == Some(&id));
        graph.value(id).constant.is_some() || fixed()
    }

    /// Our value for an input of a node; `None` where it cannot be one of ours.
    fn input(&mut self, node: &TypedNode, at: usize) -> Option<ValueId> {
        self.value(*node.inputs.get(at)?).ok()
    }

    /// dtype and shape of an input of a node.
    fn input_fact(&self, node: &TypedNode, at: usize) -> Option<Fact> {
        self.fact(*node.inputs.get(at)?).ok()
    }

    /// Whether every input and output is f32.
    fn all_floats(&self, node: &TypedNode, facts: &[Fact]) -> bool {
        let inputs = (0..node.inputs.len())
            .all(|at| self.input_fact(node, at).is_some_and(|(dtype, _)| dtype == DType::F32));
        inputs && facts.iter().all(|(dtype, _)| *dtype == DType::F32)
    }

    /// A node with one output.
    fn one(&mut self, node: &TypedNode, op: Op, inputs: &[ValueId], fact: &Fact) -> Vec<ValueId> {
        vec![self.builder.node(&node.name, op, inputs, fact.0, &fact.1)]
    }
}

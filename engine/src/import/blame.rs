//! A step of the import that panics names the node at fault: the step is tried on ever shorter beginnings of the
//! graph until the node is found that makes the difference.

use super::file::label;
use super::guard::{Panicked, caught, first_failing};
use super::tract::pb::{GraphProto, ModelProto, ValueInfoProto};
use super::tract::{AnyOp, Fact, Graph, InletId, OutletId, TractResult, one_line};
use crate::error::Error;
use std::collections::{HashMap, HashSet};

/// Why a step failed, before it is told which shapes it was for.
pub(super) enum Failure {
    Error(String),
    Panic(String),
    Node { node: String, op: String, reason: String },
    TooLarge { node: String, shape: Vec<usize>, largest_bytes: u64 },
    Weights { name: String, source: std::io::Error },
}

impl Failure {
    /// The failure as an error of preparing a model for `shapes`.
    pub(super) fn at(self, shapes: &str) -> Error {
        match self {
            Failure::Error(reason) => Error::Prepare { shapes: shapes.into(), reason },
            Failure::Panic(text) => {
                Error::Prepare { shapes: shapes.into(), reason: format!("the importer gave up: {text}") }
            }
            Failure::Node { node, op, reason } => Error::Node { node, op, reason },
            Failure::TooLarge { node, shape, largest_bytes } => {
                Error::TooLarge { node, shape, largest_bytes }
            }
            Failure::Weights { name, source } => Error::Weights { name, source },
        }
    }

    /// Whether the failure may be for want of a value that has not been read, and if so what was said of it.
    pub(super) fn may_want_values(&self) -> Option<String> {
        match self {
            Failure::Error(text) | Failure::Panic(text) => Some(text.clone()),
            Failure::Node { node, reason, .. } => Some(format!("{node}: {reason}")),
            Failure::TooLarge { .. } | Failure::Weights { .. } => None,
        }
    }
}

/// Runs a step on a parsed graph.
pub(super) fn on_graph<F: Fact + Clone + 'static, O: AnyOp, T>(
    graph: &Graph<F, O>,
    step: impl Fn(Graph<F, O>) -> TractResult<T>,
) -> Result<T, Failure> {
    let text = match caught(|| step(graph.clone())) {
        Ok(result) => return result.map_err(|error| Failure::Error(one_line(&error))),
        Err(Panicked(text)) => text,
    };
    let Ok(mut order) = graph.eval_order() else { return Err(Failure::Panic(text)) };
    // The inputs first, so that every beginning has them: the step gives them their shapes.
    order.sort_by_key(|id| graph.inputs.iter().all(|input| input.node != *id));
    let panics = |count: usize| caught(|| step(beginning(graph, &order[..count])).map(drop)).is_err();
    if order.is_empty() || !panics(order.len()) {
        return Err(Failure::Panic(text));
    }
    let node = graph.node(order[first_failing(order.len(), panics) - 1]);
    let op = node.op.as_ref().name().into_owned();
    Err(Failure::Node { node: node.name.clone(), op, reason: text })
}

/// The graph of `nodes` alone, given in an order of evaluation, with every value as an output that none of them
/// reads. Built anew: what is merely unreachable in a graph is still looked at by tract's inference of shapes.
fn beginning<F: Fact + Clone + 'static, O: AnyOp>(graph: &Graph<F, O>, nodes: &[usize]) -> Graph<F, O> {
    let place: HashMap<usize, usize> = nodes.iter().enumerate().map(|(at, &id)| (id, at)).collect();
    let moved = |outlet: &OutletId| Some(OutletId::new(*place.get(&outlet.node)?, outlet.slot));
    let mut part = graph.clone();
    part.nodes = nodes.iter().map(|&id| graph.node(id).clone()).collect();
    for (at, node) in part.nodes.iter_mut().enumerate() {
        node.id = at;
        node.inputs = node.inputs.iter().filter_map(moved).collect();
        for outlet in &mut node.outputs {
            let successors = outlet.successors.iter();
            let kept =
                successors.filter_map(|inlet| Some(InletId::new(*place.get(&inlet.node)?, inlet.slot)));
            outlet.successors = kept.collect();
        }
    }
    part.inputs = graph.inputs.iter().filter_map(moved).collect();
    part.outlet_labels.clear();
    let made = part
        .nodes
        .iter()
        .flat_map(|node| node.outputs.iter().enumerate().map(move |(slot, out)| (node.id, slot, out)));
    let ends = made.filter(|(_, _, outlet)| outlet.successors.is_empty());
    part.outputs = ends.map(|(id, slot, _)| OutletId::new(id, slot)).collect();
    part
}

/// Runs a step on a decoded file.
pub(super) fn on_file<T>(
    proto: &ModelProto,
    step: impl Fn(&ModelProto) -> TractResult<T>,
) -> Result<T, Failure> {
    let text = match caught(|| step(proto)) {
        Ok(result) => return result.map_err(|error| Failure::Error(one_line(&error))),
        Err(Panicked(text)) => text,
    };
    let Some(graph) = &proto.graph else { return Err(Failure::Panic(text)) };
    let panics = |count: usize| {
        let part = ModelProto { graph: Some(beginning_of_file(graph, count)), ..without_graph(proto) };
        caught(|| step(&part).map(drop)).is_err()
    };
    if graph.node.is_empty() || !panics(graph.node.len()) {
        return Err(Failure::Panic(text));
    }
    let node = &graph.node[first_failing(graph.node.len(), panics) - 1];
    Err(Failure::Node { node: label(node).into(), op: node.op_type.clone(), reason: text })
}

/// What of a file the reader looks at besides its graph.
pub(super) fn without_graph(proto: &ModelProto) -> ModelProto {
    ModelProto { opset_import: proto.opset_import.clone(), ..Default::default() }
}

fn beginning_of_file(graph: &GraphProto, count: usize) -> GraphProto {
    let nodes = &graph.node[..count];
    let read: HashSet<&String> = nodes.iter().flat_map(|node| &node.input).collect();
    let ends =
        nodes.iter().flat_map(|node| &node.output).filter(|name| !name.is_empty() && !read.contains(name));
    GraphProto {
        node: nodes.to_vec(),
        output: ends.map(|name| ValueInfoProto { name: name.clone(), ..Default::default() }).collect(),
        initializer: graph.initializer.clone(),
        input: graph.input.clone(),
        name: graph.name.clone(),
        ..Default::default()
    }
}

//! A step of the import that panics names the node at fault: the step is tried on ever shorter beginnings of the
//! graph until the node is found that makes the difference.

use super::file::label;
use super::guard::{Panicked, caught, first_failing};
use super::tract::pb::{GraphProto, ModelProto, ValueInfoProto};
use super::tract::{AnyOp, Fact, Graph, OutletId, TractResult, one_line};
use crate::error::Error;
use std::collections::HashSet;

/// Why a step failed, before it is told which shapes it was for.
pub(super) enum Failure {
    Error(String),
    Panic(String),
    Node { node: String, op: String, reason: String },
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
    let Ok(order) = graph.eval_order() else { return Err(Failure::Panic(text)) };
    let panics = |count: usize| caught(|| step(beginning(graph, &order[..count])).map(drop)).is_err();
    if order.is_empty() || !panics(order.len()) {
        return Err(Failure::Panic(text));
    }
    let node = graph.node(order[first_failing(order.len(), panics) - 1]);
    let op = node.op.as_ref().name().into_owned();
    Err(Failure::Node { node: node.name.clone(), op, reason: text })
}

/// The graph with every value as an output that `nodes` make and none of them reads.
fn beginning<F: Fact + Clone + 'static, O: AnyOp>(graph: &Graph<F, O>, nodes: &[usize]) -> Graph<F, O> {
    let read: HashSet<OutletId> =
        nodes.iter().flat_map(|&id| graph.node(id).inputs.iter().copied()).collect();
    let made = nodes
        .iter()
        .flat_map(|&id| (0..graph.node(id).outputs.len()).map(move |slot| OutletId::new(id, slot)));
    let mut beginning = graph.clone();
    // The inference of shapes follows edges both ways: those out of the beginning are cut.
    let kept: HashSet<usize> = nodes.iter().copied().collect();
    for node in beginning.nodes_mut() {
        if !kept.contains(&node.id) {
            node.inputs.clear();
        }
        for outlet in &mut node.outputs {
            outlet.successors.retain(|inlet| kept.contains(&inlet.node));
        }
    }
    beginning.outputs = made.filter(|outlet| !read.contains(outlet)).collect();
    beginning
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

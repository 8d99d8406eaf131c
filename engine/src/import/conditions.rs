//! `If` nodes whose condition is constant at the given shapes are replaced by the branch that is taken.
//!
//! tract wants both branches of an `If` to agree in shape, and real models (silero-vad) have branches that do not:
//! one for 8 kHz, one for 16 kHz. The condition depends on a constant input or on shapes alone, so it can be
//! decided here, once the shapes are known. The condition itself is decided by tract on the part of the graph
//! that leads to it.

use super::file::label;
use super::tract::pb::{AttributeProto, GraphProto, NodeProto, ValueInfoProto};
use std::collections::{HashMap, HashSet};

/// Decides the bool value `name` of a graph at the shapes at hand, or `None` where it depends on the values of
/// inputs.
pub(super) type Decide<'a> = dyn Fn(GraphProto, &str) -> Option<bool> + 'a;

/// Whether the graph has an `If` at its top level.
pub(super) fn has_conditions(graph: &GraphProto) -> bool {
    graph.node.iter().any(is_if)
}

/// Replaces every top-level `If` that `decide` can decide, those that come out of a taken branch included; the
/// others stay.
pub(super) fn fold(graph: &mut GraphProto, decide: &Decide<'_>) {
    let mut at = 0;
    while at < graph.node.len() {
        if !is_if(&graph.node[at]) {
            at += 1;
            continue;
        }
        let condition = graph.node[at].input.first().cloned().unwrap_or_default();
        let taken = decide(leading_to(graph, at, &condition), &condition);
        let branch = taken.and_then(|yes| branch(&graph.node[at], yes));
        match branch {
            // The branch's own nodes come next, an `If` among them included.
            Some(branch) => inline(graph, at, branch),
            None => at += 1,
        }
    }
}

fn is_if(node: &NodeProto) -> bool {
    node.op_type == "If" && (node.domain.is_empty() || node.domain == "ai.onnx")
}

fn branch(node: &NodeProto, yes: bool) -> Option<GraphProto> {
    let name = if yes { "then_branch" } else { "else_branch" };
    node.attribute.iter().find(|attribute| attribute.name == name)?.g.clone()
}

/// The part of the graph, up to node `end`, that makes the value `name`, as a graph with that one output.
fn leading_to(graph: &GraphProto, end: usize, name: &str) -> GraphProto {
    let mut wanted: HashSet<String> = HashSet::from([name.to_string()]);
    let mut nodes = vec![];
    for node in graph.node[..end].iter().rev() {
        if node.output.iter().any(|output| wanted.contains(output)) {
            wanted.extend(node.input.iter().cloned());
            for attribute in &node.attribute {
                attribute.g.iter().for_each(|inner| captured(inner, &mut wanted));
            }
            nodes.push(node.clone());
        }
    }
    nodes.reverse();
    GraphProto {
        node: nodes,
        initializer: graph.initializer.iter().filter(|t| wanted.contains(&t.name)).cloned().collect(),
        input: graph.input.iter().filter(|value| wanted.contains(&value.name)).cloned().collect(),
        output: vec![ValueInfoProto { name: name.into(), ..Default::default() }],
        ..Default::default()
    }
}

/// Every name that a nested graph reads; those that it makes itself do no harm among them.
fn captured(graph: &GraphProto, names: &mut HashSet<String>) {
    names.extend(graph.output.iter().map(|value| value.name.clone()));
    for node in &graph.node {
        names.extend(node.input.iter().cloned());
        for attribute in &node.attribute {
            attribute.g.iter().for_each(|inner| captured(inner, names));
        }
    }
}

/// Puts the nodes of `branch` in the place of the `If` at `at`. Names that the branch makes get the `If`'s name in
/// front, so that they clash with none outside; its outputs get the names of the `If`'s outputs.
fn inline(graph: &mut GraphProto, at: usize, branch: GraphProto) {
    let node = graph.node.remove(at);
    let prefix = label(&node).to_string();
    let mut renamed: HashMap<String, String> = HashMap::new();
    let made =
        branch.node.iter().flat_map(|inner| &inner.output).chain(branch.initializer.iter().map(|t| &t.name));
    for name in made.filter(|name| !name.is_empty()) {
        renamed.insert(name.clone(), format!("{prefix}/{name}"));
    }
    let computed: HashSet<&String> = branch.node.iter().flat_map(|inner| &inner.output).collect();
    let mut copies = vec![];
    let mut given = HashSet::new();
    for (inner, outer) in branch.output.iter().zip(&node.output).filter(|(_, outer)| !outer.is_empty()) {
        if computed.contains(&inner.name) && given.insert(&inner.name) {
            renamed.insert(inner.name.clone(), outer.clone());
        } else {
            copies.push((inner.name.clone(), outer.clone()));
        }
    }
    let mut nodes: Vec<NodeProto> = branch.node.clone();
    for inner in &mut nodes {
        inner.name = format!("{prefix}/{}", inner.name);
        rename_node(inner, &renamed);
    }
    for (inner, outer) in copies {
        nodes.push(NodeProto {
            name: format!("{prefix}/{outer}"),
            op_type: "Identity".into(),
            input: vec![renamed.get(&inner).cloned().unwrap_or(inner)],
            output: vec![outer],
            ..Default::default()
        });
    }
    graph.initializer.extend(branch.initializer.into_iter().map(|mut tensor| {
        rename(&mut tensor.name, &renamed);
        tensor
    }));
    graph.node.splice(at..at, nodes);
}

fn rename_node(node: &mut NodeProto, names: &HashMap<String, String>) {
    node.input.iter_mut().chain(&mut node.output).for_each(|name| rename(name, names));
    let inner = |attribute: &mut AttributeProto| attribute.g.iter_mut().for_each(|g| rename_graph(g, names));
    node.attribute.iter_mut().for_each(inner);
}

/// Renames what a nested graph captures; ONNX forbids it to make a name that is already known outside.
fn rename_graph(graph: &mut GraphProto, names: &HashMap<String, String>) {
    graph.node.iter_mut().for_each(|node| rename_node(node, names));
    graph.output.iter_mut().for_each(|value| rename(&mut value.name, names));
}

fn rename(name: &mut String, names: &HashMap<String, String>) {
    if let Some(new) = names.get(name) {
        name.clone_from(new);
    }
}

#[cfg(test)]
mod tests;

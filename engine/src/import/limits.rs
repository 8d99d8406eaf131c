//! What a graph would make, held against what all models together may take, before it is made.
//!
//! A few bytes of file can describe terabytes, and tract makes what is constant as soon as it may: shapes that are
//! written in the file are looked at before tract sees them, all others once tract has inferred them.

use super::blame::Failure;
use super::file::label;
use super::judged;
use super::staging::Staging;
use super::tract::pb::{GraphProto, TensorProto};
use super::tract::{Factoid, InferenceModel, InferenceNode, one_line};
use crate::error::Error;
use std::collections::{HashMap, HashSet};

/// Refuses a graph that fills or expands a value to a shape, written in the file, that is larger.
pub(super) fn check_written_shapes(graph: &GraphProto, largest_bytes: u64) -> Result<(), Error> {
    let constants = written(graph);
    for node in &graph.node {
        let shape = match node.op_type.as_str() {
            "ConstantOfShape" => node.input.first(),
            "Expand" => node.input.get(1),
            _ => continue,
        };
        let Some(tensor) = shape.and_then(|name| constants.get(name.as_str())) else { continue };
        let shape = longs(tensor);
        // The element's size is not looked at: a byte each is the least.
        let elements = shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim.unsigned_abs()));
        if elements.is_none_or(|elements| elements > largest_bytes) && !shape.contains(&0) {
            let shape = shape.iter().map(|&dim| dim.unsigned_abs() as usize).collect();
            return Err(Error::TooLarge { node: label(node).into(), shape, largest_bytes });
        }
    }
    Ok(())
}

/// The tensors that a graph has as initializers and as `Constant` nodes.
pub(super) fn written(graph: &GraphProto) -> HashMap<&str, &TensorProto> {
    let constants = graph.node.iter().filter(|node| node.op_type == "Constant").filter_map(|node| {
        let tensor = node.attribute.iter().find(|attribute| attribute.name == "value")?.t.as_ref()?;
        Some((node.output.first()?.as_str(), tensor))
    });
    graph.initializer.iter().map(|tensor| (tensor.name.as_str(), tensor)).chain(constants).collect()
}

/// The elements of an i64 tensor.
pub(super) fn longs(tensor: &TensorProto) -> Vec<i64> {
    if tensor.raw_data.is_empty() {
        return tensor.int64_data.clone();
    }
    let eight = tensor.raw_data.chunks_exact(8);
    eight.filter_map(|bytes| bytes.try_into().ok().map(i64::from_le_bytes)).collect()
}

/// Refuses a graph in which tract has inferred a value to be too large, and takes the memory of what tract is about to
/// make of constants.
pub(super) fn check_inferred_shapes(model: &InferenceModel, staging: &Staging) -> Result<(), Failure> {
    let largest_bytes = staging.largest_bytes();
    let mut made = Made::default();
    let order = model.eval_order().map_err(|error| Failure::Error(one_line(&error)))?;
    for node in order.into_iter().map(|id| model.node(id)) {
        for fact in node.outputs.iter().map(|outlet| &outlet.fact) {
            if judged::bytes(fact).is_none_or(|bytes| bytes <= largest_bytes) {
                continue;
            }
            let shape = fact.shape.as_concrete_finite().ok().flatten().unwrap_or_default().to_vec();
            if !shape.contains(&0) {
                let node = node.name.clone();
                return Err(Failure::TooLarge { node, shape, largest_bytes });
            }
        }
        made.note(node);
    }
    // Those that tract keeps; and while it folds them, one more for a moment.
    staging
        .take(made.bytes.saturating_add(made.largest))
        .map_err(|refused| Failure::Error(refused.to_string()))
}

/// What depends on constants alone, and was too large to be made while shapes were inferred.
#[derive(Default)]
struct Made {
    nodes: HashSet<usize>,
    bytes: u64,
    largest: u64,
}

impl Made {
    /// Looks at a node whose inputs were looked at before.
    fn note(&mut self, node: &InferenceNode) {
        let known = node.outputs.iter().all(|outlet| outlet.fact.value.is_concrete());
        let made =
            !node.inputs.is_empty() && node.inputs.iter().all(|input| self.nodes.contains(&input.node));
        if known || made {
            self.nodes.insert(node.id);
        }
        if made && !known {
            let outputs = node.outputs.iter().filter_map(|outlet| judged::bytes(&outlet.fact));
            let bytes = outputs.fold(0, u64::saturating_add);
            self.bytes = self.bytes.saturating_add(bytes);
            self.largest = self.largest.max(bytes);
        }
    }
}

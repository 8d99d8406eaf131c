//! What a graph would make, held against what all models together may take, before it is made.
//!
//! A few bytes of file can describe terabytes, and tract makes what is constant as soon as it may: shapes that are
//! written in the file are looked at before tract sees them, all others once tract has inferred them.

use super::blame::Failure;
use super::file::label;
use super::tract::pb::{GraphProto, TensorProto};
use super::tract::{Factoid, InferenceModel};
use crate::error::Error;
use std::collections::HashMap;

/// Refuses a graph that fills or expands a value to a shape, written in the file, that is larger.
pub(super) fn check_written_shapes(graph: &GraphProto, largest_bytes: u64) -> Result<(), Error> {
    let written = graph.node.iter().filter(|node| node.op_type == "Constant").filter_map(|node| {
        let tensor = node.attribute.iter().find(|attribute| attribute.name == "value")?.t.as_ref()?;
        Some((node.output.first()?.as_str(), tensor))
    });
    let initial = graph.initializer.iter().map(|tensor| (tensor.name.as_str(), tensor));
    let constants: HashMap<&str, &TensorProto> = initial.chain(written).collect();
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

fn longs(tensor: &TensorProto) -> Vec<i64> {
    if tensor.raw_data.is_empty() {
        return tensor.int64_data.clone();
    }
    let eight = tensor.raw_data.chunks_exact(8);
    eight.filter_map(|bytes| bytes.try_into().ok().map(i64::from_le_bytes)).collect()
}

/// Refuses a graph in which tract has inferred a value to be larger.
pub(super) fn check_inferred_shapes(model: &InferenceModel, largest_bytes: u64) -> Result<(), Failure> {
    for node in model.nodes() {
        for fact in node.outputs.iter().map(|outlet| &outlet.fact) {
            let Ok(Some(shape)) = fact.shape.as_concrete_finite() else { continue };
            let size = fact.datum_type.concretize().map_or(1, |datum| datum.size_of()) as u64;
            let bytes = shape.iter().try_fold(size, |bytes, &dim| bytes.checked_mul(dim as u64));
            if bytes.is_none_or(|bytes| bytes > largest_bytes) && !shape.contains(&0) {
                let (node, shape) = (node.name.clone(), shape.to_vec());
                return Err(Failure::TooLarge { node, shape, largest_bytes });
            }
        }
    }
    Ok(())
}

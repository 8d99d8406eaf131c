//! Large values that a file describes as one element over and over (`ConstantOfShape` of a written shape): they stay a
//! description, as the large constants stay in the file.

use super::convert::dtype_of_onnx;
use super::limits::{longs, written};
use super::skeleton::LARGE_BYTES;
use super::tract::pb::{GraphProto, NodeProto, TensorProto};
use super::weights::Weight;
use crate::graph::Data;
use crate::tensor::{DType, Shape, volume};
use smallvec::SmallVec;
use std::collections::HashMap;

/// The large ones of a graph, up to `largest_bytes`, by the name of the value; what the graph gives as it is stays a
/// node.
pub(super) fn of(graph: &GraphProto, largest_bytes: u64) -> HashMap<String, Weight> {
    let constants = written(graph);
    let given = |name: &str| graph.output.iter().any(|value| value.name == name);
    let nodes = graph.node.iter().filter(|node| node.op_type == "ConstantOfShape" && node.domain.is_empty());
    let fills = nodes.filter_map(|node| {
        let ([shape], [name]) = (&node.input[..], &node.output[..]) else { return None };
        let weight = fill(node, constants.get(shape.as_str())?)?;
        (!given(name) && weight.data.len() as u64 <= largest_bytes).then(|| (name.clone(), weight))
    });
    fills.collect()
}

fn fill(node: &NodeProto, shape: &TensorProto) -> Option<Weight> {
    let shape: Option<Shape> = longs(shape).into_iter().map(|dim| usize::try_from(dim).ok()).collect();
    let (shape, (dtype, element)) = (shape?, element(node)?);
    let len = volume(&shape)?.checked_mul(element.len())?;
    (len > LARGE_BYTES).then(|| Weight { dtype, shape, data: Data::Filled { element, len } })
}

/// The element's dtype and bytes; `None` for dtypes that weights do not have.
fn element(node: &NodeProto) -> Option<(DType, SmallVec<[u8; 8]>)> {
    let Some(value) = node.attribute.iter().find(|attribute| attribute.name == "value") else {
        return Some((DType::F32, SmallVec::from_elem(0, 4)));
    };
    let value = value.t.as_ref()?;
    let dtype = dtype_of_onnx(value.data_type).ok()?;
    let size = dtype.size_bytes().filter(|_| dtype != DType::Bool)?;
    let bytes: SmallVec<[u8; 8]> = match dtype {
        _ if !value.raw_data.is_empty() => value.raw_data[..].into(),
        DType::F32 => value.float_data.first()?.to_le_bytes()[..].into(),
        DType::I64 => value.int64_data.first()?.to_le_bytes()[..].into(),
        _ => return None,
    };
    (bytes.len() == size).then_some((dtype, bytes))
}

//! External data of tensors that are no constants of the graph itself: other attributes of any node, and all of a nested
//! graph. It is put into the graph, so that tract opens no file.

use super::super::external::External;
use super::super::staging::Staging;
use super::super::tract::pb::tensor_proto::DataLocation;
use super::super::tract::pb::{GraphProto, NodeProto, TensorProto};
use crate::error::Error;

/// Brings what still lies in files beside the model.
///
/// # Errors
/// It cannot be read, or lies where it may not.
pub(super) fn bring(
    graph: &mut GraphProto,
    external: &mut External<'_>,
    staging: &Staging,
) -> Result<(), Error> {
    // Of those the data can stay where it is.
    let others = graph.node.iter_mut().filter(|node| node.op_type != "Constant");
    others.into_iter().try_for_each(|node| in_node(node, &mut |tensor| bring_one(tensor, external, staging)))
}

fn bring_one(tensor: &mut TensorProto, external: &mut External<'_>, staging: &Staging) -> Result<(), Error> {
    if tensor.data_location != Some(DataLocation::External as i32) {
        return Ok(());
    }
    let name = tensor.name.clone();
    let malformed = |reason: String| Error::Malformed { reason: format!("the data of `{name}`: {reason}") };
    let data = external.data(tensor).map_err(malformed)?;
    // It is parsed out of the graph later, while the graph still has it.
    staging.claim(2 * data.len() as u64)?;
    let loaded = data.load().map_err(|source| Error::Weights { name: name.clone(), source })?;
    tensor.raw_data = loaded.into();
    tensor.external_data.clear();
    tensor.data_location = None;
    Ok(())
}

type Visit<'a> = dyn FnMut(&mut TensorProto) -> Result<(), Error> + 'a;

fn in_node(node: &mut NodeProto, visit: &mut Visit<'_>) -> Result<(), Error> {
    for attribute in &mut node.attribute {
        attribute.t.iter_mut().chain(&mut attribute.tensors).try_for_each(&mut *visit)?;
        for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
            graph.initializer.iter_mut().try_for_each(&mut *visit)?;
            graph.node.iter_mut().try_for_each(|node| in_node(node, visit))?;
        }
    }
    Ok(())
}

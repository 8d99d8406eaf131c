//! What a request says of itself before its tensors are there: enough to refuse it while they are on their way.

use super::{Parameters, dtype, find, json, members, sought, utf8};
use plimsoll_engine::import::Signature;
use plimsoll_engine::tensor::Shape;
use std::time::Duration;

/// The JSON in front of binary tensors.
pub(crate) struct Ahead {
    /// The shapes of the inputs, in the signature's order.
    pub(crate) shapes: Vec<Shape>,
    /// The deadline that it asks for.
    pub(crate) timeout: Option<Duration>,
}

/// Reads the JSON in front of binary tensors that are still to come. `None` where it has any fault: [`super::decode`] tells
/// which, once the body is whole.
pub(crate) fn ahead(head: &[u8], signature: &Signature) -> Option<Ahead> {
    let head = members::parse(utf8(head, true).ok()?, sought(signature)).ok()?;
    let timeout = Parameters::of_request(head.parameters).ok()?.timeout;
    let mut shapes: Vec<Option<Shape>> = vec![None; signature.inputs.len()];
    for (at, [name, datatype, shape, ..]) in head.inputs?.into_iter().enumerate() {
        let (index, port) = find("inputs", at, name, &signature.inputs).ok()?;
        let shape = json::shape(shape?.get()).ok()?;
        port.check(dtype(datatype).ok()?, &shape).ok()?;
        *shapes.get_mut(index)? = Some(shape);
    }
    Some(Ahead { shapes: shapes.into_iter().collect::<Option<_>>()?, timeout })
}

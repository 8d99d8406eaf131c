//! What a request says of itself before its tensors are there: enough to refuse it while they are on their way.

use super::{BadRequest, Field, Parameters, Problem, dtype, find, json, members, sought, utf8};
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
    read(head, signature).ok()
}

fn read(head: &[u8], signature: &Signature) -> Result<Ahead, BadRequest> {
    let fault = |problem: Problem| problem.at(Field::Request);
    let text = utf8(head, true)?;
    let head =
        members::parse(text, sought(signature)).map_err(|_| fault(Problem::Missing { member: "inputs" }))?;
    let timeout = Parameters::of_request(head.parameters).map_err(fault)?.timeout;
    let mut shapes: Vec<Option<Shape>> = vec![None; signature.inputs.len()];
    for (at, [name, datatype, shape, ..]) in head.inputs.unwrap_or_default().into_iter().enumerate() {
        let (index, port) = find("inputs", at, name, &signature.inputs)?;
        let raw = shape.ok_or_else(|| fault(Problem::Missing { member: "shape" }))?;
        let shape = json::shape(raw.get()).map_err(fault)?;
        port.check(dtype(datatype).map_err(fault)?, &shape)?;
        shapes[index] = Some(shape);
    }
    let shapes = shapes.into_iter().collect::<Option<_>>();
    Ok(Ahead { shapes: shapes.ok_or_else(|| fault(Problem::Missing { member: "inputs" }))?, timeout })
}

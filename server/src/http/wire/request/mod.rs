//! The body of an inference request → tensors in the order of the model's inputs.
//!
//! The body is JSON, or JSON followed by binary tensors in the order of their inputs
//! (<https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md>). The JSON
//! is read where it lies, without a tree of values; binary numbers stay in the body, which the tensors share.

mod ahead;
mod binary;
mod error;
mod json;
mod members;
mod parameters;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use ahead::{Ahead, ahead};
pub(crate) use error::{BadRequest, Field, Problem};
pub(crate) use parameters::Parameters;

use crate::http::wire::text::{excerpt, listed};
use bytes::Bytes;
use members::{Entries, Found, HeadSeed, Members};
use plimsoll_engine::import::{Port, Signature};
use plimsoll_engine::tensor::{DType, Tensor};

/// An inference request that fits the model's signature.
#[derive(Debug)]
pub(crate) struct InferRequest {
    /// The client's own name for the request, to be given back.
    pub(crate) id: Option<String>,
    /// One tensor for each of the model's inputs, in the signature's order.
    pub(crate) inputs: Vec<Tensor>,
    /// The outputs to answer with, in the order asked for; all of them, in the signature's order, where none is named.
    pub(crate) outputs: Vec<WantedOutput>,
    /// What the request asks for besides.
    pub(crate) parameters: Parameters,
}

/// An output that the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedOutput {
    /// Its position in the signature's outputs.
    pub(crate) index: usize,
    /// Whether it goes out as binary data instead of JSON.
    pub(crate) binary: bool,
}

/// Says whether so many bytes may be taken.
pub(crate) type Claim<'a> = dyn FnMut(usize) -> bool + 'a;

const INPUT: Members<5> =
    Members { what: "an input object", names: ["name", "datatype", "shape", "parameters", "data"] };
const OUTPUT: Members<2> = Members { what: "an output object", names: ["name", "parameters"] };

/// Entries of `inputs` or `outputs` over those that the model has, so that a surplus one is still named in the error.
const SURPLUS: usize = 16;

/// Reads a request for a model of this signature.
///
/// `header_length` is the value of the header `Inference-Header-Content-Length`: the bytes of JSON at the start of a
/// body that goes on with binary tensors. The body is given as it is after any compression was undone. `claim` is asked for
/// the bytes of each tensor that does not just point into the body, before they are taken.
///
/// # Errors
/// The body is malformed, or asks for what the signature does not have; or a claim was refused.
pub(crate) fn decode(
    body: Bytes,
    header_length: Option<usize>,
    signature: &Signature,
    claim: &mut Claim<'_>,
) -> Result<InferRequest, BadRequest> {
    let (head, mut tail) = split(&body, header_length)?;
    let text = utf8(head, header_length.is_some())?;
    let head = members::parse(text, sought(signature))
        .map_err(|error| not_json(&error, text, header_length.is_some()))?;
    let id = head.id.map(|raw| members::string("id", raw)).transpose().map_err(|p| p.at(Field::Request))?;
    let parameters = Parameters::of_request(head.parameters).map_err(|p| p.at(Field::Request))?;
    let Some(given) = head.inputs else {
        return Err(Problem::Missing { member: "inputs" }.at(Field::Request));
    };
    let inputs = inputs(&given, &mut tail, header_length.is_some(), &signature.inputs, claim)?;
    if !tail.is_empty() {
        return Err(Problem::Leftover { left: tail.len() }.at(Field::Body));
    }
    let wanted = head.outputs.unwrap_or_default();
    let outputs = outputs(&wanted, parameters.binary_data_output, &signature.outputs)?;
    Ok(InferRequest { id: id.map(String::from), inputs, outputs, parameters })
}

/// What is looked for in a request's JSON.
fn sought(signature: &Signature) -> HeadSeed<5, 2> {
    HeadSeed {
        inputs: Entries { list: "inputs", each: INPUT, limit: signature.inputs.len() + SURPLUS },
        outputs: Entries { list: "outputs", each: OUTPUT, limit: signature.outputs.len() + SURPLUS },
    }
}

/// Parts the JSON from the binary tensors behind it.
fn split(body: &Bytes, header_length: Option<usize>) -> Result<(&[u8], Bytes), BadRequest> {
    if header_length == Some(0) {
        return Err(Problem::RawBinary.at(Field::HeaderLength));
    }
    let header = header_length.unwrap_or(body.len());
    let Some(head) = body.get(..header) else {
        return Err(Problem::HeaderBeyondBody { header, body: body.len() }.at(Field::HeaderLength));
    };
    if head.is_empty() {
        return Err(Problem::Empty.at(Field::Body));
    }
    Ok((head, body.slice(header..)))
}

fn utf8(head: &[u8], has_header: bool) -> Result<&str, BadRequest> {
    str::from_utf8(head)
        .map_err(|error| Problem::NotUtf8 { at: error.valid_up_to(), has_header }.at(Field::Body))
}

fn not_json(error: &serde_json::Error, text: &str, has_header: bool) -> BadRequest {
    // Only bytes behind a whole object look like binary tensors that came without their header.
    let has_header = has_header || !error.to_string().starts_with("trailing characters");
    Problem::NotJson { message: members::sentence(error, text), has_header }.at(Field::Body)
}

fn inputs(
    given: &[Found<'_, 5>],
    tail: &mut Bytes,
    has_header: bool,
    ports: &[Port],
    claim: &mut Claim<'_>,
) -> Result<Vec<Tensor>, BadRequest> {
    let mut slots: Vec<Option<Tensor>> = vec![None; ports.len()];
    for (at, members) in given.iter().enumerate() {
        let [name, ..] = members;
        let (index, port) = find("inputs", at, *name, ports)?;
        let tensor = input(members, tail, has_header, port, claim)?;
        let Some(slot) = slots.get_mut(index) else { continue };
        if slot.replace(tensor).is_some() {
            return Err(Problem::Twice.at(Field::Input(port.name.clone())));
        }
    }
    let absent = |port: &Port| {
        Problem::Absent { dtype: port.dtype, shape: port.shape_text() }.at(Field::Input(port.name.clone()))
    };
    slots.into_iter().zip(ports).map(|(slot, port)| slot.ok_or_else(|| absent(port))).collect()
}

/// Reads one input, taking its share of the binary tensors where its data is there.
fn input(
    members: &Found<'_, 5>,
    tail: &mut Bytes,
    has_header: bool,
    port: &Port,
    claim: &mut Claim<'_>,
) -> Result<Tensor, BadRequest> {
    let [_, datatype, shape, parameters, data] = *members;
    let here = |problem: Problem| problem.at(Field::Input(port.name.clone()));
    let dtype = dtype(datatype).map_err(here)?;
    let shape = shape.ok_or_else(|| here(Problem::Missing { member: "shape" }))?;
    let shape = json::shape(shape.get()).map_err(here)?;
    port.check(dtype, &shape)?;
    let tensor = match (data, parameters::binary_data_size(parameters).map_err(here)?) {
        (Some(_), Some(_)) => Err(Problem::TwoSources),
        (None, None) => Err(Problem::NoSource),
        (Some(data), None) if !claim(json::bytes(data.get(), dtype, &shape)) => Err(Problem::NoRoom),
        (Some(data), None) => json::decode(data.get(), dtype, shape),
        (None, Some(size)) if size > tail.len() => Err(Problem::Short { size, left: tail.len(), has_header }),
        (None, Some(size)) if !claim(binary::bytes(size, dtype)) => Err(Problem::NoRoom),
        (None, Some(size)) => binary::decode(tail.split_to(size), dtype, shape),
    };
    tensor.map_err(here)
}

fn dtype(raw: Option<&serde_json::value::RawValue>) -> Result<DType, Problem> {
    let raw = raw.ok_or(Problem::Missing { member: "datatype" })?;
    let name = members::string("datatype", raw)?;
    DType::from_name(&name).ok_or_else(|| Problem::UnknownDType { got: excerpt(&name) })
}

fn outputs(given: &[Found<'_, 2>], binary: bool, ports: &[Port]) -> Result<Vec<WantedOutput>, BadRequest> {
    if given.is_empty() {
        return Ok((0..ports.len()).map(|index| WantedOutput { index, binary }).collect());
    }
    let mut wanted: Vec<WantedOutput> = Vec::with_capacity(given.len());
    for (at, [name, parameters]) in given.iter().enumerate() {
        let (index, port) = find("outputs", at, *name, ports)?;
        let here = |problem: Problem| problem.at(Field::Output(port.name.clone()));
        if wanted.iter().any(|other| other.index == index) {
            return Err(here(Problem::Twice));
        }
        let own = parameters::binary_data(*parameters).map_err(here)?;
        wanted.push(WantedOutput { index, binary: own.unwrap_or(binary) });
    }
    Ok(wanted)
}

/// The port that entry `at` of `list` names, and its position.
fn find<'p>(
    list: &'static str,
    at: usize,
    name: Option<&serde_json::value::RawValue>,
    ports: &'p [Port],
) -> Result<(usize, &'p Port), BadRequest> {
    let here = |problem: Problem| problem.at(Field::Entry(list, at));
    let raw = name.ok_or_else(|| here(Problem::Missing { member: "name" }))?;
    let name = members::string("name", raw).map_err(here)?;
    ports.iter().enumerate().find(|(_, port)| port.name == name).ok_or_else(|| {
        let known = listed(ports.iter().map(|port| port.name.as_str()));
        let name = excerpt(&name);
        let field = if list == "inputs" { Field::Input(name) } else { Field::Output(name) };
        Problem::Unknown { known }.at(field)
    })
}

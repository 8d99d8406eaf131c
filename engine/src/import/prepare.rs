//! A decoded file and concrete shapes → tract's optimized plan.

use super::conditions::{self, has_conditions};
use super::convert::datum_type;
use super::file::{OnnxFile, label};
use super::guard::{Panicked, caught, first_failing};
use super::signature::Port;
use super::tract::pb::{GraphProto, ModelProto, ValueInfoProto};
use super::tract::{Const, InferenceFact, InferenceModel, InferenceModelExt, TDim, TypedModel, bail, one_line, reader};
use crate::error::{Error, shapes_text};
use crate::tensor::Shape;
use prost::Message;
use std::collections::HashSet;

/// What is kept of a file after its import, to prepare it for further shapes.
pub(super) enum Source {
    /// The graph as tract parsed it: the weights are shared by every preparation.
    Parsed(Box<InferenceModel>),
    /// The file itself, where what is parsed depends on the shapes.
    File(Box<ModelProto>),
}

/// Parses a file as far as that goes without shapes.
///
/// # Errors
/// tract cannot parse a node; the node is named.
pub(super) fn source(file: OnnxFile) -> Result<Source, Error> {
    match &file.proto.graph {
        Some(graph) if has_conditions(graph) => Ok(Source::File(Box::new(file.proto))),
        _ => {
            let work = |proto: &ModelProto| parse(proto, file.folder.as_deref()).map(|_| ());
            let model = guarded(&file.proto, || parse(&file.proto, file.folder.as_deref()), work);
            model.map(|model| Source::Parsed(Box::new(model))).map_err(|failure| failure.at("any shape"))
        }
    }
}

impl Source {
    /// Bytes of the weights that this source holds.
    pub(super) fn weights_bytes(&self) -> usize {
        match self {
            Source::Parsed(model) => {
                let constants = model.nodes().iter().filter_map(|node| node.op_as::<Const>());
                constants.map(|constant| constant.val().len() * constant.val().datum_type().size_of()).sum()
            }
            Source::File(proto) => proto.encoded_len(),
        }
    }

    /// tract's typed graph at the given shapes of the given inputs, decluttered.
    ///
    /// # Errors
    /// tract cannot do it at these shapes, or panics; the node is named where it can be found.
    pub(super) fn typed(&self, folder: Option<&str>, inputs: &[Port], shapes: &[Shape]) -> Result<TypedModel, Error> {
        let at = shapes_text(inputs.iter().map(|port| port.name.as_str()), shapes);
        let outcome = match self {
            Source::Parsed(model) => {
                let whole = || declutter(set_shapes((**model).clone(), inputs, shapes)?);
                match caught(whole) {
                    Ok(Ok(model)) => Ok(model),
                    Ok(Err(error)) => Err(Failure::Error(one_line(&error))),
                    Err(Panicked(text)) => Err(Failure::Panic(text)),
                }
            }
            Source::File(proto) => {
                let work = |proto: &ModelProto| {
                    declutter(set_shapes(parse(proto, folder)?, inputs, shapes)?)
                };
                let mut folded = (**proto).clone();
                if let Some(graph) = folded.graph.as_mut() {
                    conditions::fold(graph, &|part, name| decide(proto, part, name, folder, inputs, shapes));
                }
                guarded(&folded, || work(&folded), |proto| work(proto).map(|_| ()))
            }
        };
        outcome.map_err(|failure| failure.at(&at))
    }
}

/// Whether `name`, the one output of `part`, is a constant bool at these shapes.
fn decide(
    whole: &ModelProto,
    part: GraphProto,
    name: &str,
    folder: Option<&str>,
    inputs: &[Port],
    shapes: &[Shape],
) -> Option<bool> {
    // The inputs that the part does not read are not among its own.
    let (inputs, shapes): (Vec<Port>, Vec<Shape>) = inputs
        .iter()
        .cloned()
        .zip(shapes.iter().cloned())
        .filter(|(port, _)| part.input.iter().any(|value| value.name == port.name))
        .unzip();
    let proto = with_graph(whole, GraphProto { name: name.into(), ..part });
    let work = || -> super::tract::TractResult<Option<bool>> {
        let model = declutter(set_shapes(parse(&proto, folder)?, &inputs, &shapes)?)?;
        let value = model.output_fact(0)?.konst.clone();
        Ok(match value {
            Some(tensor) if tensor.len() == 1 => Some(tensor.cast_to_scalar::<bool>()?),
            _ => None,
        })
    };
    caught(work).ok()?.ok()?
}

/// The model around another graph; only its opset matters to the reader.
fn with_graph(whole: &ModelProto, graph: GraphProto) -> ModelProto {
    ModelProto { opset_import: whole.opset_import.clone(), graph: Some(graph), ..Default::default() }
}

fn parse(proto: &ModelProto, folder: Option<&str>) -> super::tract::TractResult<InferenceModel> {
    let parsed = reader().parse(proto, folder)?;
    if !parsed.unresolved_inputs.is_empty() {
        bail!("values that nothing makes: {}", parsed.unresolved_inputs.join(", "));
    }
    Ok(parsed.model)
}

fn set_shapes(
    mut model: InferenceModel,
    inputs: &[Port],
    shapes: &[Shape],
) -> super::tract::TractResult<InferenceModel> {
    for (port, shape) in inputs.iter().zip(shapes) {
        let outlet = model.input_outlets()?.iter().copied().find(|o| model.node(o.node).name == port.name);
        let Some(outlet) = outlet else { bail!("the parsed graph has no input `{}`", port.name) };
        let dims = shape.iter().map(|&size| TDim::from(size as i64));
        model.set_outlet_fact(outlet, InferenceFact::dt_shape(datum_type(port.dtype), dims))?;
    }
    Ok(model)
}

fn declutter(model: InferenceModel) -> super::tract::TractResult<TypedModel> {
    model.into_typed()?.into_decluttered()
}

/// Why a preparation failed, before it is told which shapes it was for.
enum Failure {
    Error(String),
    Panic(String),
    Node { node: String, op: String, reason: String },
}

impl Failure {
    fn at(self, shapes: &str) -> Error {
        match self {
            Failure::Error(reason) => Error::Prepare { shapes: shapes.into(), reason },
            Failure::Panic(text) => {
                Error::Prepare { shapes: shapes.into(), reason: format!("the importer gave up: {text}") }
            }
            Failure::Node { node, op, reason } => Error::Node { node, op, reason },
        }
    }
}

/// Runs `whole`; where it panics, searches the node at fault by importing ever shorter beginnings of the graph.
fn guarded<T>(
    proto: &ModelProto,
    whole: impl FnOnce() -> super::tract::TractResult<T>,
    attempt: impl Fn(&ModelProto) -> super::tract::TractResult<()>,
) -> Result<T, Failure> {
    let text = match caught(whole) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => return Err(Failure::Error(one_line(&error))),
        Err(Panicked(text)) => text,
    };
    let Some(graph) = &proto.graph else { return Err(Failure::Panic(text)) };
    let panics = |count: usize| caught(|| attempt(&with_graph(proto, beginning(graph, count)))).is_err();
    if graph.node.is_empty() || !panics(graph.node.len()) {
        return Err(Failure::Panic(text));
    }
    let node = &graph.node[first_failing(graph.node.len(), panics) - 1];
    Err(Failure::Node { node: label(node).into(), op: node.op_type.clone(), reason: text })
}

/// The first `count` nodes, with every value as an output that none of them reads.
fn beginning(graph: &GraphProto, count: usize) -> GraphProto {
    let nodes = &graph.node[..count];
    let read: HashSet<&String> = nodes.iter().flat_map(|node| &node.input).collect();
    let ends = nodes.iter().flat_map(|node| &node.output).filter(|name| !name.is_empty() && !read.contains(name));
    GraphProto {
        node: nodes.to_vec(),
        output: ends.map(|name| ValueInfoProto { name: name.clone(), ..Default::default() }).collect(),
        initializer: graph.initializer.clone(),
        input: graph.input.clone(),
        name: graph.name.clone(),
        ..Default::default()
    }
}

//! A decoded file and concrete shapes → tract's typed graph.

use super::blame::{Failure, on_file, on_graph, without_graph};
use super::conditions::{self, has_conditions};
use super::convert::datum_type;
use super::file::OnnxFile;
use super::guard::caught;
use super::limits::check_inferred_shapes;
use super::signature::Port;
use super::tract::pb::{GraphProto, ModelProto};
use super::tract::{
    Const, InferenceFact, InferenceModel, InferenceModelExt, TDim, TractResult, TypedModel, bail, reader,
};
use crate::error::Error;
use crate::tensor::Shape;
use prost::Message;

/// What is kept of a file after its import, to prepare it for further shapes.
pub(super) enum Source {
    /// The graph as tract parsed it: the weights are shared by every preparation.
    Parsed(Box<InferenceModel>),
    /// The file itself, where what is parsed depends on the shapes.
    File(Box<ModelProto>),
}

impl Source {
    /// Parses a file as far as that goes without shapes.
    ///
    /// # Errors
    /// tract cannot parse a node; the node is named.
    pub(super) fn new(file: OnnxFile) -> Result<Source, Error> {
        if file.proto.graph.as_ref().is_some_and(has_conditions) {
            return Ok(Source::File(Box::new(file.proto)));
        }
        let model = on_file(&file.proto, |proto| parse(proto, file.folder.as_deref()));
        model.map(|model| Source::Parsed(Box::new(model))).map_err(|failure| failure.at("any shape"))
    }

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
    pub(super) fn typed(
        &self,
        folder: Option<&str>,
        inputs: &[Port],
        shapes: &[Shape],
        largest_bytes: u64,
    ) -> Result<TypedModel, Failure> {
        let folded;
        let parsed = match self {
            Source::Parsed(model) => &**model,
            Source::File(proto) => {
                let shell = without_graph(proto);
                let mut proto = (**proto).clone();
                if let Some(graph) = proto.graph.as_mut() {
                    conditions::fold(graph, &|part, name| decide(&shell, part, name, folder, inputs, shapes));
                }
                folded = on_file(&proto, |proto| parse(proto, folder))?;
                &folded
            }
        };
        let analysed = on_graph(parsed, |model| {
            let mut model = set_shapes(model, inputs, shapes)?;
            model.analyse(false)?;
            Ok(model)
        })?;
        check_inferred_shapes(&analysed, largest_bytes)?;
        on_graph(&analysed, declutter)
    }
}

/// Whether `name`, the one output of `part`, is a constant bool at these shapes.
fn decide(
    shell: &ModelProto,
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
    let graph = GraphProto { name: name.into(), ..part };
    let proto = ModelProto { graph: Some(graph), ..shell.clone() };
    let work = || -> TractResult<Option<bool>> {
        let model = declutter(set_shapes(parse(&proto, folder)?, &inputs, &shapes)?)?;
        let value = model.output_fact(0)?.konst.clone();
        Ok(match value {
            Some(tensor) if tensor.len() == 1 => Some(tensor.cast_to_scalar::<bool>()?),
            _ => None,
        })
    };
    caught(work).ok()?.ok()?
}

fn parse(proto: &ModelProto, folder: Option<&str>) -> TractResult<InferenceModel> {
    let parsed = reader().parse(proto, folder)?;
    if !parsed.unresolved_inputs.is_empty() {
        bail!("values that nothing makes: {}", parsed.unresolved_inputs.join(", "));
    }
    Ok(parsed.model)
}

fn set_shapes(mut model: InferenceModel, inputs: &[Port], shapes: &[Shape]) -> TractResult<InferenceModel> {
    for (port, shape) in inputs.iter().zip(shapes) {
        let outlet = model.input_outlets()?.iter().copied().find(|o| model.node(o.node).name == port.name);
        let Some(outlet) = outlet else { bail!("the parsed graph has no input `{}`", port.name) };
        let dims = shape.iter().map(|&size| TDim::from(size as i64));
        model.set_outlet_fact(outlet, InferenceFact::dt_shape(datum_type(port.dtype), dims))?;
    }
    Ok(model)
}

fn declutter(model: InferenceModel) -> TractResult<TypedModel> {
    model.into_typed()?.into_decluttered()
}

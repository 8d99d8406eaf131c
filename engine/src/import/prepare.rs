//! A decoded file and concrete shapes → tract's typed graph.

use super::blame::{Failure, on_file, on_graph, without_graph};
use super::conditions::{self, has_conditions};
use super::convert::datum_type;
use super::file::OnnxFile;
use super::guard::caught;
use super::judged::judge;
use super::limits::check_inferred_shapes;
use super::placeholder;
use super::signature::Port;
use super::staging::{Refused, Staging};
use super::tract::pb::{GraphProto, ModelProto};
use super::tract::{
    Const, InferenceFact, InferenceModel, InferenceModelExt, TDim, TractResult, TypedModel, bail, reader,
};
use super::weights::{Restored, Weights, fill};
use crate::error::Error;
use crate::tensor::Shape;
use prost::Message;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// What is kept of a file after its import, to prepare it for further shapes: the graph, and where in the file the
/// large constants are.
pub(super) struct Source {
    kept: Kept,
    weights: Weights,
    /// The constants whose values some preparation needed; the next reads them at once.
    needed: Mutex<BTreeSet<String>>,
}

enum Kept {
    /// The graph as tract parsed it.
    Parsed(Box<InferenceModel>),
    /// The file's own graph, where what is parsed depends on the shapes.
    File(Box<ModelProto>),
}

/// What a model is prepared for.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) inputs: &'a [Port],
    pub(super) shapes: &'a [Shape],
    /// What is taken for it.
    pub(super) staging: &'a Arc<Staging>,
}

impl Source {
    /// Parses a file as far as that goes without shapes.
    ///
    /// # Errors
    /// tract cannot parse a node; the node is named.
    pub(super) fn new(file: OnnxFile) -> Result<Source, Error> {
        let OnnxFile { proto, weights, .. } = file;
        let kept = if proto.graph.as_ref().is_some_and(has_conditions) {
            Kept::File(Box::new(proto))
        } else {
            let model = on_file(&proto, parse);
            Kept::Parsed(Box::new(model.map_err(|failure| failure.at("any shape"))?))
        };
        Ok(Source { kept, weights, needed: Mutex::default() })
    }

    /// Bytes of the constants that this source holds in memory.
    pub(super) fn weights_bytes(&self) -> usize {
        let kept = match &self.kept {
            Kept::Parsed(model) => {
                let constants = model.nodes().iter().filter_map(|node| node.op_as::<Const>());
                constants.map(|constant| constant.val().len() * constant.val().datum_type().size_of()).sum()
            }
            Kept::File(proto) => proto.encoded_len(),
        };
        kept + self.weights.held_bytes()
    }

    /// The constants that are in the file.
    pub(super) fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The names of the constants whose values preparations have needed so far.
    pub(super) fn needed(&self) -> BTreeSet<String> {
        self.needed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers what a preparation needed.
    pub(super) fn remember(&self, needed: BTreeSet<String>) {
        *self.needed.lock().unwrap_or_else(PoisonError::into_inner) = needed;
    }

    /// tract's typed graph for the target, decluttered, with the values of the constants called `needed` and with
    /// placeholders for all others that are in the file.
    ///
    /// # Errors
    /// tract cannot do it at these shapes or without more values, or panics; the node is named where it can be found.
    pub(super) fn typed(&self, needed: &BTreeSet<String>, target: Target<'_>) -> Result<TypedModel, Failure> {
        let folded;
        let parsed = match &self.kept {
            Kept::Parsed(model) => &**model,
            Kept::File(proto) => {
                let shell = without_graph(proto);
                // The copy, and what is parsed of it.
                target.staging.take(2 * proto.encoded_len() as u64).map_err(no_memory)?;
                let mut proto = (**proto).clone();
                if let Some(graph) = proto.graph.as_mut() {
                    conditions::fold(graph, &|part, name| self.decide(&shell, part, name, target));
                }
                folded = on_file(&proto, parse)?;
                &folded
            }
        };
        let restored = self.restored(needed, target.staging)?;
        let analysed = on_graph(parsed, |mut model| {
            fill(&mut model, &restored)?;
            judge(&mut model, target.staging);
            let mut model = set_shapes(model, target)?;
            model.analyse(false)?;
            Ok(model)
        })?;
        check_inferred_shapes(&analysed, target.staging)?;
        on_graph(&analysed, |model| declutter(model, &self.weights))
    }

    fn restored<'a>(
        &self,
        names: impl IntoIterator<Item = &'a String>,
        staging: &Staging,
    ) -> Result<Restored, Failure> {
        let names: Vec<&String> = names.into_iter().collect();
        let bytes =
            names.iter().filter_map(|name| self.weights.get(name)).map(|weight| weight.data.len() as u64);
        staging.take(bytes.sum()).map_err(no_memory)?;
        self.weights.restored(names).map_err(|(name, source)| Failure::Weights { name, source })
    }

    /// The constants that a node reads, directly or by way of nodes that read nothing else, for each node that `text`
    /// names.
    pub(super) fn suspects(&self, text: &str) -> BTreeSet<String> {
        let Kept::Parsed(model) = &self.kept else { return BTreeSet::new() };
        let Ok(order) = model.eval_order() else { return BTreeSet::new() };
        // For every node that reads constants alone, which of them are in the file.
        let mut behind: HashMap<usize, BTreeSet<String>> = HashMap::new();
        let mut suspects = BTreeSet::new();
        for id in order {
            let node = model.node(id);
            let own = self.weights.get(&node.name).map(|_| node.name.clone());
            let read: BTreeSet<String> =
                node.inputs.iter().filter_map(|input| behind.get(&input.node)).flatten().cloned().collect();
            if !node.name.is_empty() && text.contains(&node.name) {
                suspects.extend(read.iter().cloned());
            }
            let alone = node.inputs.iter().all(|input| behind.contains_key(&input.node));
            let fixed = own.is_some() || node.op_is::<Const>() || (alone && !node.inputs.is_empty());
            if fixed {
                behind.insert(id, read.into_iter().chain(own).collect());
            }
        }
        suspects
    }

    /// Whether `name`, the one output of `part`, is a constant bool at these shapes.
    fn decide(&self, shell: &ModelProto, part: GraphProto, name: &str, target: Target<'_>) -> Option<bool> {
        let Target { inputs, shapes, .. } = target;
        // The inputs that the part does not read are not among its own.
        let has = |name: &String| part.input.iter().any(|value| value.name == *name);
        let own = inputs.iter().cloned().zip(shapes.iter().cloned()).filter(|(port, _)| has(&port.name));
        let (inputs, shapes): (Vec<Port>, Vec<Shape>) = own.unzip();
        let names = self.weights.names();
        let restored = self.restored(names.iter().filter(|name| has(name)), target.staging).ok()?;
        let graph = GraphProto { name: name.into(), ..part };
        let proto = ModelProto { graph: Some(graph), ..shell.clone() };
        let work = || -> TractResult<Option<bool>> {
            let mut model = parse(&proto)?;
            fill(&mut model, &restored)?;
            judge(&mut model, target.staging);
            let target = Target { inputs: &inputs, shapes: &shapes, ..target };
            let model = declutter(set_shapes(model, target)?, &self.weights)?;
            let value = model.output_fact(0)?.konst.clone();
            Ok(match value {
                Some(tensor) if tensor.len() == 1 => Some(tensor.cast_to_scalar::<bool>()?),
                _ => None,
            })
        };
        caught(work).ok()?.ok()?
    }
}

fn no_memory(refused: Refused) -> Failure {
    Failure::Error(refused.to_string())
}

fn parse(proto: &ModelProto) -> TractResult<InferenceModel> {
    // No folder: whatever lies in files has been put into the graph, and tract opens none.
    let parsed = reader().parse(proto, None)?;
    if !parsed.unresolved_inputs.is_empty() {
        bail!("values that nothing makes: {}", parsed.unresolved_inputs.join(", "));
    }
    Ok(parsed.model)
}

fn set_shapes(mut model: InferenceModel, target: Target<'_>) -> TractResult<InferenceModel> {
    for (port, shape) in target.inputs.iter().zip(target.shapes) {
        let outlet = model.input_outlets()?.iter().copied().find(|o| model.node(o.node).name == port.name);
        let Some(outlet) = outlet else { bail!("the parsed graph has no input `{}`", port.name) };
        let dims = shape.iter().map(|&size| TDim::from(size as i64));
        model.set_outlet_fact(outlet, InferenceFact::dt_shape(datum_type(port.dtype), dims))?;
    }
    Ok(model)
}

fn declutter(model: InferenceModel, weights: &Weights) -> TractResult<TypedModel> {
    let mut typed = model.into_typed()?;
    placeholder::mark(&mut typed, weights);
    typed.into_decluttered()
}

//! The constants of a file whose values tract does not get to see: they stay in the file, and the graph that tract
//! reads has an input in the place of each. Those that the import turns out to need are put back.

mod nested;

use super::convert::{datum_type, dtype_of_onnx};
use super::external::External;
use super::file::visit_nodes;
use super::fills;
use super::skeleton::{At, LARGE_BYTES};
use super::staging::Staging;
use super::tract::pb::tensor_proto::DataLocation;
use super::tract::pb::tensor_shape_proto::{Dimension, dimension};
use super::tract::pb::{
    GraphProto, NodeProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};
use super::tract::{Const, InferenceModel, Tensor as TractTensor, TractResult};
use crate::error::Error;
use crate::graph::{Data, DataFile};
use crate::tensor::{DType, Shape, volume};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// A constant that stays in the file.
pub(super) struct Weight {
    /// The element type.
    pub(super) dtype: DType,
    /// The shape in the file.
    pub(super) shape: Shape,
    /// The elements.
    pub(super) data: Data,
}

/// The constants that stay in the file, by name.
#[derive(Default)]
pub(super) struct Weights {
    by_name: HashMap<String, Weight>,
    /// Every file beside the model's own that some constant came from, those that did not stay there included.
    files: Vec<Arc<DataFile>>,
}

/// Values that were put back, by name.
pub(super) type Restored = HashMap<String, Arc<TractTensor>>;

impl Weights {
    /// Takes the large constants of a decoded graph out of it and puts an input in the place of each. The data of
    /// those that have to stay is put into the graph.
    ///
    /// # Errors
    /// Data cannot be read, or lies where it may not.
    pub(super) fn take(
        graph: &mut GraphProto,
        left_out: Vec<(At, Data)>,
        mut external: External<'_>,
        staging: &Staging,
    ) -> Result<Weights, Error> {
        let mut left_out: HashMap<At, Data> = left_out.into_iter().collect();
        nested::bring(graph, &mut external, staging)?;
        let staying = Staying::of(graph);
        let fills = fills::of(graph, staging.largest_bytes());
        let mut weights = Weights::default();
        let mut place = |at: At, name: &str, tensor: &mut TensorProto, sound: bool| {
            let malformed =
                |reason: String| Error::Malformed { reason: format!("the data of `{name}`: {reason}") };
            let elsewhere =
                tensor.data_location == Some(DataLocation::External as i32) && tensor.raw_data.is_empty();
            let data = match left_out.remove(&at) {
                Some(data) => data,
                None if elsewhere => external.data(tensor).map_err(malformed)?,
                None => return Ok(false),
            };
            if let Some(weight) = Weight::of(tensor, &data).filter(|_| sound && !staying.contains(name)) {
                weights.by_name.insert(name.into(), weight);
                return Ok(true);
            }
            // It is parsed out of the graph later, while the graph still has it.
            staging.claim(2 * data.len() as u64)?;
            let loaded = data.load().map_err(|source| Error::Weights { name: name.into(), source })?;
            tensor.raw_data = loaded.into();
            tensor.external_data.clear();
            tensor.data_location = None;
            Ok(false)
        };
        let mut error = None;
        let mut at = 0;
        graph.initializer.retain_mut(|tensor| {
            at += 1;
            let name = tensor.name.clone();
            let taken = place(At::Initializer(at - 1), &name, tensor, true);
            !taken.unwrap_or_else(|e| {
                error.get_or_insert(e);
                false
            })
        });
        let mut at = 0;
        graph.node.retain_mut(|node| {
            at += 1;
            let sound = is_plain_constant(node);
            let name = node.output.first().cloned().unwrap_or_default();
            let tensors = node.attribute.iter_mut().filter_map(|attribute| attribute.t.as_mut());
            // Only the one tensor of a `Constant` node can have been left out.
            let Some(tensor) = tensors.into_iter().next().filter(|_| node.op_type == "Constant") else {
                return true;
            };
            let taken = place(At::Node(at - 1), &name, tensor, sound);
            !taken.unwrap_or_else(|e| {
                error.get_or_insert(e);
                false
            })
        });
        if let Some(error) = error {
            return Err(error);
        }
        let fills: HashMap<_, _> = fills.into_iter().filter(|(name, _)| !staying.contains(name)).collect();
        graph.node.retain(|node| !node.output.iter().any(|name| fills.contains_key(name)));
        weights.by_name.extend(fills);
        weights.files = external.files().cloned().collect();
        graph.input.retain(|value| !weights.by_name.contains_key(&value.name));
        let mut names: Vec<&String> = weights.by_name.keys().collect();
        names.sort();
        graph.input.extend(names.into_iter().map(|name| input(name, &weights.by_name[name])));
        Ok(weights)
    }

    /// The constant of that name.
    pub(super) fn get(&self, name: &str) -> Option<&Weight> {
        self.by_name.get(name)
    }

    /// The files beside the model's own that constants came from.
    pub(super) fn files(&self) -> &[Arc<DataFile>] {
        &self.files
    }

    /// The names of all.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.by_name.keys().cloned().collect()
    }

    /// Bytes of memory that the constants take now.
    pub(super) fn held_bytes(&self) -> usize {
        self.by_name.values().map(|weight| weight.data.held_bytes()).sum()
    }

    /// Reads constants for tract.
    ///
    /// # Errors
    /// One cannot be read; it is named.
    pub(super) fn restored<'a>(
        &self,
        names: impl IntoIterator<Item = &'a String>,
    ) -> Result<Restored, (String, io::Error)> {
        let known = names.into_iter().filter_map(|name| Some((name, self.by_name.get(name)?)));
        let loaded = known.map(|(name, weight)| {
            let tensor = weight.load().map_err(|error| (name.clone(), error))?;
            Ok((name.clone(), Arc::new(tensor)))
        });
        loaded.collect()
    }
}

/// Puts constants in the place of inputs.
pub(super) fn fill(model: &mut InferenceModel, restored: &Restored) -> TractResult<()> {
    for outlet in model.inputs.clone() {
        let node = &mut model.nodes[outlet.node];
        let Some(tensor) = restored.get(&node.name) else { continue };
        node.op = Box::new(Const::new(Arc::clone(tensor))?);
        node.outputs[outlet.slot].fact = Arc::clone(tensor).try_into()?;
        model.inputs.retain(|input| *input != outlet);
    }
    Ok(())
}

impl Weight {
    /// What a tensor without its data is; `None` where it is small, or of no dtype that is kept as it is.
    fn of(tensor: &TensorProto, data: &Data) -> Option<Weight> {
        let dtype = dtype_of_onnx(tensor.data_type).ok()?;
        let size = dtype.size_bytes().filter(|_| dtype != DType::Bool)?;
        let shape = tensor.dims.iter().map(|&dim| usize::try_from(dim).ok()).collect::<Option<Shape>>()?;
        let fits = volume(&shape)?.checked_mul(size)? == data.len();
        (fits && data.len() > LARGE_BYTES).then(|| Weight { dtype, shape, data: data.clone() })
    }

    fn load(&self) -> io::Result<TractTensor> {
        let tensor = TractTensor::zero_dt(datum_type(self.dtype), &self.shape);
        let mut tensor = tensor.map_err(|error| io::Error::other(error.to_string()))?;
        self.data.read(0, tensor.as_bytes_mut())?;
        Ok(tensor)
    }
}

/// Names whose values must be in the graph.
struct Staying(HashSet<String>);

impl Staying {
    /// What nested graphs read, and what has its name from more than one place: tract decides which of them it takes.
    fn of(graph: &GraphProto) -> Staying {
        let mut names = HashSet::new();
        let mut seen = HashSet::new();
        let made = graph.node.iter().flat_map(|node| &node.output);
        for name in graph.initializer.iter().map(|tensor| &tensor.name).chain(made) {
            if !seen.insert(name) {
                names.insert(name.clone());
            }
        }
        for inner in
            graph.node.iter().flat_map(|node| &node.attribute).filter_map(|attribute| attribute.g.as_ref())
        {
            names.extend(inner.output.iter().map(|value| value.name.clone()));
            visit_nodes(inner, &mut |node| {
                names.extend(node.input.iter().cloned());
                let graphs = node.attribute.iter().filter_map(|attribute| attribute.g.as_ref());
                names.extend(graphs.flat_map(|graph| &graph.output).map(|value| value.name.clone()));
            });
        }
        Staying(names)
    }

    fn contains(&self, name: &str) -> bool {
        name.is_empty() || self.0.contains(name)
    }
}

fn is_plain_constant(node: &NodeProto) -> bool {
    let known = node.domain.is_empty() || node.domain == "ai.onnx";
    let value = matches!(&node.attribute[..], [attribute] if attribute.name == "value");
    known && value && node.op_type == "Constant" && node.output.len() == 1
}

fn input(name: &str, weight: &Weight) -> ValueInfoProto {
    let dims = weight.shape.iter().map(|&size| Dimension {
        value: Some(dimension::Value::DimValue(size as i64)),
        ..Default::default()
    });
    let tensor = type_proto::Tensor {
        elem_type: super::convert::dtype_to_onnx(weight.dtype),
        shape: Some(TensorShapeProto { dim: dims.collect() }),
    };
    let r#type = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: name.into(), r#type: Some(r#type), ..Default::default() }
}

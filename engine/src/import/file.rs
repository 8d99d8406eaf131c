//! A model file → its decoded graph and the signature that it declares.

use super::convert::dtype_of_onnx;
use super::external::External;
use super::guard::caught;
use super::signature::{Dim, Port, Signature};
use super::skeleton::{self, LARGE_BYTES, ScanError};
use super::staging::Staging;
use super::tract::pb::type_proto::Value;
use super::tract::pb::{GraphProto, ModelProto, NodeProto, ValueInfoProto, tensor_shape_proto};
use super::tract::{Onnx, reader};
use super::weights::Weights;
use crate::error::Error;
use crate::graph::{Data, DataFile};
use bytes::Bytes;
use prost::Message;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// A decoded model file.
pub(super) struct OnnxFile {
    /// The file as decoded, with an input in the place of every constant that stays in the file.
    pub(super) proto: ModelProto,
    /// The constants that stay in the file.
    pub(super) weights: Weights,
    /// The file itself; `None` for a model from memory.
    pub(super) file: Option<Arc<DataFile>>,
    /// What the file says that it takes and gives.
    pub(super) signature: Signature,
}

/// Reads and decodes the file at `path`, and checks what can be checked before any shape is known.
///
/// # Errors
/// The file cannot be read, is no ONNX model, has inputs that are no tensors of a served dtype, or uses ops that
/// nothing here knows.
///
/// `known` are the model's files as an earlier import opened them, its own first; these are read, whatever lies in their
/// places now. Others must lie in `within`, links followed.
pub(super) fn open(
    path: &Path,
    within: Option<&Path>,
    known: &[Arc<DataFile>],
    staging: &Staging,
) -> Result<OnnxFile, Error> {
    let unread = |source| Error::Read { path: path.into(), source };
    let file = match known.first() {
        Some(file) => DataFile::all_of(Arc::clone(file)),
        None => {
            let opened =
                within.map_or_else(|| DataFile::open(path), |within| DataFile::open_within(path, within));
            opened.map_err(unread)?.whole()
        }
    };
    decode(&file, External::new(path.parent(), within, known), staging).map_err(|failure| match failure {
        Failure::Scan(ScanError::Read(source)) => unread(source),
        Failure::Scan(ScanError::Memory(error)) => error,
        other => other.into(),
    })
}

/// Decodes a model from memory; `folder` is where its external tensor data may lie.
///
/// # Errors
/// As [`open`], reading aside.
pub(super) fn from_memory(bytes: &[u8], folder: Option<&Path>, staging: &Staging) -> Result<OnnxFile, Error> {
    let file = Data::Bytes(Bytes::copy_from_slice(bytes));
    decode(&file, External::new(folder, None, &[]), staging).map_err(Error::from)
}

enum Failure {
    Scan(ScanError),
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Other(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Scan(ScanError::Memory(error)) => error,
            Failure::Scan(error) => Error::Malformed { reason: error.to_string() },
            Failure::Other(error) => error,
        }
    }
}

fn decode(file: &Data, external: External<'_>, staging: &Staging) -> Result<OnnxFile, Failure> {
    let malformed = |reason: String| Error::Malformed { reason };
    let skeleton = skeleton::scan(file, LARGE_BYTES, staging).map_err(Failure::Scan)?;
    let mut proto = caught(|| ModelProto::decode(&skeleton.message[..]))
        .map_err(|panic| malformed(panic.0))?
        .map_err(|error| malformed(error.to_string()))?;
    drop(skeleton.message);
    let graph = proto.graph.as_mut().ok_or_else(|| malformed("it holds no graph".into()))?;
    if graph.node.is_empty() && graph.output.is_empty() {
        return Err(malformed("its graph is empty".into()).into());
    }
    let signature = signature(graph)?;
    check_values(graph)?;
    check_ops(&reader(), graph)?;
    let weights = Weights::take(graph, skeleton.left_out, external, staging)?;
    Ok(OnnxFile { proto, weights, file: file.file().cloned(), signature })
}

/// The inputs that a caller must bring (those without an initial value) and the outputs.
fn signature(graph: &GraphProto) -> Result<Signature, Error> {
    let initial: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let inputs = graph
        .input
        .iter()
        .filter(|value| !initial.contains(value.name.as_str()))
        .map(|value| port("input", value))
        .collect::<Result<_, _>>()?;
    let outputs = graph.output.iter().map(|value| port("output", value)).collect::<Result<_, _>>()?;
    Ok(Signature { inputs, outputs })
}

fn port(kind: &'static str, value: &ValueInfoProto) -> Result<Port, Error> {
    let unserved = |found: String| Error::Unserved { port: kind, name: value.name.clone(), found };
    let Some(Value::TensorType(tensor)) = value.r#type.as_ref().and_then(|t| t.value.as_ref()) else {
        return Err(unserved("no tensor".into()));
    };
    let dtype = dtype_of_onnx(tensor.elem_type).map_err(unserved)?;
    let dims = tensor.shape.as_ref().map(|shape| {
        shape
            .dim
            .iter()
            .map(|dim| match &dim.value {
                Some(tensor_shape_proto::dimension::Value::DimValue(size)) => {
                    usize::try_from(*size).map_or(Dim::Any, Dim::Fixed)
                }
                Some(tensor_shape_proto::dimension::Value::DimParam(name))
                    if !name.is_empty() && name != "?" =>
                {
                    Dim::Named(name.clone())
                }
                _ => Dim::Any,
            })
            .collect()
    });
    Ok(Port { name: value.name.clone(), dtype, dims })
}

/// Every value that a node or output reads must come from somewhere, and from one place only: tract would panic on
/// some that do not.
fn check_values(graph: &GraphProto) -> Result<(), Error> {
    let mut once = HashSet::new();
    let outputs = graph.node.iter().flat_map(|node| &node.output).filter(|name| !name.is_empty());
    if let Some(twice) = outputs.into_iter().find(|name| !once.insert(name.as_str())) {
        return Err(Error::Malformed { reason: format!("more than one node makes the value `{twice}`") });
    }
    let mut given = HashSet::new();
    if let Some(twice) = graph.output.iter().find(|value| !given.insert(value.name.as_str())) {
        return Err(Error::Malformed { reason: format!("it has more than one output `{}`", twice.name) });
    }
    let made: HashSet<&str> = graph
        .input
        .iter()
        .map(|value| value.name.as_str())
        .chain(graph.initializer.iter().map(|tensor| tensor.name.as_str()))
        .chain(graph.node.iter().flat_map(|node| node.output.iter().map(String::as_str)))
        .collect();
    let reads = graph.node.iter().flat_map(|node| {
        node.input
            .iter()
            .filter(|name| !name.is_empty())
            .map(move |name| (name, format!("node `{}`", label(node))))
    });
    let gives = graph.output.iter().map(|value| (&value.name, "the graph's outputs".to_string()));
    match reads.chain(gives).find(|(name, _)| !made.contains(name.as_str())) {
        None => Ok(()),
        Some((name, reader)) => Err(Error::Malformed {
            reason: format!("{reader} reads the value `{name}`, which no input, initializer or node makes"),
        }),
    }
}

/// Names every op that has no importer, with the first node that uses it, nested graphs included.
fn check_ops(onnx: &Onnx, graph: &GraphProto) -> Result<(), Error> {
    let mut unknown = BTreeMap::new();
    visit_nodes(graph, &mut |node| {
        if !onnx.op_register.0.contains_key(&node.op_type) {
            unknown.entry(node.op_type.clone()).or_insert_with(|| label(node).to_string());
        }
    });
    if unknown.is_empty() {
        return Ok(());
    }
    let ops = unknown.iter().map(|(op, node)| format!("{op} (node `{node}`)")).collect::<Vec<_>>();
    Err(Error::UnknownOps { ops: ops.join(", ") })
}

/// Visits the nodes of a graph and of the graphs inside them.
pub(super) fn visit_nodes<'a>(graph: &'a GraphProto, visit: &mut impl FnMut(&'a NodeProto)) {
    for node in &graph.node {
        visit(node);
        for inner in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
            visit_nodes(inner, visit);
        }
    }
}

/// What to call a node that may have no name of its own: its first output, else its op.
pub(super) fn label(node: &NodeProto) -> &str {
    if !node.name.is_empty() {
        return &node.name;
    }
    node.output.iter().find(|name| !name.is_empty()).unwrap_or(&node.op_type)
}

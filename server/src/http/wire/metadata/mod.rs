//! Every JSON body besides those of inference: who the server is, what a model takes, how it fares.

mod config;
mod repository;
mod statistics;
#[cfg(test)]
mod tests;

pub(crate) use config::{ConfigParameter, ModelConfig};
pub(crate) use repository::{BadBody, IndexEntry, IndexRequest, LoadRequest, ModelState, UnloadRequest};
pub(crate) use statistics::{BatchStats, DurationStat, InferenceStats, MemoryUsage, ModelStats, Statistics};

use plimsoll_engine::import::{Dim, Port, Signature};
use serde::Serialize;

/// The platform of every model, from the protocol's own list of names.
pub(crate) const PLATFORM: &str = "onnx_onnxv1";

/// The body of every error: `{"error": "one sentence"}`.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorBody<'a> {
    /// What went wrong and what to do about it.
    pub(crate) error: &'a str,
}

/// The answer of `GET /v2`.
#[derive(Debug, Serialize)]
pub(crate) struct ServerMetadata {
    name: &'static str,
    version: &'static str,
    extensions: &'static [&'static str],
}

impl ServerMetadata {
    /// This server, and those of Triton's extensions that it speaks, under Triton's names for them.
    pub(crate) const THIS: ServerMetadata = ServerMetadata {
        name: "plimsoll",
        version: env!("CARGO_PKG_VERSION"),
        extensions: &[
            "binary_tensor_data",
            "model_configuration",
            "model_repository",
            "model_repository(unload_dependents)",
            "statistics",
        ],
    };
}

/// The answer of `GET /v2/models/{model}`.
#[derive(Debug, Serialize)]
pub(crate) struct ModelMetadata<'a> {
    name: &'a str,
    versions: &'a [String],
    platform: &'static str,
    inputs: Vec<TensorMetadata<'a>>,
    outputs: Vec<TensorMetadata<'a>>,
}

/// An input or output of a model.
#[derive(Debug, Serialize)]
struct TensorMetadata<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: Vec<i64>,
}

impl<'a> ModelMetadata<'a> {
    /// The model's inputs and outputs, and the versions of it that can be asked for.
    pub(crate) fn new(name: &'a str, versions: &'a [String], signature: &'a Signature) -> ModelMetadata<'a> {
        let describe = |ports: &'a [Port]| ports.iter().map(TensorMetadata::new).collect();
        ModelMetadata {
            name,
            versions,
            platform: PLATFORM,
            inputs: describe(&signature.inputs),
            outputs: describe(&signature.outputs),
        }
    }
}

impl<'a> TensorMetadata<'a> {
    fn new(port: &'a Port) -> TensorMetadata<'a> {
        TensorMetadata { name: &port.name, datatype: port.dtype.name(), shape: dims(port) }
    }
}

/// The axes of a port as the protocol tells them: -1 for one of open size, and a single -1 where the file does not
/// even tell how many there are, for which the protocol has no word.
fn dims(port: &Port) -> Vec<i64> {
    let Some(dims) = &port.dims else { return vec![-1] };
    dims.iter()
        .map(|dim| match dim {
            Dim::Fixed(size) => i64::try_from(*size).unwrap_or(i64::MAX),
            Dim::Named(_) | Dim::Any => -1,
        })
        .collect()
}

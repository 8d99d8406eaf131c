//! A model's configuration in the form of Triton's `ModelConfig`, as its HTTP API writes it (64-bit sizes as numbers).

use super::{PLATFORM, dims};
use plimsoll_engine::import::{Port, Signature};
use plimsoll_engine::tensor::DType;
use serde::Serialize;
use std::collections::BTreeMap;

/// The answer of `GET /v2/models/{model}/config`.
///
/// The members that Triton's clients read are all there; those that mean nothing here hold Triton's defaults.
#[derive(Debug, Serialize)]
pub(crate) struct ModelConfig<'a> {
    name: &'a str,
    platform: &'static str,
    backend: &'static str,
    version_policy: VersionPolicy,
    /// Always 0: the shapes below are whole, a batch axis included.
    max_batch_size: u32,
    input: Vec<ConfigInput<'a>>,
    output: Vec<ConfigOutput<'a>>,
    instance_group: [(); 0],
    default_model_filename: &'a str,
    /// Settings of this server's own, by name.
    pub(crate) parameters: BTreeMap<String, ConfigParameter>,
    model_warmup: [(); 0],
}

/// A setting, always text in Triton's form.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConfigParameter {
    /// The setting's value.
    pub(crate) string_value: String,
}

#[derive(Debug, Serialize)]
struct VersionPolicy {
    all: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct ConfigInput<'a> {
    name: &'a str,
    data_type: &'static str,
    format: &'static str,
    dims: Vec<i64>,
    is_shape_tensor: bool,
    allow_ragged_batch: bool,
    optional: bool,
}

#[derive(Debug, Serialize)]
struct ConfigOutput<'a> {
    name: &'a str,
    data_type: &'static str,
    dims: Vec<i64>,
    label_filename: &'static str,
    is_shape_tensor: bool,
}

impl<'a> ModelConfig<'a> {
    /// The configuration of a model whose file has this name, such as `model.onnx`.
    pub(crate) fn new(name: &'a str, filename: &'a str, signature: &'a Signature) -> ModelConfig<'a> {
        ModelConfig {
            name,
            platform: PLATFORM,
            backend: "plimsoll",
            version_policy: VersionPolicy { all: BTreeMap::new() },
            max_batch_size: 0,
            input: signature.inputs.iter().map(ConfigInput::new).collect(),
            output: signature.outputs.iter().map(ConfigOutput::new).collect(),
            instance_group: [],
            default_model_filename: filename,
            parameters: BTreeMap::new(),
            model_warmup: [],
        }
    }
}

impl<'a> ConfigInput<'a> {
    fn new(port: &'a Port) -> ConfigInput<'a> {
        ConfigInput {
            name: &port.name,
            data_type: data_type(port.dtype),
            format: "FORMAT_NONE",
            dims: dims(port),
            is_shape_tensor: false,
            allow_ragged_batch: false,
            optional: false,
        }
    }
}

impl<'a> ConfigOutput<'a> {
    fn new(port: &'a Port) -> ConfigOutput<'a> {
        ConfigOutput {
            name: &port.name,
            data_type: data_type(port.dtype),
            dims: dims(port),
            label_filename: "",
            is_shape_tensor: false,
        }
    }
}

/// The name of a dtype in `model_config.proto`.
fn data_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "TYPE_BOOL",
        DType::U8 => "TYPE_UINT8",
        DType::U16 => "TYPE_UINT16",
        DType::U32 => "TYPE_UINT32",
        DType::U64 => "TYPE_UINT64",
        DType::I8 => "TYPE_INT8",
        DType::I16 => "TYPE_INT16",
        DType::I32 => "TYPE_INT32",
        DType::I64 => "TYPE_INT64",
        DType::F16 => "TYPE_FP16",
        DType::F32 => "TYPE_FP32",
        DType::F64 => "TYPE_FP64",
        DType::Bytes => "TYPE_STRING",
    }
}

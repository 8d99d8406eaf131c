//! The settings that narrow a model before any request: named dims and inputs that never change.

use super::convert::{dtype_to_onnx, to_tract};
use super::file::OnnxFile;
use super::signature::{Dim, Port};
use super::tract::pb::TensorProto;
use crate::error::Error;
use crate::tensor::{DType, Data, Tensor, volume};
use bytes::Bytes;
use half::f16;
use std::collections::BTreeMap;

/// A value for an input that never changes, as a person writes it: numbers or strings, flat, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// Whole numbers (and bools as 0 and 1).
    Integers(Vec<i64>),
    /// Numbers with a fraction.
    Floats(Vec<f64>),
    /// Strings.
    Text(Vec<String>),
}

impl Constant {
    fn len(&self) -> usize {
        match self {
            Constant::Integers(values) => values.len(),
            Constant::Floats(values) => values.len(),
            Constant::Text(values) => values.len(),
        }
    }
}

/// Gives every axis called by a name in `dims` its size.
///
/// # Errors
/// No axis of any input or output has that name.
pub(super) fn fix_dims(file: &mut OnnxFile, dims: &BTreeMap<String, usize>) -> Result<(), Error> {
    for (name, &size) in dims {
        let signature = &mut file.signature;
        let axes =
            signature.inputs.iter_mut().chain(&mut signature.outputs).flat_map(|port| port.dims.iter_mut());
        let mut found = 0;
        for dim in axes.flatten().filter(|dim| **dim == Dim::Named(name.clone())) {
            *dim = Dim::Fixed(size);
            found += 1;
        }
        if found == 0 {
            return Err(Error::Setting {
                setting: format!("dims.`{name}`"),
                reason: format!("the model has no axis of that name; it has {}", named_axes(file)),
            });
        }
    }
    Ok(())
}

fn named_axes(file: &OnnxFile) -> String {
    let mut names: Vec<&str> = file
        .signature
        .inputs
        .iter()
        .flat_map(|port| port.dims.iter().flatten())
        .filter_map(|dim| if let Dim::Named(name) = dim { Some(name.as_str()) } else { None })
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Turns the inputs named in `constants` into initial values of the graph and takes them out of the signature.
///
/// # Errors
/// No input has that name, or the value does not fit its dtype or shape.
pub(super) fn fix_inputs(file: &mut OnnxFile, constants: &BTreeMap<String, Constant>) -> Result<(), Error> {
    for (name, value) in constants {
        let refused = |reason: String| Error::Setting { setting: format!("constants.`{name}`"), reason };
        let Some(at) = file.signature.inputs.iter().position(|port| &port.name == name) else {
            let names: Vec<&str> = file.signature.inputs.iter().map(|port| port.name.as_str()).collect();
            return Err(refused(format!(
                "the model has no input of that name; it takes {}",
                names.join(", ")
            )));
        };
        let tensor = typed(&file.signature.inputs[at], value).map_err(refused)?;
        // tract checks and aligns it; what it cannot hold is refused here and not at the first request.
        to_tract(&tensor).map_err(|error| refused(error.to_string()))?;
        if let Some(graph) = file.proto.graph.as_mut() {
            graph.initializer.push(initializer(name, &tensor));
        }
        file.signature.inputs.remove(at);
    }
    Ok(())
}

/// The constant as a tensor of the port's dtype; one value fills the whole shape.
fn typed(port: &Port, value: &Constant) -> Result<Tensor, String> {
    let shape = match (&port.dims, port.fixed_shape()) {
        (_, Some(shape)) => shape,
        // An open axis takes as many values as are written; several open axes cannot be told apart.
        (Some(dims), None) if dims.len() == 1 => [value.len()].into_iter().collect(),
        (None, None) if value.len() == 1 => Default::default(),
        _ => {
            return Err(format!(
                "its shape {} is open; give the open axes a size in dims",
                port.shape_text()
            ));
        }
    };
    let elements = volume(&shape).ok_or("its shape overflows")?;
    if value.len() != elements && value.len() != 1 {
        return Err(format!("shape {shape:?} has {elements} elements, got {}", value.len()));
    }
    let fill = if value.len() == elements { 1 } else { elements };
    match (value, port.dtype) {
        (Constant::Text(values), DType::Bytes) => {
            Tensor::text(shape, vec![values.as_slice(); fill].concat()).map_err(|error| error.to_string())
        }
        (Constant::Text(_), dtype) => Err(format!("expected numbers for {dtype}, got strings")),
        (_, DType::Bytes) => Err("expected strings, got numbers".into()),
        (Constant::Integers(values), dtype) => {
            plain(dtype, shape, fill, values, |&v, dtype| integer_bytes(v, dtype))
        }
        (Constant::Floats(values), dtype) => {
            plain(dtype, shape, fill, values, |&v, dtype| float_bytes(v, dtype))
        }
    }
}

fn plain<T>(
    dtype: DType,
    shape: crate::tensor::Shape,
    fill: usize,
    values: &[T],
    encode: impl Fn(&T, DType) -> Result<Vec<u8>, String>,
) -> Result<Tensor, String> {
    let mut bytes = Vec::new();
    for value in values {
        bytes.extend(encode(value, dtype)?);
    }
    Tensor::plain(dtype, shape, Bytes::from(bytes.repeat(fill))).map_err(|error| error.to_string())
}

fn integer_bytes(value: i64, dtype: DType) -> Result<Vec<u8>, String> {
    let range = |_| format!("{value} is out of the range of {dtype}");
    Ok(match dtype {
        DType::Bool if value == 0 || value == 1 => vec![value as u8],
        DType::Bool => return Err(format!("{value} is no bool; expected true, false, 0 or 1")),
        DType::U8 => u8::try_from(value).map_err(range)?.to_le_bytes().into(),
        DType::U16 => u16::try_from(value).map_err(range)?.to_le_bytes().into(),
        DType::U32 => u32::try_from(value).map_err(range)?.to_le_bytes().into(),
        DType::U64 => u64::try_from(value).map_err(range)?.to_le_bytes().into(),
        DType::I8 => i8::try_from(value).map_err(range)?.to_le_bytes().into(),
        DType::I16 => i16::try_from(value).map_err(range)?.to_le_bytes().into(),
        DType::I32 => i32::try_from(value).map_err(range)?.to_le_bytes().into(),
        DType::I64 => value.to_le_bytes().into(),
        DType::F16 | DType::F32 | DType::F64 => return float_bytes(value as f64, dtype),
        DType::Bytes => return Err("expected a string, got a number".into()),
    })
}

fn float_bytes(value: f64, dtype: DType) -> Result<Vec<u8>, String> {
    Ok(match dtype {
        DType::F16 => f16::from_f64(value).to_le_bytes().into(),
        DType::F32 => (value as f32).to_le_bytes().into(),
        DType::F64 => value.to_le_bytes().into(),
        _ => return Err(format!("expected a whole number for {dtype}, got {value}")),
    })
}

fn initializer(name: &str, tensor: &Tensor) -> TensorProto {
    let mut proto = TensorProto {
        name: name.into(),
        data_type: dtype_to_onnx(tensor.dtype()),
        dims: tensor.shape().iter().map(|&size| size as i64).collect(),
        ..Default::default()
    };
    match tensor.data() {
        Data::Plain(bytes) => proto.raw_data = bytes.to_vec(),
        Data::Text(strings) => proto.string_data = strings.iter().map(|s| s.clone().into_bytes()).collect(),
    }
    proto
}

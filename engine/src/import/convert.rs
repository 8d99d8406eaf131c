//! Our tensors and dtypes ↔ tract's and ONNX's.

use super::tract::{DatumType, IntoTensor, Tensor as TractTensor, TractResult, bail, pb};
use crate::tensor::{DType, Data, Shape, Tensor};
use bytes::Bytes;
use std::sync::Arc;

/// The dtype of an ONNX element type; `Err` with its ONNX name where it is none of ours.
pub(super) fn dtype_of_onnx(elem_type: i32) -> Result<DType, String> {
    use pb::tensor_proto::DataType as Onnx;
    let onnx = Onnx::try_from(elem_type).map_err(|_| format!("of the unknown ONNX type {elem_type}"))?;
    Ok(match onnx {
        Onnx::Bool => DType::Bool,
        Onnx::Uint8 => DType::U8,
        Onnx::Uint16 => DType::U16,
        Onnx::Uint32 => DType::U32,
        Onnx::Uint64 => DType::U64,
        Onnx::Int8 => DType::I8,
        Onnx::Int16 => DType::I16,
        Onnx::Int32 => DType::I32,
        Onnx::Int64 => DType::I64,
        Onnx::Float16 => DType::F16,
        Onnx::Float => DType::F32,
        Onnx::Double => DType::F64,
        Onnx::String => DType::Bytes,
        other => return Err(format!("a tensor of ONNX {}", other.as_str_name())),
    })
}

/// The ONNX element type of a dtype.
pub(super) fn dtype_to_onnx(dtype: DType) -> i32 {
    use pb::tensor_proto::DataType as Onnx;
    (match dtype {
        DType::Bool => Onnx::Bool,
        DType::U8 => Onnx::Uint8,
        DType::U16 => Onnx::Uint16,
        DType::U32 => Onnx::Uint32,
        DType::U64 => Onnx::Uint64,
        DType::I8 => Onnx::Int8,
        DType::I16 => Onnx::Int16,
        DType::I32 => Onnx::Int32,
        DType::I64 => Onnx::Int64,
        DType::F16 => Onnx::Float16,
        DType::F32 => Onnx::Float,
        DType::F64 => Onnx::Double,
        DType::Bytes => Onnx::String,
    }) as i32
}

/// The tract datum type of a dtype.
pub(super) fn datum_type(dtype: DType) -> DatumType {
    match dtype {
        DType::Bool => DatumType::Bool,
        DType::U8 => DatumType::U8,
        DType::U16 => DatumType::U16,
        DType::U32 => DatumType::U32,
        DType::U64 => DatumType::U64,
        DType::I8 => DatumType::I8,
        DType::I16 => DatumType::I16,
        DType::I32 => DatumType::I32,
        DType::I64 => DatumType::I64,
        DType::F16 => DatumType::F16,
        DType::F32 => DatumType::F32,
        DType::F64 => DatumType::F64,
        DType::Bytes => DatumType::String,
    }
}

/// The dtype of a tract datum type; sizes that tract computes symbolically are I64. `None` where it is none of ours.
pub(super) fn dtype_of_tract(datum_type: DatumType) -> Option<DType> {
    if datum_type == DatumType::TDim {
        return Some(DType::I64);
    }
    DType::ALL.into_iter().find(|dtype| self::datum_type(*dtype) == datum_type)
}

/// Copies one of our tensors into one of tract's, which owns aligned memory.
pub(super) fn to_tract(tensor: &Tensor) -> TractResult<TractTensor> {
    match tensor.data() {
        Data::Plain(bytes) => {
            let mut copy = TractTensor::zero_dt(datum_type(tensor.dtype()), tensor.shape())?;
            // An empty tensor of tract's has no storage to borrow.
            if !bytes.is_empty() {
                copy.as_bytes_mut().copy_from_slice(bytes);
            }
            Ok(copy)
        }
        Data::Text(strings) => {
            let array = super::tract::ndarray::ArrayD::from_shape_vec(tensor.shape(), strings.clone())?;
            Ok(array.into_tensor())
        }
    }
}

/// Memory of a tract tensor, lent out as bytes without a copy.
struct Lent(Arc<TractTensor>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// One of tract's tensors as ours, of the dtype that the model declares; numbers are lent, not copied.
pub(super) fn from_tract(tensor: Arc<TractTensor>, declared: DType) -> TractResult<Tensor> {
    let shape: Shape = tensor.shape().into();
    if declared == DType::Bytes {
        if tensor.datum_type() != DatumType::String {
            bail!("an output declared BYTES came out as {:?}", tensor.datum_type());
        }
        let strings = tensor.to_plain_array_view::<String>()?.iter().cloned().collect();
        return Ok(Tensor::text(shape, strings)?);
    }
    let wanted = datum_type(declared);
    // tract computes shapes symbolically (TDim) and keeps quantised types of its own; the caller knows neither.
    let plain = if tensor.datum_type().unquantized() == wanted {
        tensor
    } else {
        Arc::new(tensor.cast_to_dt(wanted)?.into_owned())
    };
    let bytes = if plain.len() == 0 { Bytes::new() } else { Bytes::from_owner(Lent(plain)) };
    Ok(Tensor::plain(declared, shape, bytes)?)
}

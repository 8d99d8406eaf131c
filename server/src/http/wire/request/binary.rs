//! The binary section of a body → tensors that share its bytes.

use super::error::Problem;
use bytes::{Buf, Bytes};
use plimsoll_engine::tensor::{DType, Shape, Tensor, TensorError, volume};

/// The tensor that `bytes` holds, as the binary tensor data extension lays it out: little-endian numbers, row-major,
/// kept without a copy; for text a 4-byte length before each string.
///
/// # Errors
/// The bytes are not as many as the shape and dtype take, a bool is neither 0 nor 1, or text is not UTF-8.
pub(super) fn decode(bytes: Bytes, dtype: DType, shape: Shape) -> Result<Tensor, Problem> {
    match dtype {
        DType::Bytes => strings(bytes, shape),
        _ => Ok(Tensor::plain(dtype, shape, bytes)?),
    }
}

/// The most bytes that [`decode`] takes beside the `size` given.
pub(super) fn bytes(size: usize, dtype: DType) -> usize {
    match dtype {
        DType::Bytes => (size / 4).saturating_mul(size_of::<String>()).saturating_add(size),
        _ => 0,
    }
}

fn strings(mut bytes: Bytes, shape: Shape) -> Result<Tensor, Problem> {
    let expected = volume(&shape).ok_or_else(|| TensorError::Overflow { shape: shape.clone() })?;
    // Every string takes its four bytes of length, which bounds what a wrong shape can reserve.
    let mut strings = Vec::with_capacity(expected.min(bytes.len() / 4));
    let mut index = 0;
    while !bytes.is_empty() {
        let left = bytes.len();
        let length = bytes.try_get_u32_le().map_err(|_| Problem::TextLength { index, left })? as usize;
        let left = bytes.len();
        let Some(text) = bytes.get(..length) else {
            return Err(Problem::TextBeyondData { index, length, left });
        };
        let text =
            str::from_utf8(text).map_err(|error| Problem::TextNotUtf8 { index, at: error.valid_up_to() })?;
        if index < expected {
            strings.push(text.to_owned());
        }
        bytes.advance(length);
        index += 1;
    }
    if index != expected {
        return Err(TensorError::ElementCount { shape, expected, got: index }.into());
    }
    Ok(Tensor::text(shape, strings)?)
}

//! Tensors as they cross the engine's border: a dtype, a shape and the values.
//!
//! Numbers are little-endian bytes in row-major order, shared and never copied on the way in ([`bytes::Bytes`]
//! points into the request's own body), so that the same bytes can later be gathered straight into a lane.

mod dtype;
#[cfg(test)]
mod tests;

pub use dtype::DType;

use bytes::Bytes;
use smallvec::SmallVec;

/// The sizes of a tensor's axes, outermost first; empty for a scalar.
pub type Shape = SmallVec<[usize; 6]>;

/// A concrete tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    data: Data,
}

/// The values of a [`Tensor`].
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Little-endian numbers, row-major; a `Bool` is one byte, 0 or 1.
    Plain(Bytes),
    /// Text, one string an element ([`DType::Bytes`] only).
    Text(Vec<String>),
}

/// Why bytes and a shape do not make a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The shape's element count does not fit in memory's address range.
    #[error("shape {shape:?} has more elements than can be addressed")]
    Overflow {
        /// The shape given.
        shape: Shape,
    },
    /// The bytes given are not the bytes that the shape and dtype need.
    #[error("shape {shape:?} of {dtype} takes {expected} bytes, got {got}")]
    ByteCount {
        /// The dtype given.
        dtype: DType,
        /// The shape given.
        shape: Shape,
        /// Bytes that this shape and dtype take.
        expected: usize,
        /// Bytes that came.
        got: usize,
    },
    /// The elements given are not as many as the shape needs.
    #[error("shape {shape:?} has {expected} elements, got {got}")]
    ElementCount {
        /// The shape given.
        shape: Shape,
        /// Elements that this shape has.
        expected: usize,
        /// Elements that came.
        got: usize,
    },
    /// A byte of a `Bool` tensor is neither 0 nor 1.
    #[error("element {index} of a bool tensor is the byte {value}, expected 0 or 1")]
    NotABool {
        /// Position of the element in row-major order.
        index: usize,
        /// The byte found there.
        value: u8,
    },
    /// Strings and numbers were mixed up.
    #[error("a tensor of {dtype} does not hold {what}")]
    Kind {
        /// The dtype given.
        dtype: DType,
        /// What came instead.
        what: &'static str,
    },
}

/// The number of elements of `shape`, or `None` where it overflows.
pub fn volume(shape: &[usize]) -> Option<usize> {
    // A zero axis makes the tensor empty however large the others are.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))
}

impl Tensor {
    /// A tensor of numbers from little-endian row-major bytes.
    ///
    /// # Errors
    /// The bytes do not fit the shape, a bool is neither 0 nor 1, or `dtype` is [`DType::Bytes`].
    pub fn plain(dtype: DType, shape: Shape, bytes: Bytes) -> Result<Tensor, TensorError> {
        let size = dtype.size_bytes().ok_or(TensorError::Kind { dtype, what: "plain numbers" })?;
        let expected = volume(&shape)
            .and_then(|elements| elements.checked_mul(size))
            .ok_or_else(|| TensorError::Overflow { shape: shape.clone() })?;
        if bytes.len() != expected {
            return Err(TensorError::ByteCount { dtype, shape, expected, got: bytes.len() });
        }
        if dtype == DType::Bool
            && let Some((index, &value)) = bytes.iter().enumerate().find(|(_, byte)| **byte > 1)
        {
            return Err(TensorError::NotABool { index, value });
        }
        Ok(Tensor { dtype, shape, data: Data::Plain(bytes) })
    }

    /// A tensor of strings.
    ///
    /// # Errors
    /// There are more or fewer strings than the shape has elements.
    pub fn text(shape: Shape, strings: Vec<String>) -> Result<Tensor, TensorError> {
        let expected = volume(&shape).ok_or_else(|| TensorError::Overflow { shape: shape.clone() })?;
        if strings.len() != expected {
            return Err(TensorError::ElementCount { shape, expected, got: strings.len() });
        }
        Ok(Tensor { dtype: DType::Bytes, shape, data: Data::Text(strings) })
    }

    /// A tensor copied from typed values, for callers that already hold them.
    ///
    /// # Errors
    /// There are more or fewer values than the shape has elements.
    pub fn from_slice<T: bytemuck::NoUninit>(
        dtype: DType,
        shape: &[usize],
        values: &[T],
    ) -> Result<Tensor, TensorError> {
        let bytes = Bytes::copy_from_slice(bytemuck::cast_slice(values));
        Tensor::plain(dtype, shape.into(), bytes)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes of the axes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The values.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The little-endian bytes, or `None` for text.
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match &self.data {
            Data::Plain(bytes) => Some(bytes),
            Data::Text(_) => None,
        }
    }

    /// The strings, or `None` for numbers.
    pub fn as_text(&self) -> Option<&[String]> {
        match &self.data {
            Data::Plain(_) => None,
            Data::Text(strings) => Some(strings),
        }
    }

    /// Bytes of memory that the values take.
    pub fn size_bytes(&self) -> usize {
        match &self.data {
            Data::Plain(bytes) => bytes.len(),
            Data::Text(strings) => strings.iter().map(|s| s.len() + size_of::<String>()).sum(),
        }
    }
}

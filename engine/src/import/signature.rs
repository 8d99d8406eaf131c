//! What a model takes and gives, as its file declares it.

use crate::tensor::{DType, Shape};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// The inputs and outputs of a model, in the file's order; inputs that the configuration fixes are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    /// What a request must bring.
    pub inputs: Vec<Port>,
    /// What an answer holds.
    pub outputs: Vec<Port>,
}

/// One declared input or output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its name in the file.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Its axes, outermost first; `None` where the file does not even tell the rank.
    pub dims: Option<Vec<Dim>>,
}

/// One declared axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dim {
    /// Always this size.
    Fixed(usize),
    /// A size that every axis of this name shares within one request.
    Named(String),
    /// Any size.
    Any,
}

/// Why a tensor is not what a [`Port`] takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Wrong element type.
    #[error("input `{input}` takes {expected}, got {got}")]
    DType {
        /// Name of the input.
        input: String,
        /// Declared dtype.
        expected: DType,
        /// Dtype that came.
        got: DType,
    },
    /// Wrong rank or size.
    #[error("input `{input}` takes shape {expected}, got {got:?}")]
    Shape {
        /// Name of the input.
        input: String,
        /// Declared axes, such as `[batch, 3, 224, 224]`.
        expected: String,
        /// Shape that came.
        got: Vec<usize>,
    },
    /// Two axes of one name with different sizes.
    #[error(
        "axis `{axis}` is {first_size} in input `{first}` and {second_size} in input `{second}`; both are one size"
    )]
    Axis {
        /// The axis's name.
        axis: String,
        /// The input that has it first.
        first: String,
        /// Its size there.
        first_size: usize,
        /// The input that disagrees.
        second: String,
        /// Its size there.
        second_size: usize,
    },
}

impl Port {
    /// Whether a tensor of this dtype and shape is what this port takes.
    ///
    /// # Errors
    /// The dtype, the rank or a fixed axis differs.
    pub fn check(&self, dtype: DType, shape: &[usize]) -> Result<(), Mismatch> {
        if dtype != self.dtype {
            return Err(Mismatch::DType { input: self.name.clone(), expected: self.dtype, got: dtype });
        }
        let Some(dims) = &self.dims else { return Ok(()) };
        let fits = dims.len() == shape.len()
            && dims.iter().zip(shape).all(|(dim, &size)| !matches!(dim, Dim::Fixed(n) if *n != size));
        if fits {
            return Ok(());
        }
        Err(Mismatch::Shape { input: self.name.clone(), expected: self.shape_text(), got: shape.to_vec() })
    }

    /// The declared shape as a person would write it: `[batch, 3, ?, ?]`.
    pub fn shape_text(&self) -> String {
        match &self.dims {
            None => "of any rank".into(),
            Some(dims) => {
                let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
                format!("[{}]", dims.join(", "))
            }
        }
    }

    /// The concrete shape of this port, or `None` while an axis is open.
    pub fn fixed_shape(&self) -> Option<Shape> {
        let dims = self.dims.as_ref()?;
        dims.iter().map(|dim| if let Dim::Fixed(size) = dim { Some(*size) } else { None }).collect()
    }
}

impl Signature {
    /// Checks shapes, given in the order of the inputs, against each input's declaration and against each other.
    ///
    /// # Errors
    /// The first shape that is not what its input takes, or the first axis whose size differs from one of the same
    /// name.
    pub fn check(&self, shapes: &[Shape]) -> Result<(), Mismatch> {
        let mut named: HashMap<&str, (&str, usize)> = HashMap::new();
        for (port, shape) in self.inputs.iter().zip(shapes) {
            port.check(port.dtype, shape)?;
            for (dim, &size) in port.dims.iter().flatten().zip(shape) {
                let Dim::Named(axis) = dim else { continue };
                let (first, first_size) = *named.entry(axis).or_insert((&port.name, size));
                if first_size != size {
                    return Err(Mismatch::Axis {
                        axis: axis.clone(),
                        first: first.into(),
                        first_size,
                        second: port.name.clone(),
                        second_size: size,
                    });
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(size) => write!(f, "{size}"),
            Dim::Named(name) => f.write_str(name),
            Dim::Any => f.write_str("?"),
        }
    }
}

//! Why a request is refused, in one sentence that names the field.

use crate::http::wire::text::excerpt;
use plimsoll_engine::import::Mismatch;
use plimsoll_engine::tensor::{DType, Shape, TensorError};
use std::fmt;

/// A request that cannot be understood or is not what the model takes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadRequest {
    /// An input's dtype or shape is not the one that the model declares.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// A field that is malformed, missing, unknown or at odds with another.
    #[error("{field}: {problem}")]
    Field {
        /// Where in the request.
        field: Field,
        /// What was expected there and what came.
        problem: Box<Problem>,
    },
}

/// A place in a request.
#[derive(Debug)]
pub(crate) enum Field {
    /// The body as a whole.
    Body,
    /// The header that gives the JSON's length.
    HeaderLength,
    /// A member of the outermost JSON object.
    Request,
    /// An entry of `inputs` or `outputs` whose name is not known yet.
    Entry(&'static str, usize),
    /// The input of that name.
    Input(String),
    /// The requested output of that name.
    Output(String),
}

/// What is wrong with a [`Field`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("empty, expected a JSON object")]
    Empty,
    #[error("not UTF-8 at byte {at}, expected JSON{}", hint(.has_header))]
    NotUtf8 { at: usize, has_header: bool },
    #[error("not an inference request: {message}{}", hint(.has_header))]
    NotJson { message: String, has_header: bool },
    #[error("0, but tensors without a JSON description are not supported; give the JSON's length in bytes")]
    RawBinary,
    #[error("{header} bytes of JSON, but the body has only {body} bytes")]
    HeaderBeyondBody { header: usize, body: usize },
    #[error("{left} bytes follow the last binary tensor, expected none")]
    Leftover { left: usize },
    #[error("`{member}` is missing")]
    Missing { member: &'static str },
    #[error("`{member}` must be {expected}, got {got}")]
    Kind { member: &'static str, expected: &'static str, got: String },
    #[error("`{member}[{index}]` must be {expected}, got {got}")]
    Element { member: &'static str, index: usize, expected: &'static str, got: String },
    #[error("`datatype` is `{got}`, expected one of {}", dtypes())]
    UnknownDType { got: String },
    #[error("`shape` has more than {limit} axes")]
    TooManyAxes { limit: usize },
    #[error("unknown; the model has {known}")]
    Unknown { known: String },
    #[error("given twice")]
    Twice,
    #[error("missing; it takes {dtype} of shape {shape}")]
    Absent { dtype: DType, shape: String },
    #[error("both `data` and the parameter `binary_data_size` are given, expected one of them")]
    TwoSources,
    #[error("neither `data` nor the parameter `binary_data_size` is given")]
    NoSource,
    #[error("`binary_data_size` is {size}, but the body has {left} more bytes of binary data{}", hint(.has_header))]
    Short { size: usize, left: usize, has_header: bool },
    #[error("the parameter `{parameter}` is not supported{instead}")]
    Unsupported { parameter: &'static str, instead: &'static str },
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error(
        "`data` is nested and has {got} entries along axis {axis}, where the shape {shape:?} has {expected}"
    )]
    Axis { axis: usize, shape: Shape, expected: usize, got: usize },
    #[error("`data` is nested to depth {got} at element {index}, where the shape {shape:?} has {} axes", .shape.len())]
    Depth { index: usize, shape: Shape, got: usize },
    #[error("element {index} claims {length} bytes of text, but {left} are left of its `binary_data_size`")]
    TextBeyondData { index: usize, length: usize, left: usize },
    #[error("element {index} is cut off: {left} bytes are left for its 4-byte length")]
    TextLength { index: usize, left: usize },
    #[error("element {index} is not UTF-8 at byte {at}, expected text")]
    TextNotUtf8 { index: usize, at: usize },
    #[error("there is no memory for it")]
    NoRoom,
}

impl Problem {
    /// The refusal of `field` for this reason.
    pub(super) fn at(self, field: Field) -> BadRequest {
        BadRequest::Field { field, problem: Box::new(self) }
    }

    /// A member of the wrong JSON type.
    pub(super) fn kind(member: &'static str, expected: &'static str, got: &str) -> Problem {
        Problem::Kind { member, expected, got: excerpt(got) }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Body => f.write_str("the body"),
            Field::HeaderLength => f.write_str("the header `Inference-Header-Content-Length`"),
            Field::Request => f.write_str("the request"),
            Field::Entry(list, index) => write!(f, "{list}[{index}]"),
            Field::Input(name) => write!(f, "input `{name}`"),
            Field::Output(name) => write!(f, "output `{name}`"),
        }
    }
}

/// Reminds of the header where binary data seems to have come without it.
fn hint(has_header: &bool) -> &'static str {
    if *has_header { "" } else { " (binary tensors need the header `Inference-Header-Content-Length`)" }
}

/// The names of every dtype.
fn dtypes() -> String {
    DType::ALL.map(DType::name).join(", ")
}

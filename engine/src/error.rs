//! What can go wrong with a model, in words that name the place. Statuses are the server's business.

use crate::import::Mismatch;
use crate::slab::DoesNotFit;
use crate::tensor::{DType, Shape, TensorError};
use std::path::PathBuf;

/// Why a model could not be imported, prepared for shapes, or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are no ONNX model.
    #[error("not an ONNX model: {reason}")]
    Malformed {
        /// What is wrong with the bytes.
        reason: String,
    },
    /// An input or output has a type that cannot be served.
    #[error("{port} `{name}` is {found}; served are tensors of {}", served_dtypes())]
    Unserved {
        /// `input` or `output`.
        port: &'static str,
        /// Its name in the file.
        name: String,
        /// What the file declares.
        found: String,
    },
    /// The model uses ops that no importer here knows.
    #[error("the model uses ops that are not supported: {ops}")]
    UnknownOps {
        /// The ops with the first node that uses each.
        ops: String,
    },
    /// A setting names or shapes something that the model does not have.
    #[error("{setting}: {reason}")]
    Setting {
        /// The setting, such as ``constants.`sr` ``.
        setting: String,
        /// What was expected and what came.
        reason: String,
    },
    /// A node cannot be imported at these shapes.
    #[error("node `{node}` ({op}) cannot be prepared: {reason}")]
    Node {
        /// The node's name in the file.
        node: String,
        /// Its ONNX op.
        op: String,
        /// The importer's own words.
        reason: String,
    },
    /// The model as a whole cannot be imported at these shapes.
    #[error("the model cannot be prepared for {shapes}: {reason}")]
    Prepare {
        /// The inputs and their shapes.
        shapes: String,
        /// The importer's own words.
        reason: String,
    },
    /// The inputs are not what the model takes.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// More or fewer inputs than the model takes.
    #[error("the model takes {expected} inputs, got {got}")]
    InputCount {
        /// Inputs in the signature.
        expected: usize,
        /// Inputs given.
        got: usize,
    },
    /// A value of the graph is larger than all that models may take.
    #[error("node `{node}` makes a value of shape {shape:?}, more than the {} that all models together may take", size(*.largest_bytes))]
    TooLarge {
        /// The node's name in the file.
        node: String,
        /// The value's shape.
        shape: Vec<usize>,
        /// Bytes that all models together may take.
        largest_bytes: u64,
    },
    /// The elements of a constant cannot be read from the model's file.
    #[error("cannot read the weights `{name}`: {source}")]
    Weights {
        /// The constant.
        name: String,
        /// What the system said, or what has become of the file.
        source: std::io::Error,
    },
    /// The bytes do not fit under the ceiling.
    #[error(transparent)]
    DoesNotFit(#[from] DoesNotFit),
    /// A program needs more workspace than a lane has.
    #[error(
        "shapes {shapes} need {} of workspace, the largest lane has {}; send a smaller batch or shape, or raise \
         lanes.workspace", size(*.needed_bytes as u64), size(*.lane_bytes as u64)
    )]
    Workspace {
        /// The inputs and their shapes.
        shapes: String,
        /// Bytes that the program needs at its peak.
        needed_bytes: usize,
        /// Bytes that the largest lane has.
        lane_bytes: usize,
    },
    /// The shapes that a model is made ready for before anyone asks need more workspace than a lane has.
    #[error(
        "it is made ready for shapes {shapes}, which need {} of workspace, the largest lane has {}; raise \
         lanes.workspace, or name smaller shapes in `prepare` of its model.toml",
        size(*.needed_bytes as u64), size(*.lane_bytes as u64)
    )]
    PreparedWorkspace {
        /// The inputs and their shapes.
        shapes: String,
        /// Bytes that the program needs at its peak.
        needed_bytes: usize,
        /// Bytes that the largest lane has.
        lane_bytes: usize,
    },
    /// The run itself failed on these values.
    #[error("the model cannot be run on these values: {reason}")]
    Run {
        /// The executor's own words.
        reason: String,
    },
    /// A dependency panicked during the run; caught, and nothing of it is kept.
    #[error("the model cannot be run on these values: {reason}")]
    Panicked {
        /// The panic's message.
        reason: String,
    },
    /// A step has no kernel: a fault of ours.
    #[error(transparent)]
    NoKernel(#[from] crate::device::NoKernel),
    /// The system did not give memory that the ledger has.
    #[error("the system did not give {bytes} bytes")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// A kernel broke off: a fault of ours; caught, and the lane stays usable.
    #[error("the run broke off: {reason}")]
    Fault {
        /// The panic's message.
        reason: String,
    },
    /// Values and a shape that do not go together.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

fn served_dtypes() -> String {
    DType::ALL.map(DType::name).join(", ")
}

/// Shapes as `x=[1, 3, 8, 8], y=[2]`, for error texts.
pub(crate) fn shapes_text<'a>(names: impl Iterator<Item = &'a str>, shapes: &[Shape]) -> String {
    let parts: Vec<String> =
        names.zip(shapes).map(|(name, shape)| format!("{name}={:?}", shape.as_slice())).collect();
    if parts.is_empty() { "no inputs".into() } else { parts.join(", ") }
}

/// Bytes for a person: `812 MiB`, `2.0 GiB`.
pub fn size(bytes: u64) -> String {
    const KIB: f64 = 1024.0;
    let bytes_f = bytes as f64;
    match bytes_f {
        b if b >= KIB * KIB * KIB => format!("{:.1} GiB", b / (KIB * KIB * KIB)),
        b if b >= KIB * KIB * 10.0 => format!("{:.0} MiB", b / (KIB * KIB)),
        b if b >= KIB * KIB => format!("{:.1} MiB", b / (KIB * KIB)),
        b if b >= KIB => format!("{:.1} KiB", b / KIB),
        _ => format!("{bytes} bytes"),
    }
}

//! ONNX bytes → a signature, and per set of concrete shapes tract's own optimized plan. Alone names tract.
//!
//! | step | from | to |
//! |---|---|---|
//! | `file` | bytes | decoded graph and its `Signature` |
//! | `fixed` | settings | named dims sized, constant inputs made initial values |
//! | `conditions` | shapes | constant `If`s replaced by the branch taken |
//! | `prepare` | shapes | tract's typed graph |
//! | `reference` | typed graph | tract's optimized plan, run whole |
//!
//! Whatever panics inside tract is caught by `guard` and becomes an error; `blame` finds the node at fault.

mod blame;
mod conditions;
mod convert;
mod file;
mod fixed;
mod guard;
mod limits;
mod prepare;
mod reference;
mod signature;
#[cfg(test)]
mod tests;
mod threads;
mod tract;

pub use fixed::Constant;
pub use signature::{Dim, Mismatch, Port, Signature};

pub(crate) use reference::Reference;
pub(crate) use threads::Threads;

use crate::error::{Error, shapes_text};
use crate::tensor::Shape;
use prepare::Source;
use std::collections::BTreeMap;
use std::path::Path;

/// Settings that narrow a model before any request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Narrowing {
    /// A size for each named axis that has one.
    pub dims: BTreeMap<String, usize>,
    /// A value for each input that never changes; callers no longer bring it.
    pub constants: BTreeMap<String, Constant>,
}

/// An imported model: what it takes and gives, and the way to a plan for concrete shapes.
pub struct Import {
    signature: Signature,
    source: Source,
    folder: Option<String>,
    weights_bytes: usize,
    largest_bytes: u64,
}

impl Import {
    /// Imports the file at `path` as far as that goes without shapes.
    ///
    /// A value of the graph that is larger than `largest_bytes` is refused before anything is computed.
    ///
    /// External tensor data is read from the file's own folder only: no absolute path, no `..`, no link out.
    ///
    /// # Errors
    /// The file cannot be read, is malformed, has ops or dtypes that are not supported, or does not have what
    /// `narrowing` names.
    pub fn open(path: &Path, narrowing: &Narrowing, largest_bytes: u64) -> Result<Import, Error> {
        Import::from_file(file::open(path)?, narrowing, largest_bytes)
    }

    /// As [`Import::open`] from memory; `folder` is where external tensor data may lie.
    ///
    /// # Errors
    /// As [`Import::open`], reading aside.
    pub fn decode(
        bytes: &[u8],
        folder: Option<&Path>,
        narrowing: &Narrowing,
        largest_bytes: u64,
    ) -> Result<Import, Error> {
        let folder = folder.map(|path| path.to_string_lossy().into_owned());
        Import::from_file(file::decode(bytes, folder)?, narrowing, largest_bytes)
    }

    fn from_file(
        mut file: file::OnnxFile,
        narrowing: &Narrowing,
        largest_bytes: u64,
    ) -> Result<Import, Error> {
        if let Some(graph) = &file.proto.graph {
            limits::check_written_shapes(graph, largest_bytes)?;
        }
        fixed::fix_dims(&mut file, &narrowing.dims)?;
        fixed::fix_inputs(&mut file, &narrowing.constants)?;
        let signature = file.signature.clone();
        let folder = file.folder.clone();
        let source = Source::new(file)?;
        let weights_bytes = source.weights_bytes();
        Ok(Import { signature, source, folder, weights_bytes, largest_bytes })
    }

    /// What the model takes and gives; inputs fixed by the settings are left out.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Bytes of the weights as the import keeps them.
    pub fn weights_bytes(&self) -> usize {
        self.weights_bytes
    }

    /// tract's optimized plan for these shapes, in the order of the signature's inputs.
    ///
    /// # Errors
    /// A shape is not what its input takes, or the model cannot be prepared for it.
    pub(crate) fn reference(&self, shapes: &[Shape]) -> Result<Reference, Error> {
        let inputs = &self.signature.inputs;
        if shapes.len() != inputs.len() {
            return Err(Error::InputCount { expected: inputs.len(), got: shapes.len() });
        }
        self.signature.check(shapes)?;
        let typed = self.source.typed(self.folder.as_deref(), inputs, shapes, self.largest_bytes);
        let reference = typed.and_then(|typed| {
            blame::on_graph(&typed, |model| Reference::new(model, &self.signature.outputs))
        });
        reference
            .map_err(|failure| failure.at(&shapes_text(inputs.iter().map(|port| port.name.as_str()), shapes)))
    }
}

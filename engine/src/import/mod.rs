//! ONNX bytes → a signature, and per set of concrete shapes tract's own optimized plan. Alone names tract.
//!
//! | step | from | to |
//! |---|---|---|
//! | `skeleton` | a file | its bytes without the large constants, and where those are |
//! | `file` | bytes | decoded graph and its `Signature` |
//! | `weights` | decoded graph | inputs in the place of constants that stay in the file |
//! | `fixed` | settings | named dims sized, constant inputs made initial values |
//! | `conditions` | shapes | constant `If`s replaced by the branch taken |
//! | `prepare` | shapes | tract's typed graph |
//! | `lower` | typed graph | our [`Graph`](crate::graph::Graph) |
//! | `reference` | typed graph | tract's optimized plan, run whole |
//!
//! No step holds the large constants: tract sees a `placeholder` for each, and our graph names its place in the file.
//! Where the values turn out to be needed (tract cannot import a node without them, or computes the node itself), they
//! are read for that one preparation.
//!
//! Whatever panics inside tract is caught by `guard` and becomes an error; `blame` finds the node at fault.

mod blame;
mod conditions;
mod convert;
mod external;
mod file;
mod fills;
mod fixed;
mod guard;
mod judged;
mod limits;
mod lower;
mod placeholder;
mod prepare;
mod reference;
mod signature;
mod skeleton;
mod staging;
#[cfg(test)]
mod tests;
mod tract;
mod weights;

pub use fixed::Constant;
pub use signature::{Dim, Mismatch, Port, Signature};
pub use staging::Grant;

pub(crate) use guard::{Panicked, caught};
pub(crate) use lower::Unplannable;
pub(crate) use reference::Reference;
pub(crate) use staging::Staging;

use crate::error::{Error, shapes_text};
use crate::graph::{DataFile, Graph};
use crate::tensor::{DType, Shape};
use blame::Failure;
use lower::Lowering;
use prepare::{Source, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

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
    files: Vec<Arc<DataFile>>,
    weights_bytes: usize,
}

impl Import {
    /// Imports the file at `path` as far as that goes without shapes.
    ///
    /// What it takes while it works is asked of `grant` first.
    ///
    /// External tensor data is read from the file's own folder only: no absolute path, no `..`, no link out.
    ///
    /// # Errors
    /// The file cannot be read, is malformed, has ops or dtypes that are not supported, or does not have what
    /// `narrowing` names.
    pub fn open(path: &Path, narrowing: &Narrowing, grant: &Grant) -> Result<Import, Error> {
        Import::again(path, None, &[], narrowing, grant)
    }

    /// As [`Import::open`] of files that were opened before, the model's own first: they are read as they were then,
    /// whatever lies in their places now. Others are opened in the folder `within` only, links followed.
    ///
    /// # Errors
    /// As [`Import::open`].
    pub(crate) fn again(
        path: &Path,
        within: Option<&Path>,
        known: &[Arc<DataFile>],
        narrowing: &Narrowing,
        grant: &Grant,
    ) -> Result<Import, Error> {
        let staging = grant.staging();
        Import::from_file(file::open(path, within, known, &staging)?, narrowing, &staging)
    }

    /// As [`Import::open`] from memory; `folder` is where external tensor data may lie.
    ///
    /// # Errors
    /// As [`Import::open`], reading aside.
    pub fn decode(
        bytes: &[u8],
        folder: Option<&Path>,
        narrowing: &Narrowing,
        grant: &Grant,
    ) -> Result<Import, Error> {
        let staging = grant.staging();
        Import::from_file(file::from_memory(bytes, folder, &staging)?, narrowing, &staging)
    }

    fn from_file(
        mut file: file::OnnxFile,
        narrowing: &Narrowing,
        staging: &Staging,
    ) -> Result<Import, Error> {
        if let Some(graph) = &file.proto.graph {
            limits::check_written_shapes(graph, staging.largest_bytes())?;
        }
        fixed::fix_dims(&mut file, &narrowing.dims)?;
        fixed::fix_inputs(&mut file, &narrowing.constants)?;
        let signature = file.signature.clone();
        let files = file.file.iter().chain(file.weights.files()).cloned().collect();
        let source = Source::new(file)?;
        let weights_bytes = source.weights_bytes();
        Ok(Import { signature, source, files, weights_bytes })
    }

    /// What the model takes and gives; inputs fixed by the settings are left out.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The files that the model is made of: its own, then those beside it that hold constants.
    pub(crate) fn files(&self) -> &[Arc<DataFile>] {
        &self.files
    }

    /// Bytes of constants that the import holds in memory: the small ones, those of nested graphs, and all of a model
    /// that was decoded from memory.
    pub fn weights_bytes(&self) -> usize {
        self.weights_bytes
    }

    /// The model for these shapes, in the order of the signature's inputs, as our graph; or as tract's optimized
    /// plan, run whole, where `whole` asks for that or the model cannot be planned. With it comes what the preparation
    /// has taken of `grant`, to be held for as long as constants are only in what was prepared.
    ///
    /// # Errors
    /// A shape is not what its input takes, or the model cannot be prepared for it.
    pub(crate) fn lowered(
        &self,
        shapes: &[Shape],
        whole: bool,
        grant: &Grant,
    ) -> Result<(Lowered, Arc<Staging>), Error> {
        let inputs = &self.signature.inputs;
        if shapes.len() != inputs.len() {
            return Err(Error::InputCount { expected: inputs.len(), got: shapes.len() });
        }
        self.signature.check(shapes)?;
        let failed =
            |failure: Failure| failure.at(&shapes_text(inputs.iter().map(|port| port.name.as_str()), shapes));
        let text = inputs.iter().chain(&self.signature.outputs).any(|port| port.dtype == DType::Bytes);
        let all = self.source.weights().names();
        let mut needed = if whole || text { all.clone() } else { self.source.needed() };
        let mut attempts = 0;
        loop {
            let staging = grant.staging();
            let wanted = match self.attempt(shapes, whole || text, &needed, &staging) {
                Ok(Attempt::Done(lowered)) => {
                    if !whole {
                        self.source.remember(needed);
                    }
                    return Ok((lowered, staging));
                }
                Ok(Attempt::Wants(wanted)) => wanted,
                Err(failure) => match (staging.refusal(), failure.may_want_values()) {
                    (Some(refusal), _) => return Err(refusal),
                    (None, Some(text)) if needed != all => self.source.suspects(&text),
                    _ => return Err(failed(failure)),
                },
            };
            if needed == all {
                return Err(failed(Failure::Error("it asks for values that it has".into())));
            }
            let before = needed.len();
            needed.extend(wanted);
            attempts += 1;
            // Each attempt brings more values, and few attempts bring them all.
            if needed.len() == before || attempts == MOST_ATTEMPTS {
                needed.clone_from(&all);
            }
        }
    }

    /// Lowers the model with the values of the constants called `needed`.
    fn attempt(
        &self,
        shapes: &[Shape],
        whole: bool,
        needed: &BTreeSet<String>,
        staging: &Arc<Staging>,
    ) -> Result<Attempt, Failure> {
        let (inputs, outputs) = (&self.signature.inputs, &self.signature.outputs);
        let target = Target { inputs, shapes, staging };
        let typed = self.source.typed(needed, target)?;
        let all = self.source.weights();
        blame::on_graph(&typed, |model| {
            let reason = match whole {
                true => None,
                false => match lower::lower(&model, all)? {
                    Lowering::Graph(graph) => return Ok(Attempt::Done(Lowered::Graph(graph))),
                    Lowering::Wants(names) => return Ok(Attempt::Wants(names)),
                    Lowering::Unplannable(unplannable) => Some(unplannable),
                },
            };
            let all = all.names();
            if *needed != all {
                return Ok(Attempt::Wants(all));
            }
            Ok(Attempt::Done(Lowered::Whole(Reference::new(model, outputs)?, reason)))
        })
    }
}

/// How often a preparation is tried again with a few more values, before it is tried with all.
const MOST_ATTEMPTS: usize = 8;

/// What came of a preparation.
enum Attempt {
    Done(Lowered),
    /// It needs the values of these constants.
    Wants(BTreeSet<String>),
}

/// A model at concrete shapes.
pub(crate) enum Lowered {
    /// Our graph.
    Graph(Graph),
    /// tract's own plan, and why it is not our graph where nobody asked for it.
    Whole(Reference, Option<Unplannable>),
}

//! The engine of Plimsoll: ONNX bytes in, tensors out, and a ledger of what models hold under a ceiling.
//!
//! Synchronous; knows no tokio, HTTP, JSON or environment. The modules stand in the order of a model's journey,
//! and each imports only those above it:
//!
//! | stage | from | to |
//! |---|---|---|
//! | [`tensor`] | bytes and a shape | a checked [`tensor::Tensor`] |
//! | [`import`] | ONNX bytes | a [`import::Signature`], and per set of shapes tract's own optimized plan |
//! | [`slab`] | a ceiling | the account of who holds which bytes under it |
//! | [`program`] | a plan | a [`program::Program`] that a worker runs in its own workspace |
//! | [`model`] | a file and options | a [`model::Model`] that hands out programs for shapes |

/// Tensors as they cross the engine's border.
pub mod tensor;

/// ONNX bytes to a signature and a runnable plan; the only module that names tract.
pub mod import;

/// The ceiling, and the account of every byte under it.
pub mod slab;

/// A model ready for one set of shapes, and the workspace that it runs in.
pub mod program;

/// A model file under the ledger, and its programs.
pub mod model;

/// What can go wrong with a model.
pub mod error;

//! The engine of Plimsoll: ONNX bytes in, tensors out, and a ledger of what models hold under a ceiling.
//!
//! Synchronous; knows no tokio, HTTP, JSON or environment. The modules stand in the order of a model's journey,
//! and each imports only those above it:
//!
//! | stage | from | to |
//! |---|---|---|
//! | [`tensor`] | bytes and a shape | a checked [`tensor::Tensor`] |
//! | [`graph`] | nodes and values | a checked [`graph::Graph`] of our own ops |
//! | [`cache`] | what was made once | the same, at the next start |
//! | [`import`] | ONNX bytes | a [`import::Signature`], and per set of shapes a graph |
//! | [`fuse`] | a graph | a graph of fewer and larger steps |
//! | [`plan`] | a graph | steps on views of a workspace |
//! | [`slab`] | a ceiling | the account of who holds which bytes under it |
//! | [`lane`] | workspaces | a pool that hands them out |
//! | [`device`] | a plan | a kernel a step, and constants packed for them |
//! | [`arena`] | lines | the slab, its lanes and its ledger |
//! | [`program`] | a plan | a [`program::Program`] that a worker runs in its own workspace |
//! | [`model`] | a file and options | a [`model::Model`] that hands out programs for shapes |

/// Tensors as they cross the engine's border.
pub mod tensor;

/// Our own graph: some twenty ops, and chains of pointwise operations.
pub mod graph;

/// What is kept on disk between starts.
pub mod cache;

/// ONNX bytes to a signature and a runnable plan; the only module that names tract.
pub mod import;

/// Graph to graph: fewer and larger steps that compute the same.
pub mod fuse;

/// Graph to plan: order, lifetimes, offsets; pure arithmetic.
pub mod plan;

/// The ceiling, and the account of every byte under it.
pub mod slab;

/// Lanes: workspaces handed out one run at a time.
pub mod lane;

/// What runs the steps of a plan; the only unsafe code.
pub mod device;

/// The memory under the ceiling: taken once, divided, handed out.
pub mod arena;

/// A model ready for one set of shapes, and the workspace that it runs in.
pub mod program;

/// A model file under the ledger, and its programs.
pub mod model;

/// What can go wrong with a model.
pub mod error;

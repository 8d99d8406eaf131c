//! The Open Inference Protocol v2 as types: bytes in, bytes out, nothing of HTTP, routing or models.
//!
//! | module | from | to |
//! |---|---|---|
//! | `request` | the body of an inference request | tensors in the order of the model's inputs |
//! | `response` | tensors | the body of the answer |
//! | `metadata` | a model's signature, states and counts | every other JSON body |
//! | `openapi` | `openapi.json` | the operations that it describes |
//!
//! The protocol is KServe's `required_api.md` with the extensions that Triton documents under `docs/protocol`:
//! binary tensor data, model configuration, model repository and statistics.

/// The body of an inference request.
pub(crate) mod request;

/// The body of an inference answer.
pub(crate) mod response;

/// All other JSON bodies, in both directions.
pub(crate) mod metadata;

/// The description of every route.
pub(crate) mod openapi;

/// Clients' text in sentences.
mod text;

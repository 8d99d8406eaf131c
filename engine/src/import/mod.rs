//! ONNX bytes → a signature, and per set of concrete shapes tract's own optimized plan. Alone names tract.

mod signature;

pub use signature::{Dim, Mismatch, Port, Signature};

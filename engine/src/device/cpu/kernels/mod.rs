//! The work of each step on a CPU: strided, vectorised, and without allocation once it is made.
//!
//! A kernel is made once, when its program is built, for fixed shapes and strides; it may then be run any number
//! of times, by several threads at once. Shapes and strides are in elements, one per logical axis. A stride is 0
//! where a tensor is broadcast along an axis, and never negative. A target's elements are all distinct.

/// Attention, without its scores.
pub(crate) mod attention;
pub(crate) mod cast;
/// Convolutions of channels-last images.
pub(crate) mod conv;
pub(crate) mod copy;
pub(crate) mod gather;
/// Products of matrices.
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod pad;
pub(crate) mod pointwise;
pub(crate) mod pool;
pub(crate) mod reduce;
pub(crate) mod resize;
pub(crate) mod softmax;

mod lanes;
mod math;
mod split;
mod walk;

#[cfg(test)]
mod testing;

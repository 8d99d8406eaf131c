//! The kernels: their sources, and beside each the launcher that chooses among them.

pub(super) mod attention;
mod axes;
pub(super) mod cast;
pub(super) mod conv;
pub(super) mod copy;
pub(super) mod depthwise;
pub(super) mod epilogue;
mod few;
pub(super) mod gather;
pub(super) mod gemm;
pub(super) mod grid;
pub(super) mod launch;
pub(super) mod norm;
mod pack;
pub(super) mod pad;
pub(super) mod pointwise;
pub(super) mod pool;
pub(super) mod reduce;
pub(super) mod resize;
pub(super) mod softmax;
mod sources;
mod split;
pub(super) mod tile;
pub(super) mod transpose_conv;
mod units;

pub(super) use sources::{Source, sources};

//! The processor as a device: kernels on slices of a workspace, and the threads of a lane.

mod args;
mod bind;
mod block;
mod kernels;
mod mapping;
mod memory;
mod program;
mod threads;
mod weights;
mod workspace;

pub(crate) use block::{Block, Room};
pub(crate) use mapping::Mapping;
pub(crate) use program::{CpuProgram, Prepared};
pub(crate) use threads::Threads;
pub(crate) use weights::{Kept, WeightStore};
pub use workspace::Workspace;

/// Bytes that every extent and every block of a workspace starts at a multiple of: a line of the cache, and the
/// widest vector.
pub(crate) const ALIGNMENT: u64 = 64;

//! What the pool of lanes takes from the slab.

#[path = "../../../engine/src/slab/used.rs"]
mod used;

pub use used::Use;

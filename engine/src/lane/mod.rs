//! Lanes: workspaces that any model can run in, handed out one run at a time and never made for a request.

/// The locks, which a model checker replaces in its tests.
mod sync;

/// Who has which lane.
mod pool;

pub use pool::{Counters, Lane, LaneUse, Pool, Want};

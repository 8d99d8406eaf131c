//! Devices: what runs the steps of a plan. The only unsafe code of the engine lies below this module.
//!
//! A device says what it prefers (as data, for stages that must not name one), chooses a kernel for every step, says
//! how that kernel wants its constants to lie and what scratch it needs, and later runs the kernels on a workspace.

pub(crate) mod cpu;

use std::sync::atomic::{AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Blocks of memory for weights and workspaces that the process has allocated on any device: where there is a slab,
/// that is the only one.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Counts an allocation; to be called by whoever makes one.
fn allocated() {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
}

/// A step for which a device has no kernel, though the stages before should have left none: a fault of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no kernel for step `{step}` ({op}): {reason}")]
pub struct NoKernel {
    /// The step's name.
    pub step: String,
    /// Its op.
    pub op: String,
    /// What about it.
    pub reason: String,
}

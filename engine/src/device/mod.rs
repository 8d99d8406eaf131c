//! Devices: what runs the steps of a plan. The only unsafe code of the engine lies below this module.
//!
//! A device says what it prefers (as data, for stages that must not name one), chooses a kernel for every step, says
//! how that kernel wants its constants to lie and what scratch it needs, and later runs the kernels on a workspace.

pub(crate) mod cpu;

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

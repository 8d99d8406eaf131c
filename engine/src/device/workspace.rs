//! What a lane runs programs with: the device's side of it.

use super::Opened;
use crate::error::Error;
use std::any::Any;

/// Workspaces with their bytes.
pub(crate) type Lanes = Vec<(u64, Workspace)>;

/// A device's side of a workspace.
pub(crate) trait Lane: Any + Send {
    /// Has at least `bytes` of memory ready.
    ///
    /// # Errors
    /// The lane's workspace is smaller, or the system does not give more.
    fn at_least(&mut self, bytes: usize) -> Result<(), Error>;

    /// Overwrites all of its memory with `byte`.
    ///
    /// # Errors
    /// The device's.
    fn fill(&mut self, byte: u8) -> Result<(), Error>;
}

/// Memory and threads of one lane.
pub struct Workspace {
    pub(crate) lane: Box<dyn Lane>,
}

impl Workspace {
    /// A workspace of the processor outside any slab, which grows to what is run in it; its runs use `threads` threads
    /// inside an op (1: the caller's own).
    ///
    /// # Errors
    /// The threads cannot be started.
    pub fn new(threads: usize) -> Result<Workspace, Error> {
        Opened::default().workspace(threads)
    }

    /// Overwrites its memory with `byte`: what a run leaves behind, be it NaN (0xff everywhere) or zeros, must not show in the
    /// next one's outputs.
    ///
    /// # Errors
    /// The device's.
    pub fn fill(&mut self, byte: u8) -> Result<(), Error> {
        self.lane.fill(byte)
    }

    /// What a device has made. Host steps and models that are run whole use the caller's own thread.
    pub(super) fn of(lane: Box<dyn Lane>) -> Workspace {
        Workspace { lane }
    }
}

//! What a lane runs programs with: its memory and its threads.

use super::block::Block;
use super::mapping::Mapping;
use super::threads::Threads;
use crate::error::Error;
use crate::import;
use crate::slab::{Extent, Layout};
use std::sync::Arc;

/// Workspaces with their bytes.
pub(crate) type Lanes = Vec<(u64, Workspace)>;

/// Memory and threads of one lane.
pub struct Workspace {
    pub(crate) block: Block,
    pub(crate) threads: Threads,
    /// The threads of host steps and of models that are run whole.
    pub(crate) host: import::Threads,
    /// Whether the block is as large as it will ever be.
    fixed: bool,
}

impl Workspace {
    /// A workspace outside any slab, which grows to what is run in it; its runs use `threads` threads inside an op
    /// (1: the caller's own).
    ///
    /// # Errors
    /// The threads cannot be started.
    pub fn new(threads: usize) -> Result<Workspace, Error> {
        Ok(Workspace { fixed: false, ..Workspace::of(Block::new(0)?, threads)? })
    }

    /// The workspaces of a slab's steady lanes, and of its burst lanes, with their bytes.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub(crate) fn lanes(mapping: &Arc<Mapping>, layout: Layout, threads: usize) -> Result<[Lanes; 2], Error> {
        let of = |extents: &[Extent]| -> Result<Lanes, Error> {
            let lanes = extents.iter().map(|extent| {
                // SAFETY: the layout, which is used up here, gives every lane an extent of its own, and none to weights.
                let block = unsafe { Block::in_slab(mapping, *extent) };
                Ok((extent.bytes, Workspace::of(block, threads)?))
            });
            lanes.collect()
        };
        Ok([of(layout.steady())?, of(layout.burst())?])
    }

    /// A workspace of these bytes and no others.
    fn of(block: Block, threads: usize) -> Result<Workspace, Error> {
        let own = Threads::new(threads);
        let own = own.map_err(|error| Error::Run { reason: format!("cannot start threads: {error}") })?;
        Ok(Workspace { block, threads: own, host: import::Threads::new(threads)?, fixed: true })
    }

    /// Has at least `bytes` of memory ready.
    ///
    /// # Errors
    /// The lane's workspace is smaller, or the system does not give more.
    pub(crate) fn at_least(&mut self, bytes: usize) -> Result<(), Error> {
        if self.block.len() >= bytes {
            return Ok(());
        }
        if self.fixed {
            let lane_bytes = self.block.len();
            return Err(Error::Workspace { shapes: "of this run".into(), needed_bytes: bytes, lane_bytes });
        }
        self.block = Block::new(bytes)?;
        Ok(())
    }
}

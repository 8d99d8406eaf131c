//! A lane of the processor: its memory and its threads.

use super::block::Block;
use super::threads::Threads;
use crate::device::{Lane, Lanes, Memory, Workspace};
use crate::error::Error;
use crate::slab::{Extent, Layout};
use std::sync::Arc;

/// Memory and threads of one lane.
pub(crate) struct CpuLane {
    pub(super) block: Block,
    pub(super) threads: Threads,
    /// Whether the block is as large as it will ever be.
    fixed: bool,
}

impl CpuLane {
    /// A lane outside any slab, which grows to what is run in it.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub(crate) fn growing(threads: usize) -> Result<CpuLane, Error> {
        Ok(CpuLane { fixed: false, ..CpuLane::of(Block::new(0)?, threads)? })
    }

    /// The steady and the burst lanes of a slab.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub(super) fn all(memory: &Arc<dyn Memory>, layout: Layout, threads: usize) -> Result<[Lanes; 2], Error> {
        let of = |extents: &[Extent]| -> Result<Lanes, Error> {
            let lanes = extents.iter().map(|extent| {
                // SAFETY: the layout, which is used up here, gives every lane an extent of its own, and none to weights.
                let block = unsafe { Block::in_slab(memory, *extent) };
                Ok((extent.bytes, Workspace::of(Box::new(CpuLane::of(block, threads)?))))
            });
            lanes.collect()
        };
        Ok([of(layout.steady())?, of(layout.burst())?])
    }

    /// A lane of these bytes and no others.
    fn of(block: Block, threads: usize) -> Result<CpuLane, Error> {
        let threads = Threads::new(threads);
        let threads =
            threads.map_err(|error| Error::Run { reason: format!("cannot start threads: {error}") })?;
        Ok(CpuLane { block, threads, fixed: true })
    }
}

impl Lane for CpuLane {
    fn at_least(&mut self, bytes: usize) -> Result<(), Error> {
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

    fn fill(&mut self, byte: u8) -> Result<(), Error> {
        self.block.bytes_mut().fill(byte);
        Ok(())
    }
}

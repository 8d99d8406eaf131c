//! Steps and the scratch that their kernels want → offsets in a lane's workspace.

use super::offsets::{Buffer, assign, live_peak_bytes, peak_step};
use super::steps::{BlockId, Layout};

/// Where everything lies, decided before any request. Offsets are relative to the lane's workspace.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The steps and their blocks.
    pub layout: Layout,
    /// The offset of each block, in bytes.
    pub block_offsets: Vec<u64>,
    /// The offset and size of each step's scratch, in bytes.
    pub scratch: Vec<(u64, u64)>,
    /// Bytes that a lane needs.
    pub workspace_bytes: u64,
    /// Bytes that are alive at once at the step where they are most: what no plan for this order can go below.
    pub live_peak_bytes: u64,
    /// That step.
    pub peak_step: Option<usize>,
    /// What every offset is a multiple of, in bytes.
    pub alignment_bytes: u64,
}

impl Plan {
    /// Places the blocks of a layout; `scratch_bytes` has an entry a step.
    pub fn new(layout: Layout, scratch_bytes: &[u64], alignment: u64) -> Plan {
        let mut buffers: Vec<Buffer> = layout
            .blocks
            .iter()
            .map(|block| Buffer {
                bytes: (block.elements * block.dtype.size_bytes().unwrap_or(0)) as u64,
                first_step: block.first_step,
                last_step: block.last_step,
            })
            .collect();
        let of_steps = scratch_bytes.iter().enumerate();
        buffers.extend(of_steps.map(|(at, &bytes)| Buffer { bytes, first_step: at, last_step: at }));
        let placed = assign(&buffers, alignment);
        let (blocks, scratch) = placed.offset_bytes.split_at(layout.blocks.len());
        Plan {
            block_offsets: blocks.to_vec(),
            scratch: scratch.iter().copied().zip(scratch_bytes.iter().copied()).collect(),
            workspace_bytes: placed.workspace_bytes,
            live_peak_bytes: live_peak_bytes(&buffers, alignment),
            peak_step: peak_step(&buffers, alignment),
            alignment_bytes: alignment,
            layout,
        }
    }

    /// The offset of a block in the workspace, in bytes.
    pub fn offset(&self, block: BlockId) -> u64 {
        self.block_offsets[block.0 as usize]
    }
}

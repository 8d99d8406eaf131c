//! The processor as a device: kernels on slices of a workspace, and the threads of a lane.

mod args;
mod bind;
mod block;
mod kernels;
mod lane;
mod mapping;
mod memory;
mod program;
mod threads;
mod weights;

use super::weights::WeightStore;
use super::{Constants, Device, Lane, Lanes, Manner, Memory, NoKernel, Prepared, Refused};
use crate::error::Error;
use crate::fuse::{Precision, Preferences};
use crate::graph::Graph;
use crate::{plan, slab};
use lane::CpuLane;
use mapping::Mapping;
use std::io;
use std::sync::Arc;

/// Bytes that every extent and every block of a workspace starts at a multiple of: a line of the cache, and the
/// widest vector.
const ALIGNMENT: u64 = 64;

/// The processor.
pub(super) struct Cpu;

impl Device for Cpu {
    fn kind(&self) -> &'static str {
        "cpu"
    }

    fn name(&self) -> &str {
        "cpu"
    }

    fn driver_bytes(&self) -> Result<u64, Error> {
        Ok(0)
    }

    fn own_free_bytes(&self) -> Option<u64> {
        None
    }

    fn pinned_refused(&self) -> Option<Refused> {
        None
    }

    fn growing_lane(&self, threads: usize) -> Result<Box<dyn Lane>, Error> {
        Ok(Box::new(CpuLane::growing(threads)?))
    }

    fn computes_in(&self, precision: Precision) -> bool {
        precision == Precision::F32
    }

    fn preferences(&self) -> Preferences {
        Preferences::default()
    }

    fn alignment(&self) -> u64 {
        ALIGNMENT
    }

    fn memory(&self, bytes: u64) -> io::Result<Arc<dyn Memory>> {
        Ok(Arc::new(Mapping::new(bytes as usize)?))
    }

    fn lanes(
        &self,
        memory: &Arc<dyn Memory>,
        layout: slab::Layout,
        threads: usize,
    ) -> Result<[Lanes; 2], Error> {
        CpuLane::all(memory, layout, threads)
    }

    fn constants(&self) -> Constants {
        Box::<WeightStore>::default()
    }

    fn prepare(
        &self,
        graph: Graph,
        layout: plan::Layout,
        manner: Manner,
    ) -> Result<Box<dyn Prepared>, NoKernel> {
        Ok(Box::new(program::Prepared::new(graph, layout, manner.threads)?))
    }
}

//! Runs on inputs that stay on the device, as tools time them that do not count copies.

use super::super::ALIGNMENT;
use super::super::context::failure;
use super::super::graphs::{Bases, Graph};
use super::super::lane::CudaLane;
use super::super::memory::DeviceMemory;
use super::super::modules::done;
use super::super::transfers;
use super::{CudaProgram, Part};
use crate::device::{Batch, Memory};
use crate::error::Error;
use crate::slab::Extent;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::CUdeviceptr;
use std::time::{Duration, Instant};

impl CudaProgram {
    /// Brings the inputs to memory of their own on the device, and times runs that begin there and leave the outputs in
    /// the workspace, for as long as `limit` says.
    ///
    /// # Errors
    /// The program has host steps, or the device's.
    pub(super) fn resident(
        &self,
        lane: &mut CudaLane,
        bases: &Bases,
        batch: Batch<'_>,
        limit: Duration,
    ) -> Result<Vec<Duration>, Error> {
        let [Part::Device(steps)] = &self.parts[..] else {
            return Err(Error::Run { reason: "what has host steps does not run without copies".into() });
        };
        let bytes: usize = self.inputs.iter().map(|input| place(input.bytes)).sum();
        let memory = DeviceMemory::take(&self.shared.context, &self.shared.upload, bytes as u64);
        let memory = memory.map_err(|_| Error::Memory { bytes })?;
        let mut at = memory.at(Extent { chunk: 0, offset_bytes: 0, bytes: bytes as u64 }) as CUdeviceptr;
        let mut copies = vec![];
        for (input, transfer) in self.inputs.iter().enumerate() {
            let mut to = at;
            for piece in batch.pieces(input, transfer.bytes) {
                transfers::bring(piece, to, &mut lane.staging, &lane.stream)?;
                to += piece.len() as u64;
            }
            copies.push((at, lane.first + transfer.offset as u64, transfer.bytes));
            at += place(transfer.bytes) as u64;
        }
        let stream = lane.stream.raw();
        let launch = || -> Result<(), DriverError> {
            for (from, to, bytes) in copies.iter().filter(|(.., bytes)| *bytes > 0) {
                // SAFETY: the plan placed the input in the workspace, and what is kept of it is as long.
                unsafe { result::memcpy_dtod_async(*to, *from, *bytes, stream)? };
            }
            steps.clone().try_for_each(|at| self.launch_step(lane, bases, at))
        };
        done(launch())?;
        lane.stream.wait()?;
        let graph = Graph::record(stream, launch).map_err(failure)?;
        let (begun, mut times) = (Instant::now(), vec![]);
        while begun.elapsed() < limit || times.is_empty() {
            let run = Instant::now();
            // SAFETY: recorded for these addresses; the caller holds the weights, the rest is held here.
            done(unsafe { graph.launch(stream) })?;
            lane.stream.wait()?;
            times.push(run.elapsed());
        }
        Ok(times)
    }
}

/// Bytes that an input takes, so that the next one begins where an allocation of the driver's could.
fn place(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT as usize)
}

//! When the device's memory may be allocated: at start, and never again.

use crate::error::size;

/// Device memory that was asked for when the start was over; nothing was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} of device memory asked for after the start, which alone allocates it", size(*.bytes))]
pub struct AfterStart {
    /// Bytes asked for.
    pub bytes: u64,
}

/// Where the process stands: at its start, or, from [`Phases::ready`] on, serving from what was taken then.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Allocations that had been made by the end of the start.
    ready_at: Option<u64>,
}

impl Phases {
    /// Has `take` allocate `bytes`.
    ///
    /// # Errors
    /// The start is over, and `take` was not called; or what `take` answers.
    pub fn allocate<T, E: From<AfterStart>>(
        &self,
        bytes: u64,
        take: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if self.ready_at.is_some() {
            return Err(AfterStart { bytes }.into());
        }
        take()
    }

    /// The start is over; so far the device has counted so many allocations. A second call changes nothing.
    pub fn ready(&mut self, allocations: u64) {
        self.ready_at.get_or_insert(allocations);
    }

    /// How many of the device's `allocations` came after the start; each is a fault.
    pub fn after_ready(&self, allocations: u64) -> u64 {
        self.ready_at.map_or(0, |before| allocations.saturating_sub(before))
    }
}

#[cfg(test)]
mod tests;

//! The memory that bodies take: those of requests, and of the answers to them.

use super::error::ApiError;
use super::spare::Spare;
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The memory that bodies may take together.
#[derive(Clone)]
pub(crate) struct Budget {
    units: Arc<Semaphore>,
    spare: Arc<Spare>,
    total: u64,
    /// The most that one request body may take.
    pub(super) largest: u64,
}

/// What the budget counts in, bytes: a semaphore's single claim is a `u32`.
const UNIT: u64 = 1024;

/// A claim on the budget.
#[derive(Default)]
pub(crate) struct Share(Option<OwnedSemaphorePermit>);

impl Share {
    /// Grows the claim until it covers `bytes`.
    pub(super) fn cover(&mut self, budget: &Budget, bytes: u64) -> Result<(), ApiError> {
        let held = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) as u64;
        let more = bytes.div_ceil(UNIT).saturating_sub(held);
        if more == 0 {
            return Ok(());
        }
        let more = u32::try_from(more).map_err(|_| ApiError::too_large(budget.largest))?;
        let permit = Arc::clone(&budget.units)
            .try_acquire_many_owned(more)
            .map_err(|_| ApiError::no_body_budget(budget.total))?;
        match &mut self.0 {
            Some(held) => held.merge(permit),
            None => self.0 = Some(permit),
        }
        budget.spare.trim(budget.total.saturating_sub(budget.used()));
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) as u64 * UNIT
    }

    /// Grows the claim by `bytes`.
    pub(super) fn add(&mut self, budget: &Budget, bytes: u64) -> Result<(), ApiError> {
        let bytes = self.bytes().saturating_add(bytes);
        if bytes > budget.total {
            return Err(ApiError::too_large_a_request(bytes, budget.total));
        }
        self.cover(budget, bytes)
    }

    /// Gives back what is more than `bytes` need.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let Some(held) = &mut self.0 else { return };
        let spare = (held.num_permits() as u64).saturating_sub(bytes.div_ceil(UNIT));
        drop(held.split(spare as usize));
    }

    /// The body of an answer, with its share for as long as anyone has bytes of it: the last are the connection's, which
    /// has them until the system has taken them.
    pub(super) fn with(self, body: Bytes) -> Bytes {
        Bytes::from_owner(Shared { body, _share: self })
    }
}

struct Shared {
    body: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Budget {
    /// A budget of `total` bytes for all bodies, `largest` for one.
    pub(crate) fn new(total: u64, largest: u64) -> Budget {
        let units = usize::try_from(total / UNIT).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Budget { units: Arc::new(Semaphore::new(units)), spare: Arc::default(), total, largest }
    }

    /// Bytes that all bodies may take together, buffers that are kept for the next ones included.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Buffers that are kept for the next bodies.
    pub(super) fn spare(&self) -> &Spare {
        &self.spare
    }

    /// Bytes of bodies in memory now, rounded up to the budget's unit.
    pub(crate) fn used(&self) -> u64 {
        (self.total / UNIT).saturating_sub(self.units.available_permits() as u64) * UNIT
    }

    /// Holds a share of the budget for an answer of that many bytes, beside that of its request.
    ///
    /// # Errors
    /// 422 where the whole budget is too small for both, 429 where it is spent.
    pub(crate) fn hold(&self, bytes: u64, request: &Share) -> Result<Share, ApiError> {
        if bytes.saturating_add(request.bytes()) > self.total {
            return Err(ApiError::too_large_an_answer(bytes, self.total));
        }
        let mut share = Share::default();
        share.cover(self, bytes)?;
        Ok(share)
    }
}

//! Memory that an import takes for the time that it works: asked for before it is used, and given back as a whole.

use crate::error::Error;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is given: whoever drops it has given the bytes back.
type Given = Box<dyn Any + Send>;
type Give = dyn Fn(u64) -> Result<Given, Error> + Send + Sync;

/// Who gives an import its memory.
#[derive(Clone)]
pub struct Grant {
    /// The most bytes that one value of a graph may have.
    pub(super) largest_bytes: u64,
    give: Arc<Give>,
}

impl Grant {
    /// A grant of what `give` gives; no value of a graph may be larger than `largest_bytes`.
    pub fn new(
        largest_bytes: u64,
        give: impl Fn(u64) -> Result<Given, Error> + Send + Sync + 'static,
    ) -> Grant {
        Grant { largest_bytes, give: Arc::new(give) }
    }

    /// A grant that refuses nothing.
    pub fn unlimited() -> Grant {
        Grant::new(u64::MAX, |_| Ok(Box::new(())))
    }

    /// Nothing taken yet.
    pub(super) fn staging(&self) -> Arc<Staging> {
        Arc::new(Staging { grant: self.clone(), taken: Mutex::default() })
    }
}

/// What one import, or one preparation of it, has taken of a [`Grant`].
pub(crate) struct Staging {
    grant: Grant,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    given: Vec<Given>,
    /// Bytes of what was given last that nobody has taken.
    left: u64,
    refusal: Option<Error>,
}

/// A refusal, which [`Staging::refusal`] tells more of, on its way through an importer that knows errors of its own.
#[derive(Debug, thiserror::Error)]
#[error("there is no memory for it")]
pub(super) struct Refused;

impl Staging {
    /// Takes bytes before they are used. They are asked for in pieces of 4 KiB at least, since most takings are small.
    ///
    /// # Errors
    /// They are not to be had.
    pub(super) fn take(&self, bytes: u64) -> Result<(), Refused> {
        const PIECE: u64 = 4 << 10;
        let mut taken = self.taken();
        if bytes > taken.left {
            let wanted = (bytes - taken.left).checked_next_multiple_of(PIECE).unwrap_or(u64::MAX);
            match (self.grant.give)(wanted) {
                Ok(given) => taken.given.push(given),
                Err(error) => {
                    taken.refusal.get_or_insert(error);
                    return Err(Refused);
                }
            }
            taken.left = taken.left.saturating_add(wanted);
        }
        taken.left -= bytes;
        Ok(())
    }

    /// Why memory was refused, if it was; told once.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.taken().refusal.take()
    }

    /// Takes bytes where the refusal is the caller's own error.
    ///
    /// # Errors
    /// They are not to be had.
    pub(super) fn claim(&self, bytes: u64) -> Result<(), Error> {
        self.take(bytes).map_err(|Refused| self.refusal().unwrap_or(Error::Memory { bytes: bytes as usize }))
    }

    /// The most bytes that one value may have.
    pub(super) fn largest_bytes(&self) -> u64 {
        self.grant.largest_bytes
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // What is guarded is whole between statements.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

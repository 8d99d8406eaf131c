//! When the device's memory may be allocated: at start, and never again.

/// Where the process stands. It moves forward only, and only through [`Phases`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The slab is being taken.
    #[default]
    Starting,
    /// Requests are served from what was taken; nothing is allocated or freed.
    Ready,
    /// No request runs any more; what was taken is given back.
    Stopping,
}

/// A call at the wrong time; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfPhase {
    /// Device memory is allocated at start alone.
    #[error("{bytes} bytes of device memory asked for while {now:?}; they are allocated while Starting only")]
    Allocate {
        /// Bytes asked for.
        bytes: u64,
        /// The phase at hand.
        now: Phase,
    },
    /// Device memory is given back at the end, or where the start has failed.
    #[error("device memory cannot be given back while {now:?}")]
    Free {
        /// The phase at hand.
        now: Phase,
    },
    /// A phase does not lead to the other.
    #[error("{now:?} does not lead to {next:?}")]
    Move {
        /// The phase at hand.
        now: Phase,
        /// The phase asked for.
        next: Phase,
    },
}

/// The phase of the process, and what was allocated while it allowed that.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Phases {
    now: Phase,
    allocated_bytes: u64,
}

impl Phases {
    /// The start, with nothing allocated.
    pub fn new() -> Phases {
        Phases::default()
    }

    /// The phase at hand.
    pub fn now(&self) -> Phase {
        self.now
    }

    /// Sum of what was allocated, in bytes.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// Has `take` allocate `bytes`, and counts them if it does.
    ///
    /// # Errors
    /// The start is over, and `take` was not called; or what `take` answers.
    pub fn allocate<T, E: From<OutOfPhase>>(
        &mut self,
        bytes: u64,
        take: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if self.now != Phase::Starting {
            return Err(OutOfPhase::Allocate { bytes, now: self.now }.into());
        }
        let taken = take()?;
        self.allocated_bytes = self.allocated_bytes.saturating_add(bytes);
        Ok(taken)
    }

    /// Whether memory may be given back.
    ///
    /// # Errors
    /// Requests may run on it.
    pub fn may_free(&self) -> Result<(), OutOfPhase> {
        match self.now {
            Phase::Starting | Phase::Stopping => Ok(()),
            Phase::Ready => Err(OutOfPhase::Free { now: self.now }),
        }
    }

    /// The start is over.
    ///
    /// # Errors
    /// It was over already.
    pub fn ready(&mut self) -> Result<(), OutOfPhase> {
        self.advance(Phase::Ready)
    }

    /// The end begins, after a start that failed too.
    ///
    /// # Errors
    /// It has begun already.
    pub fn stop(&mut self) -> Result<(), OutOfPhase> {
        self.advance(Phase::Stopping)
    }

    fn advance(&mut self, next: Phase) -> Result<(), OutOfPhase> {
        if next <= self.now {
            return Err(OutOfPhase::Move { now: self.now, next });
        }
        self.now = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests;

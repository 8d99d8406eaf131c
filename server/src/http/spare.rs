//! Buffers of bodies that are gone, for those that come next: their pages are there, and need not be asked of the system
//! again, which takes longer than to fill them.

use super::budget::Budget;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shorter buffers are the allocator's, which has them at hand.
const SHORTEST: usize = 64 << 10;

/// The buffers.
#[derive(Default)]
pub(super) struct Spare {
    buffers: Mutex<Vec<Vec<u8>>>,
    /// Bytes of all of them.
    bytes: AtomicU64,
}

impl Spare {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty buffer with room for so many bytes and not for many more, if there is one.
    pub(super) fn take(&self, bytes: u64) -> Option<Vec<u8>> {
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes >= SHORTEST)?;
        let mut buffers = self.lock();
        let fits = |buffer: &Vec<u8>| (bytes..=bytes.saturating_mul(2)).contains(&buffer.capacity());
        let fitting = buffers.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        let (at, _) = fitting.min_by_key(|(_, buffer)| buffer.capacity())?;
        let buffer = buffers.swap_remove(at);
        self.bytes.fetch_sub(buffer.capacity() as u64, Ordering::Relaxed);
        Some(buffer)
    }

    /// Keeps a buffer, where all of them take no more than `room` says then.
    fn give(&self, mut buffer: Vec<u8>, room: impl Fn() -> u64) {
        if buffer.capacity() < SHORTEST {
            return;
        }
        {
            let mut buffers = self.lock();
            let bytes = self.bytes.load(Ordering::Relaxed) + buffer.capacity() as u64;
            if bytes > room() {
                return;
            }
            self.bytes.store(bytes, Ordering::Relaxed);
            buffer.clear();
            buffers.push(buffer);
        }
        // Who claimed something meanwhile did not see this buffer.
        self.trim(room());
    }

    /// Lets buffers go, the oldest first, until all of them take no more than `room`.
    pub(super) fn trim(&self, room: u64) {
        if self.bytes.load(Ordering::Relaxed) <= room {
            return;
        }
        let mut buffers = self.lock();
        let mut bytes = self.bytes.load(Ordering::Relaxed);
        let count = buffers.iter().take_while(|buffer| {
            let over = bytes > room;
            bytes -= if over { buffer.capacity() as u64 } else { 0 };
            over
        });
        let count = count.count();
        buffers.drain(..count);
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

/// A body that gives its buffer back when nobody has bytes of it any more.
struct Lent {
    buffer: Vec<u8>,
    budget: Budget,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // What bodies take now and what is kept for others is within the budget together.
        let room = || self.budget.total().saturating_sub(self.budget.used());
        self.budget.spare().give(std::mem::take(&mut self.buffer), room);
    }
}

/// A body whose buffer comes back.
pub(super) fn lend(buffer: Vec<u8>, budget: &Budget) -> Bytes {
    if buffer.capacity() < SHORTEST {
        return buffer.into();
    }
    Bytes::from_owner(Lent { buffer, budget: budget.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_for_a_body_of_its_size_and_never_beyond_the_budget() {
        let budget = Budget::new(1 << 20, 1 << 20);
        let spare = budget.spare();
        let body = lend(vec![1; 200 << 10], &budget);
        let part = body.slice(5..9);
        drop(body);
        assert!(spare.take(200 << 10).is_none(), "somebody has bytes of it");
        drop(part);
        assert!(spare.take(90 << 10).is_none(), "it is much larger");
        assert!(spare.take(201 << 10).is_none(), "it is smaller");
        let buffer = spare.take(150 << 10).unwrap();
        assert_eq!((buffer.len(), buffer.capacity()), (0, 200 << 10));
        assert!(spare.take(150 << 10).is_none(), "it is taken");
        // Six of 200 KiB are more than 1 MiB.
        let bodies: Vec<Bytes> = (0..6).map(|_| lend(vec![1; 200 << 10], &budget)).collect();
        drop(bodies);
        assert_eq!(spare.bytes.load(Ordering::Relaxed), 1000 << 10);
        spare.trim(500 << 10);
        assert_eq!(spare.bytes.load(Ordering::Relaxed), 400 << 10);
        assert_eq!(spare.lock().len(), 2);
        assert_eq!(lend(vec![2; 10], &budget), vec![2; 10]);
    }
}

//! The standard library's locks, or loom's where loom runs every interleaving of the hall (`tests/loom`).

#[cfg(not(loom))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};

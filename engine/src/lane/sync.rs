//! The standard library's locks, or loom's where loom runs every interleaving of the pool's tests.

#[cfg(not(all(test, loom)))]
pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

#[cfg(all(test, loom))]
pub(super) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

//! The standard library's locks, or loom's where loom runs every interleaving at the pool (`tests/loom`).

#[cfg(not(loom))]
pub(super) use std::sync::{Arc, Mutex, MutexGuard};

#[cfg(loom)]
pub(super) use loom::sync::{Arc, Mutex, MutexGuard};

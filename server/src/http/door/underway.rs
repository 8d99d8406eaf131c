//! Requests that a connection has begun and finished, and since when it stands so.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// What a connection is doing.
pub(in crate::http) struct Underway {
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// Milliseconds from [`START`] to the last request's end, or to the connection's opening.
    since_ms: AtomicU64,
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now_ms() -> u64 {
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Underway {
    pub(in crate::http) fn new() -> Arc<Underway> {
        Arc::new(Underway {
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            since_ms: AtomicU64::new(now_ms()),
        })
    }

    /// A request begins; it ends when the mark is dropped.
    pub(in crate::http) fn mark(self: &Arc<Self>) -> Mark {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Mark(Arc::clone(self))
    }

    /// Requests begun so far.
    pub(in crate::http) fn count(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    pub(in crate::http) fn is_idle(&self) -> bool {
        self.begun.load(Ordering::Relaxed) == self.ended.load(Ordering::Relaxed)
    }

    /// How long no request has been under way; `None` while one is.
    pub(super) fn idle(&self) -> Option<Duration> {
        let since = self.since_ms.load(Ordering::Relaxed);
        self.is_idle().then(|| Duration::from_millis(now_ms().saturating_sub(since)))
    }
}

/// One request under way on a connection, until dropped.
pub(in crate::http) struct Mark(Arc<Underway>);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.since_ms.store(now_ms(), Ordering::Relaxed);
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

//! The threads that tract uses inside an op.

use super::guard::caught;
use crate::error::Error;
use tract_linalg::multithread::{Executor, multithread_tract_scope};

/// A group of threads that one lane owns; with one, the caller's own.
pub(crate) struct Threads(Option<Executor>);

impl Threads {
    /// A group of `count` threads.
    ///
    /// # Errors
    /// They cannot be started.
    pub(crate) fn new(count: usize) -> Result<Threads, Error> {
        if count <= 1 {
            return Ok(Threads(None));
        }
        // tract panics where the system refuses a thread.
        let pool = caught(|| Executor::multithread_with_name(count, "lane"));
        pool.map(|pool| Threads(Some(pool))).map_err(|panic| Error::Run { reason: panic.0 })
    }

    /// Runs `work` so that the ops in it use these threads.
    pub(crate) fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.0 {
            None => work(),
            Some(pool) => multithread_tract_scope(pool.clone(), work),
        }
    }
}

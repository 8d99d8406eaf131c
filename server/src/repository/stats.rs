//! What a model version has done since it was loaded, as Triton's statistics extension counts it.

use crate::schedule::nanos;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A count and the time that it took together.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Tally {
    fn add(&self, took: Duration) {
        self.count.fetch_add(1, Relaxed);
        self.ns.fetch_add(nanos(took), Relaxed);
    }

    /// The count, and the nanoseconds.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.count.load(Relaxed), self.ns.load(Relaxed))
    }
}

/// The parts of one successful request's time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// From the request's head to its answer.
    pub(crate) total: Duration,
    /// In the queue.
    pub(crate) queue: Duration,
    /// Reading and decoding the body.
    pub(crate) input: Duration,
    /// The run.
    pub(crate) compute: Duration,
    /// Encoding the answer.
    pub(crate) output: Duration,
}

/// Counters of one model version.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) success: Tally,
    pub(crate) fail: Tally,
    pub(crate) queue: Tally,
    pub(crate) input: Tally,
    pub(crate) compute: Tally,
    pub(crate) output: Tally,
    /// Rows inferred: a batch of 8 counts 8.
    pub(crate) inferences: AtomicU64,
    /// Milliseconds since 1970 of the last request.
    pub(crate) last_inference_ms: AtomicU64,
    /// Runs that succeeded: a batch of 8 counts 1, however many requests brought it.
    pub(crate) executions: AtomicU64,
    /// Runs by batch size: input, compute and output together with their count.
    batches: Mutex<BTreeMap<u64, BatchSpent>>,
}

/// Runs of one batch size, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchSpent {
    pub(crate) count: u64,
    pub(crate) input_ns: u64,
    pub(crate) compute_ns: u64,
    pub(crate) output_ns: u64,
}

impl Stats {
    /// Counts a request of so many rows that got its result, and the run of `led` rows where it was the first of it.
    pub(crate) fn succeeded(&self, rows: u64, led: Option<u64>, spent: Spent) {
        self.success.add(spent.total);
        self.queue.add(spent.queue);
        self.input.add(spent.input);
        self.compute.add(spent.compute);
        self.output.add(spent.output);
        self.inferences.fetch_add(rows, Relaxed);
        self.touch();
        let Some(batch) = led else { return };
        self.executions.fetch_add(1, Relaxed);
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        // A client can send any batch size; past this many kinds they are counted together in the totals only.
        const KINDS: usize = 256;
        if batches.len() < KINDS || batches.contains_key(&batch) {
            let entry = batches.entry(batch).or_default();
            entry.count += 1;
            entry.input_ns += nanos(spent.input);
            entry.compute_ns += nanos(spent.compute);
            entry.output_ns += nanos(spent.output);
        }
    }

    /// Counts a request that reached the model and got an error.
    pub(crate) fn failed(&self, took: Duration) {
        self.fail.add(took);
        self.touch();
    }

    /// Runs by batch size.
    pub(crate) fn batches(&self) -> BTreeMap<u64, BatchSpent> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn touch(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last_inference_ms.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }
}

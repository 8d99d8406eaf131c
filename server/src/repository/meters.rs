//! The series of the metrics that one model version writes, looked up once.

use super::stats::Spent;
use crate::metrics::{self, Metrics};
use ::metrics::{Counter, Histogram};

/// A model version's own series.
pub(super) struct Meters {
    queue: Histogram,
    compute: Histogram,
    total: Histogram,
    received: Counter,
    sent: Counter,
    outcomes: Vec<(&'static str, Counter)>,
}

/// Outcomes of an inference request, as the label `outcome` names them.
const OUTCOMES: [&str; 5] = ["success", "invalid", "shed", "expired", "failed"];

impl Meters {
    pub(super) fn new(metrics: &Metrics, name: &str, version: u64) -> Meters {
        let labels = [("model", name.to_string()), ("version", version.to_string())];
        let outcomes = OUTCOMES.map(|outcome| {
            let labels = [labels[0].clone(), labels[1].clone(), ("outcome", outcome.to_string())];
            (outcome, metrics.counter(&metrics::REQUESTS, &labels))
        });
        Meters {
            queue: metrics.histogram(&metrics::QUEUE_SECONDS, &labels),
            compute: metrics.histogram(&metrics::COMPUTE_SECONDS, &labels),
            total: metrics.histogram(&metrics::TOTAL_SECONDS, &labels),
            received: metrics.counter(&metrics::BYTES_IN, &labels),
            sent: metrics.counter(&metrics::BYTES_OUT, &labels),
            outcomes: outcomes.into(),
        }
    }

    /// Enters a finished request.
    pub(super) fn measured(&self, spent: &Spent, received: usize, sent: usize) {
        self.queue.record(spent.queue);
        self.compute.record(spent.compute);
        self.total.record(spent.total);
        self.received.increment(received as u64);
        self.sent.increment(sent as u64);
        self.outcome("success");
    }

    /// Counts one of [`OUTCOMES`].
    pub(super) fn outcome(&self, outcome: &str) {
        if let Some((_, counter)) = self.outcomes.iter().find(|(name, _)| *name == outcome) {
            counter.increment(1);
        }
    }
}

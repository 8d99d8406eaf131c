//! `[batching]`: defaults of batching and queueing, which a model's own settings override.

use super::values;
use serde::Deserialize;
use std::time::Duration;

/// Section `[batching]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Batching {
    /// Most rows that are run together, 1 to 65536. Default 1: no batching.
    #[serde(deserialize_with = "values::count::<_, _, 1, 65536>")]
    pub(crate) max_batch: usize,
    /// How long a request may wait for a steady lane, and for others to run with it, before a burst lane will do. No
    /// request waits while a steady lane is idle. Default 0 s: burst lanes are used as soon as all steady lanes are busy.
    #[serde(deserialize_with = "values::duration")]
    pub(crate) max_delay: Duration,
    /// Requests that may wait for each model, 1 to 65536; one more is refused at once. Default 64.
    #[serde(deserialize_with = "values::count::<_, _, 1, 65536>")]
    pub(crate) queue_limit: usize,
}

impl Default for Batching {
    fn default() -> Self {
        Self { max_batch: 1, max_delay: Duration::ZERO, queue_limit: 64 }
    }
}

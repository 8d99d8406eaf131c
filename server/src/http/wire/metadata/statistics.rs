//! Bodies of the statistics extension: counts and summed times since start.

use serde::Serialize;
use std::collections::BTreeMap;

/// The answer of `GET /v2/models[/{model}[/versions/{version}]]/stats`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Statistics {
    /// One entry a model version.
    pub(crate) model_stats: Vec<ModelStats>,
}

/// What a model version has done.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ModelStats {
    /// The model's name.
    pub(crate) name: String,
    /// The version, such as `1`.
    pub(crate) version: String,
    /// When the last request came, in milliseconds since 1970; 0 for never.
    pub(crate) last_inference: u64,
    /// Inferences that succeeded; a batch of 8 counts 8.
    pub(crate) inference_count: u64,
    /// Runs that succeeded; a batch of 8 counts 1.
    pub(crate) execution_count: u64,
    /// Times by stage of a request.
    pub(crate) inference_stats: InferenceStats,
    /// Always empty: one request has one answer here.
    pub(crate) response_stats: BTreeMap<String, DurationStat>,
    /// Times by size of the batch that ran.
    pub(crate) batch_stats: Vec<BatchStats>,
    /// Memory that the loaded model holds.
    pub(crate) memory_usage: Vec<MemoryUsage>,
}

/// Times by stage of a request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct InferenceStats {
    /// Whole requests that succeeded.
    pub(crate) success: DurationStat,
    /// Whole requests that failed.
    pub(crate) fail: DurationStat,
    /// Waiting for a lane.
    pub(crate) queue: DurationStat,
    /// Bringing inputs to the device.
    pub(crate) compute_input: DurationStat,
    /// Running.
    pub(crate) compute_infer: DurationStat,
    /// Bringing outputs back.
    pub(crate) compute_output: DurationStat,
    /// Always 0: answers are not cached.
    pub(crate) cache_hit: DurationStat,
    /// Always 0: answers are not cached.
    pub(crate) cache_miss: DurationStat,
}

/// Times of runs of one batch size.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct BatchStats {
    /// Inferences in one run.
    pub(crate) batch_size: u64,
    /// Bringing inputs to the device.
    pub(crate) compute_input: DurationStat,
    /// Running.
    pub(crate) compute_infer: DurationStat,
    /// Bringing outputs back.
    pub(crate) compute_output: DurationStat,
}

/// How often something happened and how long it took in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct DurationStat {
    /// Times it happened.
    pub(crate) count: u64,
    /// Nanoseconds in all.
    pub(crate) ns: u64,
}

/// Memory that a loaded model holds in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MemoryUsage {
    /// `CPU`, `CPU_PINNED` or `GPU`.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    /// Which device of that type.
    pub(crate) id: u64,
    /// Bytes held.
    pub(crate) byte_size: u64,
}

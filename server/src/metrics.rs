//! Every metric once: its name, unit, labels and help. Nothing else in the server writes a metric's name.

use ::metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use std::sync::Arc;

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Counter,
    Gauge,
    Histogram,
}

/// A metric's declaration.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) name: &'static str,
    shape: Shape,
    unit: Unit,
    help: &'static str,
}

macro_rules! declare {
    ($($ident:ident = $shape:ident $name:literal in $unit:ident: $help:literal;)*) => {
        $(#[doc = $help] pub(crate) static $ident: Declared =
            Declared { name: $name, shape: Shape::$shape, unit: Unit::$unit, help: $help };)*
        /// Every metric there is.
        pub(crate) static ALL: &[&Declared] = &[$(&$ident),*];
    };
}

declare! {
    REQUESTS = Counter "plimsoll_requests_total" in Count: "Inference requests answered, by model, version and outcome.";
    QUEUE_SECONDS = Histogram "plimsoll_queue_seconds" in Seconds: "Time from admission to the start of the run.";
    COMPUTE_SECONDS = Histogram "plimsoll_compute_seconds" in Seconds: "Time that the run itself took.";
    TOTAL_SECONDS = Histogram "plimsoll_request_seconds" in Seconds: "Time from the request's head to its answer.";
    BYTES_IN = Counter "plimsoll_received_bytes_total" in Bytes: "Bytes of inference request bodies received.";
    BYTES_OUT = Counter "plimsoll_sent_bytes_total" in Bytes: "Bytes of inference answers made, before compression.";
    BODIES_BYTES = Gauge "plimsoll_bodies_bytes" in Bytes: "Bytes of request and answer bodies in memory now.";
    CONNECTIONS = Gauge "plimsoll_connections" in Count: "Connections that are open now, of at most server.max_connections.";
    QUEUED = Gauge "plimsoll_queued_requests" in Count: "Requests admitted and not yet running.";
    PRESSURE = Gauge "plimsoll_pressure" in Count: "How hard the server is pressed: 0 steady lanes do, 1 burst lanes are in use, 2 requests were refused in the last second.";
    HTTP_ANSWERS = Counter "plimsoll_http_answers_total" in Count: "Answers of every endpoint, by status.";
    MODELS_LOADED = Gauge "plimsoll_models_loaded" in Count: "Model versions that are ready.";
    LOADS = Counter "plimsoll_model_loads_total" in Count: "Loads of a model version, by outcome.";
    CEILING_BYTES = Gauge "plimsoll_ceiling_bytes" in Bytes: "Bytes that the whole process may hold.";
    REGION_BYTES = Gauge "plimsoll_region_bytes" in Bytes: "Size of a region of the slab: weights, lanes, reserve.";
    REGION_USED_BYTES = Gauge "plimsoll_region_used_bytes" in Bytes: "Bytes of a region of the slab that are in use now.";
    REGION_PEAK_BYTES = Gauge "plimsoll_region_peak_bytes" in Bytes: "The most bytes of a region of the slab that were in use at once.";
    FREE_BYTES = Gauge "plimsoll_free_bytes" in Bytes: "Bytes of the slab that are free for weights.";
    HOST_BYTES = Gauge "plimsoll_host_bytes" in Bytes: "Bytes of host memory that models hold, under memory.headroom.";
    HOST_PEAK_BYTES = Gauge "plimsoll_host_peak_bytes" in Bytes: "The most bytes of host memory that models have held at once.";
    RESIDENT_BYTES = Gauge "plimsoll_resident_bytes" in Bytes: "Resident memory of this process; absent where the system does not tell.";
    RESIDENT_PEAK_BYTES = Gauge "plimsoll_resident_peak_bytes" in Bytes: "The most resident memory that this process has had; absent where the system does not tell.";
    BREACHES = Counter "plimsoll_ceiling_breaches_total" in Count: "Times that the resident memory of this process passed the ceiling.";
    DEVICE_ALLOCATIONS = Counter "plimsoll_device_allocations_total" in Count: "Blocks of device memory that this process has allocated.";
    DEVICE_ALLOCATIONS_AFTER_READY = Counter "plimsoll_device_allocations_after_ready_total" in Count: "Those of them that came after the start: always 0, or there is a fault.";
    PINNED_REFUSED = Counter "plimsoll_pinned_allocations_refused_total" in Count: "Pieces of pinned host memory that the GPU's driver did not give, so that copies take longer; absent on the CPU.";
    UPTIME_SECONDS = Gauge "plimsoll_uptime_seconds" in Seconds: "Time since the process started.";
    BUILD_INFO = Gauge "plimsoll_build_info" in Count: "Always 1; the labels tell version and device.";
}

/// Upper bounds of the histograms' buckets, in seconds: from 50 µs, a tiny model, to 30 s, the default deadline.
const BUCKETS: &[f64] = &[
    50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
    30.0,
];

/// Where metrics are kept and read. Owned by the server and handed to those who write, never global.
#[derive(Clone)]
pub(crate) struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
}

impl Metrics {
    /// An empty set, every metric described, of a server on a device of that kind.
    pub(crate) fn new(device: &str) -> anyhow::Result<Metrics> {
        let recorder = PrometheusBuilder::new().set_buckets(BUCKETS)?.build_recorder();
        for metric in ALL {
            let (name, unit, help) = (metric.name.into(), Some(metric.unit), metric.help.into());
            match metric.shape {
                Shape::Counter => recorder.describe_counter(name, unit, help),
                Shape::Gauge => recorder.describe_gauge(name, unit, help),
                Shape::Histogram => recorder.describe_histogram(name, unit, help),
            }
        }
        let handle = recorder.handle();
        let metrics = Metrics { recorder: Arc::new(recorder), handle };
        let labels = [("version", env!("CARGO_PKG_VERSION").to_string()), ("device", device.to_string())];
        metrics.gauge(&BUILD_INFO, &labels).set(1.0);
        Ok(metrics)
    }

    /// The Prometheus text form of everything.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds what histograms have gathered; to be called now and then, so that they do not grow between scrapes.
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    pub(crate) fn counter(&self, metric: &Declared, labels: &[(&'static str, String)]) -> Counter {
        self.recorder.register_counter(&key(metric, labels), &METADATA)
    }

    pub(crate) fn gauge(&self, metric: &Declared, labels: &[(&'static str, String)]) -> Gauge {
        self.recorder.register_gauge(&key(metric, labels), &METADATA)
    }

    pub(crate) fn histogram(&self, metric: &Declared, labels: &[(&'static str, String)]) -> Histogram {
        self.recorder.register_histogram(&key(metric, labels), &METADATA)
    }
}

static METADATA: Metadata<'static> = Metadata::new("plimsoll", Level::INFO, None);

fn key(metric: &Declared, labels: &[(&'static str, String)]) -> Key {
    let labels: Vec<Label> = labels.iter().map(|(name, value)| Label::new(*name, value.clone())).collect();
    Key::from_parts(metric.name, labels)
}

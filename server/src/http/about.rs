//! Everything but inference: what the server is, what it serves, what it has done, and the admin calls.

use super::app::{App, Target};
use super::error::ApiError;
use super::wire::metadata::{
    BatchStats, ConfigParameter, DurationStat, IndexEntry, IndexRequest, InferenceStats, LoadRequest,
    MemoryUsage, ModelConfig, ModelMetadata, ModelState, ModelStats, ServerMetadata, Statistics,
    UnloadRequest,
};
use super::wire::openapi::OPENAPI;
use crate::load_line::Seen;
use crate::metrics;
use crate::repository::{Availability, Indexed, Served, Stats};
use crate::schedule::Pressure;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use plimsoll_engine::error::size;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

pub(super) type Answer = Result<Response, ApiError>;

pub(super) fn typed(content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(super) fn json(body: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(body).map_err(|error| ApiError::internal(&error.to_string()))?;
    Ok(typed("application/json", body))
}

fn empty() -> Response {
    Response::new(Body::empty())
}

pub(crate) async fn server() -> Answer {
    json(&ServerMetadata::THIS)
}

pub(crate) async fn live() -> Response {
    empty()
}

pub(crate) async fn ready(State(app): State<Arc<App>>) -> Answer {
    if app.readiness.is_stopping() {
        return Err(ApiError::not_ready("the server is stopping"));
    }
    if !app.readiness.is_ready() {
        return Err(ApiError::not_ready("the server is loading its models"));
    }
    match app.load_line.look() {
        Seen { over: true, resident: Some(resident), .. } => Err(ApiError::not_ready(&format!(
            "the process holds {} of resident memory, more than the ceiling of {}",
            size(resident.now),
            size(app.load_line.ceiling())
        ))),
        _ => Ok(empty()),
    }
}

pub(crate) async fn model(State(app): State<Arc<App>>, target: Target) -> Answer {
    let served = get(&app, &target)?;
    let versions = match target.version {
        Some(version) => vec![version],
        None => app.registry.ready_versions(&target.model),
    };
    json(&ModelMetadata::new(&served.name, &versions, served.signature()))
}

pub(crate) async fn model_ready(State(app): State<Arc<App>>, target: Target) -> Answer {
    get(&app, &target).map(|_| empty())
}

pub(crate) async fn model_config(State(app): State<Arc<App>>, target: Target) -> Answer {
    let served = get(&app, &target)?;
    let mut config = ModelConfig::new(&served.name, "model.onnx", served.signature());
    for (output, labels) in &served.labels {
        let string_value = serde_json::to_string(labels).unwrap_or_default();
        config.parameters.insert(format!("labels.{output}"), ConfigParameter { string_value });
    }
    json(&config)
}

fn get(app: &App, target: &Target) -> Result<Arc<Served>, ApiError> {
    Ok(app.registry.get(&target.model, target.version.as_deref())?)
}

pub(crate) async fn all_stats(State(app): State<Arc<App>>) -> Answer {
    json(&statistics(&app, &app.registry.ready()))
}

pub(crate) async fn model_stats(State(app): State<Arc<App>>, target: Target) -> Answer {
    let served = get(&app, &target)?;
    let named = match target.version {
        Some(_) => vec![served],
        None => app.registry.ready().into_iter().filter(|other| other.name == served.name).collect(),
    };
    json(&statistics(&app, &named))
}

fn statistics(app: &App, served: &[Arc<Served>]) -> Statistics {
    let memory =
        |served: &Served| MemoryUsage { kind: "CPU", id: 0, byte_size: app.arena.held_by(&served.owner()) };
    let stats = served
        .iter()
        .map(|served| ModelStats { memory_usage: vec![memory(served)], ..model_statistics(served) });
    Statistics { model_stats: stats.collect() }
}

fn model_statistics(served: &Served) -> ModelStats {
    let Stats { success, fail, queue, input, compute, output, .. } = &served.stats;
    let stat = |(count, ns): (u64, u64)| DurationStat { count, ns };
    let batches = served.stats.batches().into_iter().map(|(batch_size, spent)| {
        let stat = |ns| DurationStat { count: spent.count, ns };
        BatchStats {
            batch_size,
            compute_input: stat(spent.input_ns),
            compute_infer: stat(spent.compute_ns),
            compute_output: stat(spent.output_ns),
        }
    });
    ModelStats {
        name: served.name.clone(),
        version: served.version.clone(),
        last_inference: served.stats.last_inference_ms.load(Relaxed),
        inference_count: served.stats.inferences.load(Relaxed),
        execution_count: served.stats.executions.load(Relaxed),
        inference_stats: InferenceStats {
            success: stat(success.read()),
            fail: stat(fail.read()),
            queue: stat(queue.read()),
            compute_input: stat(input.read()),
            compute_infer: stat(compute.read()),
            compute_output: stat(output.read()),
            ..InferenceStats::default()
        },
        batch_stats: batches.collect(),
        ..ModelStats::default()
    }
}

pub(crate) async fn index(State(app): State<Arc<App>>, request: Request) -> Answer {
    let IndexRequest { ready } = IndexRequest::parse(&body(&app, request).await?).map_err(bad_body)?;
    let entries: Vec<IndexEntry> = app
        .registry
        .index()
        .into_iter()
        .map(entry)
        .filter(|entry| !ready || entry.state == ModelState::Ready)
        .collect();
    json(&entries)
}

fn entry(line: Indexed) -> IndexEntry {
    let state = match line.state {
        Availability::Ready => ModelState::Ready,
        Availability::Loading => ModelState::Loading,
        Availability::Unavailable => ModelState::Unavailable,
    };
    IndexEntry { name: line.name, version: line.version, state, reason: line.reason }
}

pub(crate) async fn load(State(app): State<Arc<App>>, target: Target, request: Request) -> Answer {
    let (parts, body_in) = request.into_parts();
    app.admit(&parts)?;
    let request = Request::from_parts(parts, body_in);
    let load = LoadRequest::parse(&body(&app, request).await?).map_err(bad_body)?;
    if !load.overrides.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the parameters {} are not supported: a model is loaded as it lies in the repository, with its model.toml",
            load.overrides.join(", ")
        )));
    }
    app.registry.load(&target.model).await?;
    Ok(empty())
}

pub(crate) async fn unload(State(app): State<Arc<App>>, target: Target, request: Request) -> Answer {
    let (parts, body_in) = request.into_parts();
    app.admit(&parts)?;
    let request = Request::from_parts(parts, body_in);
    UnloadRequest::parse(&body(&app, request).await?).map_err(bad_body)?;
    app.registry.unload(&target.model).await?;
    Ok(empty())
}

fn bad_body(error: super::wire::metadata::BadBody) -> ApiError {
    ApiError::bad_request(error.to_string())
}

async fn body(app: &App, request: Request) -> Result<Bytes, ApiError> {
    // An admin's few bytes have the same limits as everyone's.
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
    let (parts, body) = request.into_parts();
    Ok(app.budget.receive(&parts, body, Instant::now() + PATIENCE, None).await?.bytes)
}

pub(crate) async fn openapi() -> Response {
    typed("application/json", OPENAPI)
}

pub(crate) async fn metrics_text(State(app): State<Arc<App>>) -> Response {
    let gauge = |metric, value: f64| app.metrics.gauge(metric, &[]).set(value);
    let account = app.arena.ledger().account();
    gauge(&metrics::CEILING_BYTES, account.fixed.ceiling as f64);
    gauge(&metrics::HOST_BYTES, account.held_bytes as f64);
    gauge(&metrics::HOST_PEAK_BYTES, account.peak_bytes as f64);
    if let Some((snapshot, _)) = app.arena.snapshot() {
        gauge(&metrics::FREE_BYTES, snapshot.free_bytes as f64);
        let regions =
            [("weights", snapshot.weights), ("lanes", snapshot.lanes), ("reserve", snapshot.reserve)];
        for (name, region) in regions {
            let gauge = |metric, value: u64| {
                app.metrics.gauge(metric, &[("region", name.into())]).set(value as f64);
            };
            gauge(&metrics::REGION_BYTES, region.bytes);
            gauge(&metrics::REGION_USED_BYTES, region.used.used_bytes);
            gauge(&metrics::REGION_PEAK_BYTES, region.used.peak_bytes);
        }
    }
    gauge(&metrics::BODIES_BYTES, app.budget.used() as f64);
    gauge(&metrics::CONNECTIONS, app.connections.count() as f64);
    gauge(&metrics::QUEUED, app.scheduler.queued() as f64);
    let pressure = match app.scheduler.pressure() {
        Pressure::Steady => 0.0,
        Pressure::Burst => 1.0,
        Pressure::Shedding => 2.0,
    };
    gauge(&metrics::PRESSURE, pressure);
    gauge(&metrics::MODELS_LOADED, app.registry.ready().len() as f64);
    gauge(&metrics::UPTIME_SECONDS, app.started.elapsed().as_secs_f64());
    let allocations = app.arena.allocations();
    app.metrics.counter(&metrics::DEVICE_ALLOCATIONS, &[]).absolute(allocations.total);
    app.metrics.counter(&metrics::DEVICE_ALLOCATIONS_AFTER_READY, &[]).absolute(allocations.after_ready);
    if let Some(refused) = app.arena.pinned_refused() {
        app.metrics.counter(&metrics::PINNED_REFUSED, &[]).absolute(refused.times);
    }
    let seen = app.load_line.look();
    app.metrics.counter(&metrics::BREACHES, &[]).absolute(seen.breaches);
    // What the system does not tell is absent, never zero.
    if let Some(resident) = seen.resident {
        gauge(&metrics::RESIDENT_BYTES, resident.now as f64);
        gauge(&metrics::RESIDENT_PEAK_BYTES, resident.peak as f64);
    }
    typed("text/plain; version=0.0.4; charset=utf-8", app.metrics.render())
}

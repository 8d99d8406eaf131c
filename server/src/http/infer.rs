//! `POST /v2/models/{model}[/versions/{version}]/infer`: a request's journey from its body to its answer.

use super::app::{App, Target};
use super::body::{Early, Received};
use super::budget::Share;
use super::error::ApiError;
use super::wire::request::{Ahead, InferRequest, WantedOutput, ahead, decode};
use super::wire::response::{Encoded, InferResponse, Output, encode, text_size};
use crate::repository::{LoadFailed, Served, Spent};
use crate::schedule::{Asked, Look, Runs};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use plimsoll_engine::error::Error as EngineError;
use plimsoll_engine::lane::Want;
use plimsoll_engine::tensor::Tensor;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of JSON at the start of a body that goes on with binary tensors.
pub(super) static HEADER_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

/// JSON larger than this is read and written on a thread of its own, so that no other connection waits for it.
const LARGE_JSON: usize = 64 * 1024;

pub(crate) async fn infer(State(app): State<Arc<App>>, target: Target, request: Request) -> Response {
    let arrived = Instant::now();
    let (parts, body) = request.into_parts();
    let served = match find(&app, &target, arrived).await {
        Ok(served) => served,
        Err(error) => return error.into_response(),
    };
    match answer(&app, &served, &parts, body, arrived, Want::BurstToo).await {
        Ok(Answered { response, spent, rows, led, received, sent }) => {
            served.stats.succeeded(rows as u64, led.map(|led| led as u64), spent);
            served.measured(&spent, received, sent);
            response
        }
        Err(error) => {
            served.stats.failed(arrived.elapsed());
            served.outcome(outcome(error.status()));
            error.into_response()
        }
    }
}

/// The label `outcome` of a request that got this status.
fn outcome(status: StatusCode) -> &'static str {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => "shed",
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => "expired",
        status if status.is_client_error() => "invalid",
        _ => "failed",
    }
}

/// The model, loaded first where requests do that. One that is not there by the deadline of a request goes on loading for
/// those that come later; its own deadline, which may be another, is known only then.
async fn find(app: &App, target: &Target, arrived: Instant) -> Result<Arc<Served>, ApiError> {
    let demanded = app.registry.demand(&target.model, target.version.as_deref());
    let deadline = arrived + app.registry.timeout();
    match tokio::time::timeout_at(deadline.into(), demanded).await {
        Ok(Ok(served)) => Ok(served),
        Ok(Err(LoadFailed::Unknown(not_served))) => Err(not_served.into()),
        // To a request, a model that cannot be loaded is a model that is not ready.
        Ok(Err(error)) => {
            Err(ApiError::not_ready(&format!("model `{}` is not ready: {error}", target.model)))
        }
        Err(_) => Err(ApiError::expired(false)),
    }
}

/// An answer, and what it took.
pub(super) struct Answered {
    pub(super) response: Response,
    pub(super) spent: Spent,
    /// Rows that the request brought.
    rows: usize,
    /// The run's rows, where the request was the first of it.
    led: Option<usize>,
    /// Bytes that came.
    received: usize,
    /// Bytes of the answer.
    sent: usize,
}

/// Answers a request on one of the lanes that it may have, and counts nothing.
pub(super) async fn answer(
    app: &App,
    served: &Arc<Served>,
    parts: &Parts,
    body: Body,
    arrived: Instant,
    want: Want,
) -> Result<Answered, ApiError> {
    let header_length = header_length(parts)?;
    let mut look = |head: &[u8]| foresee(app, served, head, arrived, want);
    // Only what may be read here: much JSON would keep other connections waiting.
    let early = header_length.filter(|head| *head <= LARGE_JSON).map(|head| Early { head, look: &mut look });
    let received = app.budget.receive(parts, body, arrived + served.timeout, early).await?;
    let wire_bytes = received.wire_bytes;
    // The share of the budget goes with the inputs, which may point into the body, whatever becomes of the caller.
    let Received { bytes, mut share, .. } = received;
    let (request, share) = {
        let (served, budget) = (Arc::clone(served), app.budget.clone());
        let json = header_length.unwrap_or(bytes.len());
        let work = move || {
            let mut refused = None;
            let mut grow =
                |bytes: usize| share.add(&budget, bytes as u64).map_err(|error| refused = Some(error));
            let mut claim = |bytes: usize| bytes == 0 || grow(bytes).is_ok();
            let request = decode(bytes, header_length, served.signature(), &mut claim);
            match refused {
                Some(error) => Err(error),
                None => Ok((request?, share)),
            }
        };
        large(json, work).await??
    };
    let deadline = deadline(arrived, served.timeout, request.parameters.timeout);
    let InferRequest { id, inputs, outputs: wanted, .. } = request;
    let preparing = tokio::time::timeout_at(deadline.into(), served.runs(&inputs));
    let (runs, rows) = preparing.await.map_err(|_| ApiError::expired(false))?.map_err(unfit)?;
    let mut held = app.budget.hold(answer_bytes(served, &runs, rows, &wanted), &share)?;
    let decoded = Instant::now();
    let asked = Asked { look: Look { runs, rows, want }, inputs, _held: Box::new(share), deadline };
    let done = app.scheduler.submit(served.class(), asked)?.wait().await?;
    let ran = Instant::now();
    held.cover(&app.budget, done.outputs.iter().map(|output| output.size_bytes() as u64).sum())?;
    let text: usize =
        wanted.iter().filter(|output| !output.binary).map(|o| size(&done.outputs, o.index)).sum();
    let (named, outputs) = (Arc::clone(served), done.outputs);
    let encoded = large(text, move || {
        let output = |wanted: &WantedOutput| {
            let (port, tensor) = (named.signature().outputs.get(wanted.index)?, outputs.get(wanted.index)?);
            Some(Output { name: &port.name, tensor, binary: wanted.binary })
        };
        encode(&InferResponse {
            model_name: &named.name,
            model_version: &named.version,
            id: id.as_deref(),
            outputs: wanted.iter().filter_map(output).collect(),
        })
    });
    let encoded = encoded.await??;
    let sent = encoded.body.len();
    let spent = Spent {
        total: arrived.elapsed(),
        queue: done.queued,
        input: decoded - arrived,
        compute: done.computed,
        output: ran.elapsed(),
    };
    let (response, led) = (respond(encoded, held), done.led);
    Ok(Answered { response, spent, rows, led, received: wire_bytes, sent })
}

/// Whether a request whose tensors are still on their way could be answered in time, as far as is known. What has a fault
/// or was never run before is waited for.
///
/// # Errors
/// 429 where it would be refused if it were there.
fn foresee(app: &App, served: &Served, head: &[u8], arrived: Instant, want: Want) -> Result<(), ApiError> {
    let Some(Ahead { shapes, timeout }) = ahead(head, served.signature()) else { return Ok(()) };
    let Some((runs, rows)) = served.ready_runs(&shapes) else { return Ok(()) };
    let deadline = deadline(arrived, served.timeout, timeout);
    Ok(app.scheduler.foresee(served.class(), &Look { runs, rows, want }, deadline)?)
}

/// Bytes of the outputs, which a run makes all of, and of the answer that is written from those that are wanted; as far
/// as they are known ahead.
fn answer_bytes(served: &Served, runs: &Runs, rows: usize, wanted: &[WantedOutput]) -> u64 {
    let ports = &served.signature().outputs;
    let Some((room, program)) = runs.covering(rows) else { return 0 };
    // Of a run with room for more rows the request gets its own.
    let bytes = |index: usize| program.output_bytes(index).map_or(0, |bytes| bytes / (*room).max(1) * rows);
    let made: usize = (0..ports.len()).map(bytes).sum();
    let written = wanted.iter().map(|output| match ports.get(output.index) {
        Some(port) if !output.binary => text_size(port.dtype, bytes(output.index)),
        _ => bytes(output.index),
    });
    (made + written.sum::<usize>()) as u64
}

/// Runs work over `json` bytes of text here, or where blocking is allowed when they are many.
async fn large<T: Send + 'static>(
    json: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    if json <= LARGE_JSON {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|lost| ApiError::internal(&lost.to_string()))
}

fn size(outputs: &[Tensor], index: usize) -> usize {
    outputs.get(index).map_or(0, Tensor::size_bytes)
}

/// A shape that does not fit under the ceiling is too large for every lane, which is the request's fault; the same
/// error of a load is not.
fn unfit(error: EngineError) -> ApiError {
    match error {
        EngineError::DoesNotFit(_) | EngineError::TooLarge { .. } => {
            ApiError::too_much_workspace(&error.to_string())
        }
        other => other.into(),
    }
}

fn header_length(parts: &Parts) -> Result<Option<usize>, ApiError> {
    let Some(value) = parts.headers.get(&HEADER_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    length.map(Some).ok_or_else(|| {
        ApiError::bad_request(format!(
            "Inference-Header-Content-Length takes a number of bytes, got {value:?}"
        ))
    })
}

/// A request may ask for less time than its model has, never for more.
fn deadline(arrived: Instant, model: Duration, own: Option<Duration>) -> Instant {
    arrived + own.map_or(model, |own| own.min(model))
}

fn respond(encoded: Encoded, mut held: Share) -> Response {
    let content_type = HeaderValue::from_static(encoded.content_type());
    held.shrink(encoded.body.len() as u64);
    let mut response = Response::new(Body::from(held.with(encoded.body)));
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    if let Some(length) = encoded.header_length {
        response.headers_mut().insert(HEADER_LENGTH.clone(), HeaderValue::from(length));
    }
    response
}

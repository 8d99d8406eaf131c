//! What happens around every request: it gets an id, a panic becomes an answer, its end is counted and logged.

use super::app::App;
use super::error::ApiError;
use super::left;
use crate::metrics;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::CONNECTION;
use http::{HeaderName, HeaderValue};
use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use tracing::Instrument;

/// The header of a request's id, both ways.
pub(crate) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id of a client's own that is taken over.
const LONGEST_ID: usize = 128;

pub(crate) async fn around(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = own_id(&request).unwrap_or_else(new_id);
    let (method, path) = (request.method().clone(), request.uri().path().to_string());
    let text = id.to_str().unwrap_or_default();
    let (request, unread) = left::keep(request);
    let span = tracing::info_span!("request", id = text, %method, path);
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().instrument(span.clone()).await;
    let mut response = answer.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        span.in_scope(|| ApiError::internal(text.unwrap_or("a panic without a message"))).into_response()
    });
    let status = response.status();
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID.clone(), id);
    let whole = unread.drained().await;
    if app.readiness.is_stopping() || !whole {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    app.metrics.counter(&metrics::HTTP_ANSWERS, &[("status", status.as_str().into())]).increment(1);
    span.in_scope(|| tracing::debug!(status = status.as_u16(), took = ?started.elapsed(), "answered"));
    response
}

/// The client's own id, where it is fit to be repeated in headers and logs.
fn own_id(request: &Request) -> Option<HeaderValue> {
    let id = request.headers().get(&REQUEST_ID)?;
    let fit = |byte: &u8| byte.is_ascii_graphic();
    (!id.is_empty() && id.len() <= LONGEST_ID && id.as_bytes().iter().all(fit)).then(|| id.clone())
}

/// An id unlike any other of this process, and very likely of any: random per process, then counted.
fn new_id() -> HeaderValue {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut id = String::with_capacity(25);
    let _ = write!(id, "{:016x}-{:x}", *PROCESS, NEXT.fetch_add(1, Ordering::Relaxed));
    HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("unknown"))
}

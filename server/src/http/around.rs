//! What happens around every request: it gets an id, a panic becomes an answer, its end is counted and logged.

use super::app::App;
use super::error::{ApiError, Details};
use super::left;
use crate::metrics::{self, Metrics};
use ::metrics::Counter;
use axum::body::{Body, Bytes, HttpBody};
use axum::response::{IntoResponse, Response};
use axum::{BoxError, Router};
use futures_util::FutureExt;
use http::header::{ACCEPT_ENCODING, CONNECTION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use tower::{Layer, ServiceExt};
use tower_http::CompressionLevel;
use tower_http::compression::{Compression, CompressionLayer};

/// The header of a request's id, both ways.
pub(crate) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id of a client's own that is taken over.
const LONGEST_ID: usize = 128;

/// The routes, and what happens around every request to one of them.
pub(crate) struct Front {
    app: Arc<App>,
    routes: Router,
    /// The same for clients that take compressed answers.
    compressing: Compression<Router>,
    answers: Answers,
}

impl Front {
    pub(super) fn new(app: Arc<App>, routes: Router) -> Front {
        let compressing = CompressionLayer::new().quality(CompressionLevel::Fastest).layer(routes.clone());
        let answers = Answers::new(&app.metrics);
        Front { app, routes, compressing, answers }
    }

    /// Answers a request.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let started = Instant::now();
        let id = own_id(request.headers()).unwrap_or_else(new_id);
        let asked = (request.method().clone(), request.uri().clone());
        let (request, unread) = left::keep(request);
        let answer = AssertUnwindSafe(self.route(request)).catch_unwind().await;
        let mut response = answer.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            ApiError::internal(text.unwrap_or("a panic without a message")).into_response()
        });
        let status = response.status();
        log(&id, asked, &response, started);
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID.clone(), id);
        let whole = unread.drained().await;
        if self.app.readiness.is_stopping() || !whole {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.answers.count(&self.app.metrics, status);
        response
    }

    async fn route(&self, request: Request<Body>) -> Response {
        // No client that did not say what it takes is sent anything compressed.
        let answer = match request.headers().contains_key(ACCEPT_ENCODING) {
            true => self.compressing.clone().oneshot(request).await.map(|answer| answer.map(Body::new)),
            false => self.routes.clone().oneshot(request).await,
        };
        answer.unwrap_or_else(|never| match never {})
    }
}

/// What there is to say of an answer, under the request's id. Most answers leave no line, and cost none.
fn log(id: &HeaderValue, (method, uri): (Method, Uri), answer: &Response, started: Instant) {
    let (id, path) = (id.to_str().unwrap_or_default(), uri.path());
    match answer.extensions().get() {
        Some(Details::Fault(details)) => {
            tracing::error!(id, %method, path, details, "a request hit a fault of the server");
        }
        Some(Details::GaveUp(reason)) => tracing::warn!(id, %method, path, reason, "a run gave up"),
        None => {}
    }
    let status = answer.status().as_u16();
    tracing::debug!(id, %method, path, status, took = ?started.elapsed(), "answered");
}

/// The counter of answers, by status; those of most answers are looked up once.
struct Answers([(StatusCode, Counter); 3]);

impl Answers {
    fn new(metrics: &Metrics) -> Answers {
        let most = [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
        Answers(most.map(|status| (status, counter(metrics, status))))
    }

    fn count(&self, metrics: &Metrics, status: StatusCode) {
        match self.0.iter().find(|(of, _)| *of == status) {
            Some((_, counter)) => counter.increment(1),
            None => counter(metrics, status).increment(1),
        }
    }
}

fn counter(metrics: &Metrics, status: StatusCode) -> Counter {
    metrics.counter(&metrics::HTTP_ANSWERS, &[("status", status.as_str().into())])
}

/// The client's own id, where it is fit to be repeated in headers and logs.
fn own_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(&REQUEST_ID)?;
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

//! The one map from what went wrong to the status, the sentence and the headers that a client gets.

use super::wire::metadata::ErrorBody;
use super::wire::request::BadRequest;
use super::wire::response::EncodeError;
use crate::repository::{LoadFailed, NotServed};
use crate::schedule::{Admission, Failed};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use plimsoll_engine::error::{Error as EngineError, size};
use std::time::Duration;

/// An answer that is not a result.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    sentence: String,
    retry_after: Option<Duration>,
    details: Option<Details>,
}

/// What the log is told of an answer and the client is not. It goes with the answer, to where the request's id is known.
#[derive(Clone, Debug)]
pub(super) enum Details {
    /// The server is at fault.
    Fault(String),
    /// A run gave up on its values.
    GaveUp(String),
}

impl ApiError {
    fn new(status: StatusCode, sentence: impl Into<String>) -> ApiError {
        ApiError { status, sentence: sentence.into(), retry_after: None, details: None }
    }

    fn retry_after(mut self, after: Duration) -> ApiError {
        self.retry_after = Some(after);
        self
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// 400: the request itself is wrong.
    pub(crate) fn bad_request(sentence: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, sentence)
    }

    /// 404: nothing lives at that address.
    pub(crate) fn no_route(path: &str) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, format!("nothing is served at `{path}`; see /openapi.json"))
    }

    /// 405: the address exists, not for this method.
    pub(crate) fn method_not_allowed() -> ApiError {
        ApiError::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this address does not take that method; see the Allow header",
        )
    }

    /// 413: a body over the limit.
    pub(crate) fn too_large(limit: u64) -> ApiError {
        let limit = size(limit);
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is larger than the limit of {limit} (server.max_body)"),
        )
    }

    /// 415: a body in an encoding that is not known.
    pub(crate) fn encoding(found: &str) -> ApiError {
        ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("content-encoding `{found}` is not known; send gzip, deflate or identity"),
        )
    }

    /// 429: the memory for bodies is taken.
    pub(crate) fn too_large_a_request(bytes: u64, budget: u64) -> ApiError {
        let (bytes, budget) = (size(bytes), size(budget));
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!(
                "the request takes {bytes} with its tensors unpacked, bodies in memory may take {budget} together \
                 (server.body_budget); send tensors as binary data, or fewer at a time"
            ),
        )
    }

    pub(crate) fn too_large_an_answer(bytes: u64, budget: u64) -> ApiError {
        let (bytes, budget) = (size(bytes), size(budget));
        ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!(
                "the answer takes {bytes} while it is made and sent, bodies in memory may take {budget} together \
                 (server.body_budget); send a smaller batch or shape, or ask for fewer outputs or for binary data"
            ),
        )
    }

    pub(crate) fn no_body_budget(budget: u64) -> ApiError {
        let budget = size(budget);
        ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!("the bodies in memory have reached their budget of {budget} (server.body_budget)"),
        )
        .retry_after(Duration::from_secs(1))
    }

    /// 422: no lane has the workspace that these shapes need.
    pub(crate) fn too_much_workspace(sentence: &str) -> ApiError {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, sentence)
    }

    /// 504: the deadline passed.
    pub(crate) fn expired(begun: bool) -> ApiError {
        let rest = if begun { "while the model ran" } else { "before it was run, and it was not run" };
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, format!("the request's deadline passed {rest}"))
    }

    /// 408: the client did not finish sending in time.
    pub(crate) fn slow_body() -> ApiError {
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive before the request's deadline")
    }

    /// 503: starting or stopping.
    pub(crate) fn not_ready(what: &str) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what).retry_after(Duration::from_secs(1))
    }

    /// 401: an admin call without the token, or with another.
    pub(crate) fn unauthorized(what: &str) -> ApiError {
        ApiError::new(
            StatusCode::UNAUTHORIZED,
            format!("{what}: send `Authorization: Bearer TOKEN` (server.admin_token_file)"),
        )
    }

    /// 403: an admin call that no token would let in.
    pub(crate) fn shut() -> ApiError {
        ApiError::new(
            StatusCode::FORBIDDEN,
            "admin calls are shut: the file of the admin token holds none (server.admin_token_file)",
        )
    }

    /// 500: a fault of ours; the details go to the log under the request's id.
    pub(crate) fn internal(details: &str) -> ApiError {
        let sentence =
            "the server failed on this request; its log has the details under the id in x-request-id";
        let details = Some(Details::Fault(details.into()));
        ApiError { details, ..ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, sentence) }
    }
}

impl From<BadRequest> for ApiError {
    fn from(error: BadRequest) -> ApiError {
        ApiError::bad_request(error.to_string())
    }
}

impl From<EncodeError> for ApiError {
    fn from(error: EncodeError) -> ApiError {
        ApiError::bad_request(error.to_string())
    }
}

impl From<NotServed> for ApiError {
    fn from(error: NotServed) -> ApiError {
        match error {
            NotServed::Unknown { .. } | NotServed::UnknownVersion { .. } => {
                ApiError::new(StatusCode::NOT_FOUND, error.to_string())
            }
            NotServed::NotReady { retry_after, .. } => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()).retry_after(retry_after)
            }
        }
    }
}

impl From<LoadFailed> for ApiError {
    fn from(error: LoadFailed) -> ApiError {
        let sentence = error.to_string();
        match error {
            LoadFailed::Unknown(not_served) => not_served.into(),
            LoadFailed::Engine(error) => error.into(),
            LoadFailed::Replacing { failed, .. } => ApiError { sentence, ..(*failed).into() },
            LoadFailed::Settings(_) | LoadFailed::Unusable(_) => ApiError::bad_request(sentence),
            LoadFailed::Lost => ApiError::internal("a load ended without a result"),
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        match &error {
            EngineError::DoesNotFit(_) | EngineError::TooLarge { .. } => {
                ApiError::new(StatusCode::INSUFFICIENT_STORAGE, error.to_string())
            }
            EngineError::Workspace { .. } | EngineError::PreparedWorkspace { .. } => {
                ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
            }
            // A program was made for these shapes, and what it gives up on are the values: an index beyond a table,
            // a division by zero.
            EngineError::Panicked { reason } => {
                let details = Some(Details::GaveUp(reason.clone()));
                ApiError { details, ..ApiError::bad_request(error.to_string()) }
            }
            EngineError::Fault { .. } | EngineError::NoKernel(_) => ApiError::internal(&error.to_string()),
            EngineError::Memory { .. } => ApiError::new(StatusCode::INSUFFICIENT_STORAGE, error.to_string()),
            // The file, the settings, the shapes or the values: each is something that a client brought.
            _ => ApiError::bad_request(error.to_string()),
        }
    }
}

impl From<Admission> for ApiError {
    fn from(refusal: Admission) -> ApiError {
        let shed = |sentence: String, after| {
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, sentence).retry_after(after)
        };
        match refusal {
            Admission::Full { limit, retry_after } => shed(
                format!("the model's queue is full ({limit} requests wait, batching.queue_limit)"),
                retry_after,
            ),
            Admission::TooLate { expected, left } => shed(
                format!(
                    "the answer would take about {expected:.0?} and the request's deadline is in {left:.0?}"
                ),
                expected.saturating_sub(left),
            ),
            Admission::NoLane => {
                ApiError::too_much_workspace("no lane has the workspace that these shapes need")
            }
            Admission::Closed => ApiError::not_ready("the server is stopping"),
        }
    }
}

impl From<Failed> for ApiError {
    fn from(failure: Failed) -> ApiError {
        match failure {
            Failed::Expired { begun } => ApiError::expired(begun),
            Failed::Run(error) => error.into(),
            Failed::Lost => ApiError::internal("a worker ended without an answer"),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&ErrorBody { error: &self.sentence }).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        if let Some(details) = self.details {
            response.extensions_mut().insert(details);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(after) = self.retry_after {
            // Whole seconds are all that the header can say; never less than it will take.
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs_f64().ceil().max(1.0) as u64));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

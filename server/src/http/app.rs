//! What every handler works with, and the parts of a request that many of them read.

use super::budget::Budget;
use super::door::{AdminToken, Connections, Verdict};
use super::error::ApiError;
use crate::load_line::LoadLine;
use crate::metrics::Metrics;
use crate::repository::Registry;
use crate::schedule::Scheduler;
use axum::extract::{FromRequestParts, RawPathParams};
use http::header::AUTHORIZATION;
use http::request::Parts;
use plimsoll_engine::arena::Arena;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

/// The server's parts, shared by all handlers.
pub(crate) struct App {
    pub(crate) registry: Arc<Registry>,
    pub(crate) scheduler: Scheduler,
    pub(crate) arena: Arc<Arena>,
    pub(crate) load_line: Arc<LoadLine>,
    pub(crate) metrics: Metrics,
    pub(crate) budget: Budget,
    pub(crate) readiness: Readiness,
    pub(crate) connections: Arc<Connections>,
    /// What an admin call must bring; `None` lets everyone.
    pub(crate) admin_token: Option<Arc<AdminToken>>,
    pub(crate) started: Instant,
}

/// Where the process stands between start and end.
#[derive(Default)]
pub(crate) struct Readiness(AtomicU8);

impl Readiness {
    const READY: u8 = 1;
    const STOPPING: u8 = 2;

    /// The models of the start are loaded; nothing makes a stopping server ready again.
    pub(crate) fn ready(&self) {
        let _ = self.0.compare_exchange(0, Readiness::READY, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The end has begun.
    pub(crate) fn stopping(&self) {
        self.0.store(Readiness::STOPPING, Ordering::Relaxed);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Readiness::READY
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Readiness::STOPPING
    }
}

impl App {
    /// Lets an admin call through.
    ///
    /// # Errors
    /// 401 where a token is set and the request does not bring it, 403 while the token's file holds none.
    pub(crate) fn admit(&self, parts: &Parts) -> Result<(), ApiError> {
        let Some(token) = &self.admin_token else { return Ok(()) };
        match token.judge(parts.headers.get(AUTHORIZATION).map(|value| value.as_bytes())) {
            Verdict::Admin => Ok(()),
            Verdict::Missing => Err(ApiError::unauthorized("this call needs the admin token")),
            Verdict::Wrong => Err(ApiError::unauthorized("this is not the admin token")),
            Verdict::Shut => Err(ApiError::shut()),
        }
    }
}

/// The model and version that a path names.
pub(crate) struct Target {
    pub(crate) model: String,
    pub(crate) version: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Target {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Target, ApiError> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        // A path that is no UTF-8 names nothing that there is.
        let params = params.map_err(|_| ApiError::no_route(parts.uri.path()))?;
        let named = |wanted: &str| {
            params.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_string())
        };
        Ok(Target { model: named("model").unwrap_or_default(), version: named("version") })
    }
}

//! Every route, once; the description at `/openapi.json` is checked against this table.

use super::about;
use super::app::App;
use super::around::Front;
use super::error::ApiError;
use super::infer::infer;
use super::memory;
use super::page;
use axum::Router;
use axum::extract::Request;
use axum::routing::{MethodRouter, get, post};
use std::sync::Arc;

type Route = (&'static str, &'static str, MethodRouter<Arc<App>>);

/// Method, path, handler.
fn table() -> Vec<Route> {
    let mut table: Vec<Route> = vec![
        ("GET", "/v2", get(about::server)),
        ("GET", "/v2/health/live", get(about::live)),
        ("GET", "/v2/health/ready", get(about::ready)),
        ("GET", "/v2/models/stats", get(about::all_stats)),
        ("POST", "/v2/repository/index", post(about::index)),
        ("POST", "/v2/repository/models/{model}/load", post(about::load)),
        ("POST", "/v2/repository/models/{model}/unload", post(about::unload)),
        ("GET", "/v2/memory", get(memory::memory)),
        ("GET", "/metrics", get(about::metrics_text)),
        ("GET", "/openapi.json", get(about::openapi)),
        ("GET", "/", get(page::page)),
        ("GET", "/page/{file}", get(page::file)),
    ];
    macro_rules! of_model {
        ($($method:literal $suffix:literal $handler:expr;)*) => {$(
            table.push(($method, concat!("/v2/models/{model}", $suffix), $handler));
            table.push(($method, concat!("/v2/models/{model}/versions/{version}", $suffix), $handler));
        )*};
    }
    of_model! {
        "GET" "" get(about::model);
        "GET" "/ready" get(about::model_ready);
        "GET" "/config" get(about::model_config);
        "GET" "/stats" get(about::model_stats);
        "POST" "/infer" post(infer);
    }
    table
}

/// The server's routes and what is around them, ready to be served or, in tests, called.
pub(crate) fn front(app: Arc<App>) -> Arc<Front> {
    let mut routes = Router::new();
    for (_, path, handler) in table() {
        routes = routes.route(path, handler);
    }
    let routes = routes
        .fallback(|request: Request| async move { ApiError::no_route(request.uri().path()) })
        .method_not_allowed_fallback(|| async { ApiError::method_not_allowed() })
        .with_state(Arc::clone(&app));
    Arc::new(Front::new(app, routes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::wire::openapi::operations;
    use std::collections::BTreeSet;

    #[test]
    fn the_description_names_the_routes_that_there_are() {
        let served: BTreeSet<_> =
            table().iter().map(|(method, path, _)| (method.to_string(), path.to_string())).collect();
        let described: BTreeSet<_> = operations().unwrap().into_iter().collect();
        assert_eq!(served, described);
    }
}

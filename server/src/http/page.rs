//! The page at `/`: what `/v2/memory`, the index, the statistics and `/metrics` tell, drawn for people.
//!
//! It is a client as any other: it asks those routes, and knows nothing that they do not tell.

use super::about::{Answer, typed};
use super::error::ApiError;
use axum::body::Bytes;
use axum::http::Uri;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue};

/// Where its other files lie.
const FOLDER: &str = "/page/";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// What the page is made of beside itself: name, type, text.
const FILES: [(&str, &str, &str); 8] = [
    ("dom.js", SCRIPT, include_str!("page/dom.js")),
    ("main.js", SCRIPT, include_str!("page/main.js")),
    ("mark.svg", "image/svg+xml", include_str!("page/mark.svg")),
    ("picture.js", SCRIPT, include_str!("page/picture.js")),
    ("recent.js", SCRIPT, include_str!("page/recent.js")),
    ("server.js", SCRIPT, include_str!("page/server.js")),
    ("style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("tables.js", SCRIPT, include_str!("page/tables.js")),
];

/// Only what this server serves itself: no script, style or address of anyone else's, and no frame around it. A
/// browser asks again each time, so that a new server brings its own page.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-cache"),
];

pub(crate) async fn page() -> Response {
    guarded("text/html; charset=utf-8", include_str!("page/index.html"))
}

pub(crate) async fn file(uri: Uri) -> Answer {
    let name = uri.path().strip_prefix(FOLDER).unwrap_or_default();
    let found = FILES.iter().find(|(file, _, _)| *file == name);
    let (_, content_type, text) = found.ok_or_else(|| ApiError::no_route(uri.path()))?;
    Ok(guarded(content_type, text))
}

fn guarded(content_type: &'static str, text: &'static str) -> Response {
    let mut response = typed(content_type, Bytes::from_static(text.as_bytes()));
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

//! The front called as axum's own examples do: requests in, answers out, no socket.

use super::error::ApiError;
use super::{AdminToken, App, Budget, Connections, front, rehearse};
use crate::config::{Batching, Load, Models};
use crate::load_line::LoadLine;
use crate::metrics::{self, Metrics};
use crate::process::Resident;
use crate::repository::{Defaults, Registry};
use crate::schedule::Scheduler;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use plimsoll_engine::arena::{Arena, Lines};
use plimsoll_engine::error::Error as EngineError;
use plimsoll_engine::model::Limits;
use plimsoll_engine::slab::Fixed;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

struct Server {
    app: Arc<App>,
    /// What the process is said to hold, in bytes.
    resident: Arc<AtomicU64>,
}

/// A server on the sample models, with a ceiling of this many bytes.
fn server_under(ceiling: u64, load: Load) -> Server {
    server_within(ceiling, load, Duration::from_secs(30))
}

/// The same where requests have a deadline so soon.
fn server_within(ceiling: u64, load: Load, timeout: Duration) -> Server {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
    let fixed = Fixed { ceiling, headroom: ceiling / 2, ..Fixed::default() };
    let lines = Lines {
        fixed,
        reserve: ceiling / 10,
        lanes: 1,
        // Under a ceiling with room for it, what the sample model needs.
        workspace: Some(if ceiling >= 1 << 26 { 256 << 10 } else { 32 << 10 }),
        threads: 1,
        ..Lines::default()
    };
    let arena = Arena::take(&lines, || 0).unwrap();
    let metrics = Metrics::new("cpu").unwrap();
    let limits = Limits::default();
    let defaults = Defaults {
        batching: Batching { queue_limit: 8, ..Batching::default() },
        timeout,
        limits,
        cache: None,
    };
    let models = Models { path: root, load, ..Models::default() };
    let registry = Registry::open(&models, defaults, Arc::clone(&arena), metrics.clone()).unwrap();
    let resident = Arc::new(AtomicU64::new(1));
    let told = Arc::clone(&resident);
    let sample = move || {
        let now = told.load(Ordering::Relaxed);
        Some(Resident { now, peak: now })
    };
    let app = App {
        load_line: Arc::new(LoadLine::new(Arc::clone(&arena), Box::new(sample))),
        registry,
        scheduler: Scheduler::start(arena.lanes().cloned().unwrap(), Box::new(|_, _| {})).unwrap(),
        arena,
        metrics,
        budget: Budget::new(1 << 20, 1 << 19),
        readiness: Default::default(),
        connections: Connections::new(1),
        admin_token: None,
        started: Instant::now(),
    };
    Server { app: Arc::new(app), resident }
}

async fn loaded() -> Server {
    let server = server_under(1 << 26, Load::All);
    server.app.registry.load("digits").await.unwrap();
    server.app.readiness.ready();
    server
}

impl Server {
    async fn call(&self, method: &str, path: &str, body: impl Into<Body>) -> Response {
        let request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
        front(Arc::clone(&self.app)).answer(request).await
    }
}

async fn text(response: Response) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

async fn json(response: Response) -> Value {
    serde_json::from_str(&text(response).await).unwrap()
}

async fn sentence(response: Response) -> String {
    json(response).await["error"].as_str().unwrap().to_string()
}

fn one_image() -> String {
    let zeros = vec!["0"; 64].join(",");
    format!(r#"{{"inputs":[{{"name":"image","datatype":"FP32","shape":[1,1,8,8],"data":[{zeros}]}}]}}"#)
}

#[tokio::test]
async fn an_image_gets_ten_probabilities() {
    let server = loaded().await;
    let response = server.call("POST", "/v2/models/digits/infer", one_image()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let answer = json(response).await;
    assert_eq!(answer["outputs"][0]["shape"], serde_json::json!([1, 10]));
    let sum: f64 = answer["outputs"][0]["data"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");
}

#[tokio::test]
async fn every_metric_that_is_declared_is_set_by_serving() {
    let server = loaded().await;
    server.call("POST", "/v2/models/digits/infer", one_image()).await;
    let text = text(server.call("GET", "/metrics", "").await).await;
    for metric in metrics::ALL {
        let set = |line: &str| line.starts_with(metric.name) && !line.starts_with('#');
        // The processor needs no pinned memory, and what there is nothing to say of is absent.
        let absent = metric.name == metrics::PINNED_REFUSED.name;
        assert_eq!(text.lines().any(set), !absent, "{}", metric.name);
        if absent {
            continue;
        }
        assert!(text.contains(&format!("# HELP {} ", metric.name)), "{} has no help", metric.name);
    }
}

#[tokio::test]
async fn an_unknown_model_is_404_and_names_those_that_exist() {
    let server = loaded().await;
    for (method, path) in [("GET", "/v2/models/numbers"), ("POST", "/v2/models/numbers/infer")] {
        let response = server.call(method, path, "").await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(sentence(response).await, "unknown model `numbers`; there are digits");
    }
    let response = server.call("GET", "/v2/models/digits/versions/7", "").await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert_eq!(sentence(response).await, "model `digits` has no version `7`; it has 1");
}

#[tokio::test]
async fn a_model_that_is_not_loaded_is_503_with_retry_after() {
    let server = server_under(1 << 26, Load::Names(vec![]));
    let response = server.call("POST", "/v2/models/digits/infer", one_image()).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(
        sentence(response).await,
        "model `digits` is not ready: it is not loaded; load it by POST /v2/repository/models/digits/load"
    );
    let server = server_under(1 << 26, Load::OnDemand);
    assert_eq!(
        sentence(server.call("GET", "/v2/models/digits", "").await).await,
        "model `digits` is not ready: it is not loaded; an inference request loads it"
    );
}

#[tokio::test]
async fn a_model_on_demand_is_loaded_by_its_first_request() {
    let server = server_under(1 << 26, Load::OnDemand);
    let response = server.call("POST", "/v2/models/digits/infer", one_image()).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_waits_for_its_model_no_longer_than_for_an_answer() {
    const LOAD: Duration = Duration::from_millis(600);
    let server = server_within(1 << 26, Load::OnDemand, LOAD / 6);
    server.app.registry.set_warm(Box::new(|_| Box::pin(tokio::time::sleep(LOAD))));
    let asked = Instant::now();
    let response = server.call("POST", "/v2/models/digits/infer", one_image()).await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    assert!(asked.elapsed() < LOAD, "{:?}", asked.elapsed());
    // The load goes on for those that come later.
    tokio::time::sleep(2 * LOAD).await;
    assert!(server.app.registry.get("digits", None).is_ok());
    let response = server.call("POST", "/v2/models/digits/infer", one_image()).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_version_is_warm_before_it_answers() {
    let server = server_under(1 << 26, Load::All);
    let app = Arc::downgrade(&server.app);
    let ran = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&ran);
    server.app.registry.set_warm(Box::new(move |served| {
        let (app, ran) = (app.upgrade().unwrap(), Arc::clone(&counted));
        Box::pin(async move {
            assert!(app.registry.get("digits", None).is_err(), "it answers already");
            let program = served.prepared().remove(0);
            let took = rehearse(&app, &served, &program).await;
            ran.fetch_add(u64::from(took.is_some()), Ordering::Relaxed);
        })
    }));
    server.app.registry.load("digits").await.unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    let served = server.app.registry.get("digits", None).unwrap();
    assert_eq!(served.stats.success.read().0, 0, "a rehearsal is counted");
}

#[tokio::test]
async fn a_model_that_does_not_fit_is_507_with_the_bytes_and_leaves_the_ledger_as_it_was() {
    let server = server_under(130_000, Load::All);
    let held = || {
        let snapshot = server.app.arena.snapshot().unwrap().0;
        (server.app.arena.ledger().account().held, snapshot.held, snapshot.free_bytes)
    };
    let before = held();
    let response = server.call("POST", "/v2/repository/models/digits/load", "").await;
    assert_eq!(response.status(), StatusCode::INSUFFICIENT_STORAGE);
    let sentence = sentence(response).await;
    assert!(
        sentence.starts_with("`digits:1` needs 6")
            && sentence.contains("free under the ceiling of 127.0 KiB"),
        "{sentence}"
    );
    assert_eq!(held(), before);
}

#[tokio::test]
async fn shapes_that_do_not_fit_under_the_ceiling_are_422_with_the_figures() {
    let server = server_under(300_000, Load::All);
    server.app.registry.load("digits").await.unwrap();
    let body = one_image().replace("[1,1,8,8]", "[400,1,8,8]");
    let body = body.replace(&vec!["0"; 64].join(","), &vec!["0"; 64 * 400].join(","));
    let response = server.call("POST", "/v2/models/digits/infer", body).await;
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let sentence = sentence(response).await;
    assert!(sentence.contains("all models together may take"), "{sentence}");
    // Smaller than that, and still more than a lane has.
    let body = one_image().replace("[1,1,8,8]", "[30,1,8,8]");
    let body = body.replace(&vec!["0"; 64].join(","), &vec!["0"; 64 * 30].join(","));
    let response = server.call("POST", "/v2/models/digits/infer", body).await;
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let sentence = json(response).await["error"].to_string();
    assert!(
        sentence.contains("[30, 1, 8, 8] need") && sentence.contains("the largest lane has"),
        "{sentence}"
    );
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_whether_its_length_is_declared_or_not() {
    let server = loaded().await;
    let declared = Request::post("/v2/models/digits/infer")
        .header("content-length", (1 << 19) + 1)
        .body(Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>()))
        .unwrap();
    let response = front(Arc::clone(&server.app)).answer(declared).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let piece = Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b' '; 1 << 16]));
    let endless = futures_util::stream::repeat_with(move || {
        piece.as_ref().map(Clone::clone).map_err(|_| std::io::Error::other(""))
    });
    let response = server.call("POST", "/v2/models/digits/infer", Body::from_stream(endless)).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(server.app.budget.used(), 0, "the bytes are given back");
}

#[tokio::test]
async fn a_body_that_unfolds_past_the_limit_is_413() {
    use std::io::Write;
    let server = loaded().await;
    let mut bomb = flate2::write::GzEncoder::new(vec![], flate2::Compression::best());
    bomb.write_all(&vec![b' '; 1 << 24]).unwrap();
    let request = Request::post("/v2/models/digits/infer")
        .header("content-encoding", "gzip")
        .body(Body::from(bomb.finish().unwrap()))
        .unwrap();
    let response = front(Arc::clone(&server.app)).answer(request).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn bodies_over_the_budget_are_429_until_others_are_done() {
    let server = loaded().await;
    let first = server.app.budget.hold(900 << 10, &Default::default()).unwrap();
    let request = || {
        Request::post("/v2/models/digits/infer")
            .header("content-length", 200 << 10)
            .body(Body::from(vec![b' '; 200 << 10]))
            .unwrap()
    };
    let response = front(Arc::clone(&server.app)).answer(request()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key("retry-after"));
    drop(first);
    let response = front(Arc::clone(&server.app)).answer(request()).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST, "spaces are no request, but they are read");
}

#[tokio::test]
async fn an_admin_call_needs_the_token_where_one_is_set() {
    let mut server = loaded().await;
    let dir = temp_dir::TempDir::new().unwrap();
    std::fs::write(dir.child("token"), "open sesame").unwrap();
    let token = AdminToken::open(&dir.child("token")).unwrap();
    Arc::get_mut(&mut server.app).unwrap().admin_token = Some(Arc::new(token));
    let unload = "/v2/repository/models/digits/unload";
    let response = server.call("POST", unload, "").await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
    for (token, status) in [("open", StatusCode::UNAUTHORIZED), ("open sesame", StatusCode::OK)] {
        let request = Request::post(unload)
            .header("authorization", format!("Bearer {token}"))
            .body(Body::empty())
            .unwrap();
        assert_eq!(front(Arc::clone(&server.app)).answer(request).await.status(), status);
    }
}

#[tokio::test]
async fn readiness_follows_start_and_stop() {
    let server = server_under(1 << 26, Load::All);
    assert_eq!(server.call("GET", "/v2/health/ready", "").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.call("GET", "/v2/health/live", "").await.status(), StatusCode::OK);
    server.app.readiness.ready();
    assert_eq!(server.call("GET", "/v2/health/ready", "").await.status(), StatusCode::OK);
    server.app.readiness.stopping();
    let response = server.call("GET", "/v2/health/ready", "").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["connection"], "close");
    server.app.readiness.ready();
    assert!(!server.app.readiness.is_ready(), "a stopping server is not ready again");
}

#[tokio::test]
async fn over_the_ceiling_the_server_is_not_ready_and_says_so_everywhere() {
    let server = loaded().await;
    let ready = async || server.call("GET", "/v2/health/ready", "").await;
    let memory = async || json(server.call("GET", "/v2/memory", "").await).await;
    assert_eq!(ready().await.status(), StatusCode::OK);
    assert_eq!(memory().await["ceiling_breaches"], 0);
    server.resident.store((1 << 26) + 1, Ordering::Relaxed);
    let response = ready().await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key("retry-after"));
    let expected = "the process holds 64 MiB of resident memory, more than the ceiling of 64 MiB";
    assert_eq!(sentence(response).await, expected);
    let seen = memory().await;
    assert_eq!(
        (&seen["process_resident_bytes"], &seen["ceiling_breaches"]),
        (&Value::from((1 << 26) + 1), &Value::from(1))
    );
    // Who asks is answered all the same.
    assert_eq!(server.call("POST", "/v2/models/digits/infer", one_image()).await.status(), StatusCode::OK);
    server.resident.store(1 << 26, Ordering::Relaxed);
    assert_eq!(ready().await.status(), StatusCode::OK);
    assert_eq!(memory().await["ceiling_breaches"], 1);
    let metrics = text(server.call("GET", "/metrics", "").await).await;
    assert!(metrics.contains("\nplimsoll_ceiling_breaches_total 1\n"), "{metrics}");
}

#[tokio::test]
async fn every_answer_carries_a_request_id_and_a_clients_own_is_kept() {
    let server = loaded().await;
    for path in ["/v2", "/nowhere", "/metrics"] {
        assert!(server.call("GET", path, "").await.headers().contains_key("x-request-id"), "{path}");
    }
    let request = Request::get("/v2").header("x-request-id", "mine-42").body(Body::empty()).unwrap();
    let response = front(Arc::clone(&server.app)).answer(request).await;
    assert_eq!(response.headers()["x-request-id"], "mine-42");
}

#[tokio::test]
async fn a_fault_in_a_kernel_is_500_and_keeps_its_details_to_the_log() {
    let fault = EngineError::Fault { reason: "index 7 out of range".into() };
    let response = ApiError::from(fault).into_response();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let sentence = sentence(response).await;
    assert!(sentence.contains("x-request-id") && !sentence.contains("index 7"), "{sentence}");
}

#[tokio::test]
async fn a_wrong_method_is_405_and_says_which_is_right() {
    let server = loaded().await;
    for method in ["DELETE", "QUERY"] {
        let response = server.call(method, "/v2/models/digits/infer", "").await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
        assert_eq!(response.headers()["allow"], "POST");
    }
}

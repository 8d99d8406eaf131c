//! One connection: handshake, requests, end.

use super::door::{Paced, Place, Tls, Underway};
use super::listen::Pace;
use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// How long a connection may be silent before it counts as idle while the server stops.
const IDLE: Duration = Duration::from_millis(250);

/// What every connection is served with.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) router: Router,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) pace: Pace,
    /// Cancelled when idle connections are to end.
    pub(super) closing: CancellationToken,
}

/// Serves a connection to its end; it holds its place for as long.
pub(super) async fn connection(stream: TcpStream, underway: Arc<Underway>, place: Place, serving: Serving) {
    let _place = place;
    // Answers are written whole; waiting to fill a packet would only add delay.
    let _ = stream.set_nodelay(true);
    let Pace { header_timeout, send_timeout, .. } = serving.pace;
    let stream = Paced::new(stream, Arc::clone(&underway), header_timeout, send_timeout);
    let Some(tls) = &serving.tls else { return requests(stream, underway, serving).await };
    match tokio::time::timeout(header_timeout, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, underway, serving).await,
        // A client that speaks no TLS, or distrusts the certificate, is its own business.
        Ok(Err(error)) => tracing::debug!(%error, "no TLS connection came about"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn requests(stream: impl AsyncRead + AsyncWrite + Unpin, underway: Arc<Underway>, serving: Serving) {
    let Serving { router, pace, closing, .. } = serving;
    let seen = Arc::clone(&underway);
    let service = tower::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (router, mark) = (router.clone(), seen.mark());
        async move {
            let answer = router.oneshot(request.map(axum::body::Body::new)).await;
            drop(mark);
            answer
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    // hyper's clock runs from one answer to the end of the next head: it bounds the silence in between.
    builder.timer(TokioTimer::new()).header_read_timeout(pace.idle_timeout).half_close(false);
    builder.max_header_size(pace.max_header);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut served = pin!(served);
    tokio::select! {
        // A client that breaks off, or speaks no HTTP, is its own business.
        result = served.as_mut() => { let _ = result; return }
        () = closing.cancelled() => {}
    }
    // A request may be on its way: it is answered, and its answer closes the connection.
    loop {
        let before = underway.count();
        tokio::select! {
            result = served.as_mut() => { let _ = result; return }
            () = tokio::time::sleep(IDLE) => {}
        }
        if underway.is_idle() && underway.count() == before {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
            return;
        }
    }
}

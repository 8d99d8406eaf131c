//! One connection: handshake, requests, end.

use super::around::Front;
use super::door::{Pace, Paced, Place, Tls, Underway};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// How long a connection may be silent before it counts as idle while the server stops.
const IDLE: Duration = Duration::from_millis(250);

/// What every connection is served with.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) front: Arc<Front>,
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
    let header_timeout = serving.pace.header_timeout;
    let stream = Paced::new(stream, Arc::clone(&underway), serving.pace);
    let Some(tls) = &serving.tls else { return requests(stream, underway, serving).await };
    match tokio::time::timeout(header_timeout, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, underway, serving).await,
        // A client that speaks no TLS, or distrusts the certificate, is its own business.
        Ok(Err(error)) => tracing::debug!(%error, "no TLS connection came about"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn requests(stream: impl AsyncRead + AsyncWrite + Unpin, underway: Arc<Underway>, serving: Serving) {
    let Serving { front, pace, closing, .. } = serving;
    let seen = Arc::clone(&underway);
    let service = service_fn(move |request| {
        let (front, mark) = (Arc::clone(&front), seen.mark());
        async move {
            let answer = front.answer(request).await;
            drop(mark);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    // How long each step may take is the stream's to watch, which needs no clock that is set for every request.
    builder.half_close(false).max_header_size(pace.max_header);
    let served = builder.serve_connection(TokioIo::new(stream), service);
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

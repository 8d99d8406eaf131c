//! Connections: accepted here, served by the router, and let go of without losing a request.

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// A request's head must be whole within this; a client that trickles it holds no connection for longer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection may be silent before it counts as idle while the server stops.
const IDLE: Duration = Duration::from_millis(250);

/// Serves connections until `stop`, then until all are answered or `grace` has passed.
///
/// # Errors
/// The listener breaks for good.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
    lead: Duration,
    grace: Duration,
) -> io::Result<()> {
    let connections = TaskTracker::new();
    let closing = CancellationToken::new();
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, router.clone(), closing.clone()));
                }
                Err(error) => accept_failed(&error).await,
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = async { stop.cancelled().await; tokio::time::sleep(lead).await } => {}
    }
    for stream in last(listener)? {
        connections.spawn(connection(stream, router.clone(), closing.clone()));
    }
    closing.cancel();
    connections.close();
    if tokio::time::timeout(grace.saturating_sub(lead), connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "the grace period is over; open connections are cut");
    }
    Ok(())
}

/// Takes in those whose connection the kernel has made, and who may have sent their request, and stops listening.
/// Nothing is awaited between the last look and the end: whoever comes in between is reset by the kernel.
fn last(listener: TcpListener) -> io::Result<Vec<TcpStream>> {
    let listener = listener.into_std()?;
    let mut taken = vec![];
    while let Ok((stream, _)) = listener.accept() {
        taken.push(stream);
    }
    drop(listener);
    taken
        .into_iter()
        .map(|stream| {
            stream.set_nonblocking(true)?;
            TcpStream::from_std(stream)
        })
        .collect()
}

/// A connection that a client gave up is nothing; running out of descriptors passes when others close.
async fn accept_failed(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn connection(stream: TcpStream, router: Router, closing: CancellationToken) {
    // Answers are written whole; waiting to fill a packet would only add delay.
    let _ = stream.set_nodelay(true);
    let underway = Arc::new(Underway::default());
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
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(false);
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

/// Requests that a connection has begun and finished.
#[derive(Default)]
struct Underway {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Underway {
    fn mark(self: &Arc<Self>) -> Mark {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Mark(Arc::clone(self))
    }

    fn count(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    fn is_idle(&self) -> bool {
        self.begun.load(Ordering::Relaxed) == self.ended.load(Ordering::Relaxed)
    }
}

/// One request under way on a connection, until dropped.
struct Mark(Arc<Underway>);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

//! The listener: connections are accepted here, as many as there may be, and let go of without losing a request.

use super::around::Front;
use super::connection::{Serving, connection};
use super::door::{Connections, Pace, Tls, Underway};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Where connections come in, and what they are held to.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    /// `None` where clients speak plain HTTP.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) pace: Pace,
}

/// Serves connections until `stop`, then until all are answered or `grace` has passed.
///
/// # Errors
/// The listener breaks for good.
pub(crate) async fn serve(
    door: Door,
    front: Arc<Front>,
    stop: CancellationToken,
    lead: Duration,
    grace: Duration,
) -> io::Result<()> {
    let Door { listener, tls, connections, pace } = door;
    let tasks = TaskTracker::new();
    let closing = CancellationToken::new();
    let serving = Serving { front, tls, pace, closing: closing.clone() };
    let take = |stream: TcpStream| {
        let underway = Underway::new();
        let place = connections.enter(Arc::clone(&underway));
        let id = place.id();
        let task = tasks.spawn(connection(stream, underway, place, serving.clone()));
        connections.runs_as(id, task.abort_handle());
    };
    // Accepted, and waiting for a place: only then does an idle connection have to leave.
    let mut waiting = None;
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => waiting = Some(stream),
                Err(error) => accept_failed(&error).await,
            }
            if waiting.is_some() {
                connections.room().await;
                waiting.take().into_iter().for_each(take);
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = async { stop.cancelled().await; tokio::time::sleep(lead).await } => {}
    }
    waiting.into_iter().chain(last(listener)?).for_each(take);
    closing.cancel();
    tasks.close();
    if tokio::time::timeout(grace.saturating_sub(lead), tasks.wait()).await.is_err() {
        tracing::warn!(connections = tasks.len(), "the grace period is over; open connections are cut");
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

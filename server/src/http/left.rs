//! What of a request's body no handler read.
//!
//! A refusal is often given before the body is read. The connection can serve another request only once the rest
//! has come in: a small rest is read and dropped, for a large one the answer says that the connection closes. Before it
//! does, some of the rest is read all the same: many clients look for an answer only once they have sent everything,
//! and a connection that is closed on bytes in flight takes the answer with it.

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::Request;
use http::header::EXPECT;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Rests up to this many bytes are read and dropped.
const SMALL: u64 = 256 * 1024;

/// How long a small rest is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// Of a large rest so much is read after the answer, and for so long.
const LINGER: (u64, Duration) = (24 << 20, Duration::from_secs(3));

type Slot = Arc<Mutex<Option<Body>>>;

/// The rest of a body, once the handler is done with it.
pub(super) struct Unread {
    slot: Slot,
    /// Whether the client sends the body only when it is told to.
    asks: bool,
}

/// The request with a body that comes back when it is dropped unread.
pub(super) fn keep<B>(request: Request<B>) -> (Request<Body>, Unread)
where
    B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    let slot = Slot::default();
    let lend = |body: B| match body.is_end_stream() {
        true => Body::empty(),
        false => Body::new(Lent { body: Some(body), slot: Arc::clone(&slot) }),
    };
    let asks = request.headers().contains_key(EXPECT);
    (request.map(lend), Unread { slot: Arc::clone(&slot), asks })
}

impl Unread {
    /// Reads a small rest to its end; whether nothing is left. Of a large rest some is read later.
    pub(super) async fn drained(self) -> bool {
        let Some(mut body) = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return true;
        };
        if self.asks {
            return false;
        }
        if body.size_hint().upper().is_none_or(|rest| rest > SMALL) {
            tokio::spawn(tokio::time::timeout(LINGER.1, linger(body)));
            return false;
        }
        let drain = async {
            while let Some(frame) = body.frame().await {
                if frame.is_err() {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(PATIENCE, drain).await.unwrap_or(false)
    }
}

/// Reads and drops what comes.
async fn linger(mut body: Body) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, |data| data.len() as u64);
        if read > LINGER.0 {
            break;
        }
    }
}

/// A body on loan to a handler.
struct Lent<B>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    /// `None` once it was read to its end or broke.
    body: Option<B>,
    slot: Slot,
}

impl<B> HttpBody for Lent<B>
where
    B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl<B> Drop for Lent<B>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Body::new(body));
        }
    }
}

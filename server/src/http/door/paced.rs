//! A stream whose other end must keep moving: it sends heads, ends those that it has begun, and takes what it is sent.

use super::Underway;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How large a head may be, and how long each step of a connection may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Largest head of a request, in bytes.
    pub(crate) max_header: usize,
    /// From the first byte of a head to its last, and for a TLS handshake.
    pub(crate) header_timeout: Duration,
    /// Longest silence between two requests.
    pub(crate) idle_timeout: Duration,
    /// Longest time in which a client takes nothing of an answer.
    pub(crate) send_timeout: Duration,
}

/// A stream that breaks with [`io::ErrorKind::TimedOut`] where the other end does not keep moving. A body has a deadline
/// elsewhere: that of its request.
pub(in crate::http) struct Paced<S> {
    stream: S,
    underway: Arc<Underway>,
    pace: Pace,
    /// A TLS handshake is the beginning of the first head.
    head: Option<Head>,
    silence: Alarm,
    sending: Alarm,
    /// When the other end last took something.
    took: Instant,
}

/// A head that has begun to come in.
struct Head {
    /// Requests that had begun before it.
    after: usize,
    since: Instant,
    alarm: Alarm,
}

/// Made when something has to be waited for, which is seldom.
type Alarm = Option<Pin<Box<Sleep>>>;

impl<S> Paced<S> {
    pub(in crate::http) fn new(stream: S, underway: Arc<Underway>, pace: Pace) -> Paced<S> {
        Paced { stream, underway, pace, head: None, silence: None, sending: None, took: Instant::now() }
    }

    /// Something came in: whether it belongs to a head.
    fn came(&mut self) {
        let after = self.underway.count();
        if !self.underway.is_idle() {
            self.head = None;
        } else if self.head.as_ref().is_none_or(|head| head.after != after) {
            self.head = Some(Head { after, since: Instant::now(), alarm: None });
        }
    }

    /// Nothing came in: whether a head, or the rest of it, is late.
    fn late(&mut self, context: &mut Context<'_>) -> bool {
        let begun = self.underway.count();
        match &mut self.head {
            Some(head) if head.after == begun => {
                let end = head.since + self.pace.header_timeout;
                rings(head.alarm.get_or_insert_with(|| Box::pin(sleep_until(end))), context)
            }
            // It is whole: its request has begun.
            _ => {
                self.head = None;
                self.silent(context)
            }
        }
    }

    /// Whether there has been no request for too long. The alarm is not set for every request: when it rings, it is told
    /// what is left since the last.
    fn silent(&mut self, context: &mut Context<'_>) -> bool {
        let timeout = self.pace.idle_timeout;
        let alarm = self.silence.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + timeout)));
        while rings(alarm, context) {
            // An answer that is being taken, however slowly, is no silence.
            let taken = if self.sending.is_some() { Duration::ZERO } else { self.took.elapsed() };
            let left = timeout.saturating_sub(self.underway.idle().unwrap_or_default().min(taken));
            if left.is_zero() {
                return true;
            }
            alarm.as_mut().reset(Instant::now() + left);
        }
        false
    }

    fn sent<T>(&mut self, sent: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.sending = None;
            self.took = Instant::now();
            return sent;
        }
        let end = || Box::pin(sleep_until(Instant::now() + self.pace.send_timeout));
        match rings(self.sending.get_or_insert_with(end), context) {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => Poll::Pending,
        }
    }
}

fn rings(alarm: &mut Pin<Box<Sleep>>, context: &mut Context<'_>) -> bool {
    alarm.as_mut().poll(context).is_ready()
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        match &read {
            Poll::Ready(Ok(())) if into.filled().len() > before => self.came(),
            Poll::Pending if self.late(context) => return Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            _ => {}
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(context, from);
        self.sent(sent, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(context, from);
        self.sent(sent, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::net::UnixStream;
    use tokio::time::timeout;

    const SHORT: Duration = Duration::from_millis(30);

    /// Each limit is short where it is named, else longer than any test.
    fn pair(underway: &Arc<Underway>, shorten: impl FnOnce(&mut Pace)) -> (UnixStream, Paced<UnixStream>) {
        let long = 1000 * SHORT;
        let mut pace = Pace { max_header: 0, header_timeout: long, idle_timeout: long, send_timeout: long };
        shorten(&mut pace);
        let (client, server) = UnixStream::pair().unwrap();
        (client, Paced::new(server, Arc::clone(underway), pace))
    }

    async fn send(client: &UnixStream, text: &[u8]) {
        client.writable().await.unwrap();
        assert_eq!(client.try_write(text).unwrap(), text.len());
    }

    async fn read(paced: &mut Paced<UnixStream>) -> io::Result<usize> {
        let mut piece = [0; 64];
        poll_fn(|context| {
            let mut into = ReadBuf::new(&mut piece);
            let read = Pin::new(&mut *paced).poll_read(context, &mut into);
            read.map_ok(|()| into.filled().len())
        })
        .await
    }

    #[tokio::test]
    async fn a_head_that_stays_unfinished_breaks_the_stream() {
        let (client, mut paced) = pair(&Underway::new(), |pace| pace.header_timeout = SHORT);
        send(&client, b"GET /").await;
        assert_eq!(read(&mut paced).await.unwrap(), 5);
        assert_eq!(read(&mut paced).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn silence_between_requests_breaks_the_stream_once_it_is_long() {
        let underway = Underway::new();
        let (client, mut paced) = pair(&underway, |pace| pace.idle_timeout = 10 * SHORT);
        send(&client, b"GET / ...").await;
        assert_eq!(read(&mut paced).await.unwrap(), 9);
        let mark = underway.mark();
        assert!(timeout(20 * SHORT, read(&mut paced)).await.is_err(), "a request is under way");
        drop(mark);
        assert!(timeout(5 * SHORT, read(&mut paced)).await.is_err(), "it counts from the end of the request");
        let broken = timeout(100 * SHORT, read(&mut paced)).await.unwrap();
        assert_eq!(broken.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn silence_before_a_head_and_within_a_request_is_no_late_head() {
        let underway = Underway::new();
        let (client, mut paced) = pair(&underway, |pace| pace.header_timeout = SHORT);
        assert!(timeout(3 * SHORT, read(&mut paced)).await.is_err(), "it goes on waiting");
        send(&client, b"GET / ...").await;
        assert_eq!(read(&mut paced).await.unwrap(), 9);
        let _mark = underway.mark();
        assert!(timeout(3 * SHORT, read(&mut paced)).await.is_err(), "it goes on waiting");
    }

    #[tokio::test]
    async fn an_answer_that_is_not_taken_breaks_the_stream() {
        let (_client, mut paced) = pair(&Underway::new(), |pace| pace.send_timeout = SHORT);
        // The kernel takes some of it.
        let error = loop {
            let written = poll_fn(|context| Pin::new(&mut paced).poll_write(context, &[0; 1 << 16])).await;
            if let Err(error) = written {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

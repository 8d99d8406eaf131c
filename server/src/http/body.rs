//! Reading a request's body: never more than the limit, never more at once than the budget, decompressed as it
//! arrives.

use super::budget::{Budget, Share};
use super::error::ApiError;
use super::spare::lend;
use axum::body::Body;
use bytes::Bytes;
use flate2::write::{GzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts;
use http_body_util::BodyExt;
use std::io::{self, Write};
use std::time::Instant;

/// A look at the first bytes of a body that is still on its way, which may end it.
pub(crate) struct Early<'a> {
    /// How many bytes.
    pub(crate) head: usize,
    /// Says why the rest is not worth waiting for.
    pub(crate) look: &'a mut (dyn FnMut(&[u8]) -> Result<(), ApiError> + Send),
}

/// A rest of so many bytes takes longer than an early look.
const MUCH: u64 = 64 << 10;

/// A body in memory and its share of the budget, which is given back when this is dropped.
pub(crate) struct Received {
    /// The body, decompressed.
    pub(crate) bytes: Bytes,
    /// Bytes that came over the wire.
    pub(crate) wire_bytes: usize,
    /// The share; to be kept as long as anything points into the bytes.
    pub(crate) share: Share,
}

impl Budget {
    /// Reads a body to its end. A large one is looked at early: once its head is there and much is still to come.
    ///
    /// # Errors
    /// What the early look says; 413 before anything is read where the length is declared, else when the limit is
    /// passed; 429 when the budget is spent; 415 for an unknown encoding; 408 when `deadline` passes; 400 when the body
    /// breaks off or does not decompress.
    pub(crate) async fn receive(
        &self,
        parts: &Parts,
        body: Body,
        deadline: Instant,
        early: Option<Early<'_>>,
    ) -> Result<Received, ApiError> {
        let encoding = Encoding::of(parts)?;
        let declared = declared_length(parts)?;
        if declared.is_some_and(|length| length > self.largest) {
            return Err(ApiError::too_large(self.largest));
        }
        // Claimed as it arrives: what a client only announces takes no memory, and must not keep others out.
        let mut share = Share::default();
        let read = self.read(encoding, declared, body, &mut share, early);
        match tokio::time::timeout_at(deadline.into(), read).await {
            Ok(Ok((bytes, wire_bytes))) => Ok(Received { bytes, wire_bytes, share }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ApiError::slow_body()),
        }
    }

    async fn read(
        &self,
        encoding: Encoding,
        declared: Option<u64>,
        mut body: Body,
        share: &mut Share,
        mut early: Option<Early<'_>>,
    ) -> Result<(Bytes, usize), ApiError> {
        let mut wire_bytes = 0usize;
        // A body that arrives in one piece is kept as it is, without a copy.
        let mut first: Option<Bytes> = None;
        let mut sink: Option<Sink> = match encoding {
            Encoding::Identity => None,
            Encoding::Gzip => Some(Sink::Gzip(GzDecoder::new(Limited::new(self.largest, 0)))),
            Encoding::Deflate => Some(Sink::Zlib(ZlibDecoder::new(Limited::new(self.largest, 0)))),
        };
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| ApiError::bad_request(format!("the body broke off: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            wire_bytes += data.len();
            if wire_bytes as u64 > self.largest {
                return Err(ApiError::too_large(self.largest));
            }
            share.cover(self, wire_bytes as u64)?;
            match (&mut sink, first.take()) {
                (None, None) if wire_bytes == data.len() => first = Some(data),
                (None, before) => {
                    let expected = declared.unwrap_or(0);
                    let mut plain = Limited::new(self.largest, expected);
                    // Its pages are there, whatever has come by now: all of it is claimed.
                    if let Some(buffer) = self.spare().take(expected)
                        && share.cover(self, buffer.capacity() as u64).is_ok()
                    {
                        plain.bytes = buffer;
                    }
                    self.write(&mut plain, &before.unwrap_or_default(), share, wire_bytes)?;
                    self.write(&mut plain, &data, share, wire_bytes)?;
                    sink = Some(Sink::Plain(plain));
                }
                (Some(sink), _) => self.write(sink, &data, share, wire_bytes)?,
            }
            let so_far = match (&first, &sink) {
                (Some(first), _) => &first[..],
                (None, Some(Sink::Plain(plain))) => &plain.bytes,
                _ => continue,
            };
            let rest = declared.unwrap_or(0).saturating_sub(wire_bytes as u64);
            if let Some(head) = early.as_ref().and_then(|early| so_far.get(..early.head))
                && rest > MUCH
                && let Some(early) = early.take()
            {
                (early.look)(head)?;
            }
        }
        let bytes = match sink {
            None => first.unwrap_or_default(),
            Some(sink) => lend(sink.finish().map_err(|error| self.broken(&error))?, self),
        };
        Ok((bytes, wire_bytes))
    }

    fn write(
        &self,
        sink: &mut impl Growing,
        data: &[u8],
        share: &mut Share,
        wire: usize,
    ) -> Result<(), ApiError> {
        sink.write_all(data).map_err(|error| self.broken(&error))?;
        share.cover(self, (sink.held() as u64).max(wire as u64))
    }

    fn broken(&self, error: &io::Error) -> ApiError {
        match error.kind() {
            io::ErrorKind::FileTooLarge => ApiError::too_large(self.largest),
            _ => ApiError::bad_request(format!("the body does not decompress: {error}")),
        }
    }
}

fn declared_length(parts: &Parts) -> Result<Option<u64>, ApiError> {
    let Some(value) = parts.headers.get(CONTENT_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| ApiError::bad_request("content-length is not a number"))
}

/// How a body is compressed.
#[derive(Clone, Copy)]
enum Encoding {
    Identity,
    Gzip,
    /// In HTTP, `deflate` means the zlib format.
    Deflate,
}

impl Encoding {
    fn of(parts: &Parts) -> Result<Encoding, ApiError> {
        let Some(value) = parts.headers.get(CONTENT_ENCODING) else { return Ok(Encoding::Identity) };
        match value.to_str().unwrap_or("?").trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Encoding::Identity),
            "gzip" | "x-gzip" => Ok(Encoding::Gzip),
            "deflate" => Ok(Encoding::Deflate),
            other => Err(ApiError::encoding(other)),
        }
    }
}

/// A growing buffer that refuses to grow past its limit: a small body can decompress to a very large one.
struct Limited {
    bytes: Vec<u8>,
    limit: u64,
}

impl Limited {
    fn new(limit: u64, expected: u64) -> Limited {
        // What a client declares is believed up to a point; more is allocated as it arrives.
        const BELIEVED: u64 = 1 << 20;
        Limited { bytes: Vec::with_capacity(expected.min(limit).min(BELIEVED) as usize), limit }
    }
}

impl Write for Limited {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + data.len()) as u64 > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

trait Growing: Write {
    /// Bytes written out so far.
    fn held(&self) -> usize;
}

impl Growing for Limited {
    fn held(&self) -> usize {
        self.bytes.len()
    }
}

enum Sink {
    Plain(Limited),
    Gzip(GzDecoder<Limited>),
    Zlib(ZlibDecoder<Limited>),
}

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Plain(sink) => sink.write(data),
            Sink::Gzip(sink) => sink.write(data),
            Sink::Zlib(sink) => sink.write(data),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Growing for Sink {
    fn held(&self) -> usize {
        match self {
            Sink::Plain(sink) => sink.held(),
            Sink::Gzip(sink) => sink.get_ref().held(),
            Sink::Zlib(sink) => sink.get_ref().held(),
        }
    }
}

impl Sink {
    fn finish(self) -> io::Result<Vec<u8>> {
        Ok(match self {
            Sink::Plain(sink) => sink.bytes,
            Sink::Gzip(sink) => sink.finish()?.bytes,
            Sink::Zlib(sink) => sink.finish()?.bytes,
        })
    }
}

//! A request of the command line to a running server.

mod tls;

use super::Usage;
use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Status and text of the answer to a GET of `path` on the server at `url`, within `patience`.
///
/// # Errors
/// The address is none, nobody answers there in time, or not with text.
pub(super) fn get(url: &Uri, path: &str, patience: Duration) -> anyhow::Result<(StatusCode, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async { tokio::time::timeout(patience, ask(url, path)).await });
    asked.map_err(|_| anyhow::anyhow!("{url} did not answer within {patience:?}"))?
}

async fn ask(url: &Uri, path: &str) -> anyhow::Result<(StatusCode, String)> {
    let port = match url.scheme_str() {
        None | Some("http") => 80,
        Some("https") => 443,
        Some(_) => bail!(Usage(format!("{url}: expected http://HOST:PORT or https://HOST:PORT"))),
    };
    let host = url.host().ok_or_else(|| Usage(format!("{url} names no host; expected http://HOST:PORT")))?;
    let address = format!("{host}:{}", url.port_u16().unwrap_or(port));
    let stream =
        TcpStream::connect(&address).await.with_context(|| format!("no server answers at {address}"))?;
    match port {
        443 => exchange(tls::connect(host, stream).await?, &address, path).await,
        _ => exchange(stream, &address, path).await,
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    address: &str,
    path: &str,
) -> anyhow::Result<(StatusCode, String)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header("host", address).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await.with_context(|| format!("{address} gave no answer"))?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.to_vec()).context("the answer is no text")?))
}

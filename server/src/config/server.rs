//! `[server]`: where to listen, and how much and how long a request may take.

use super::values;
use bytesize::ByteSize;
use serde::Deserialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Section `[server]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    /// Address and port to listen on; port 0 takes a free one. Default `127.0.0.1:8000`.
    #[serde(deserialize_with = "values::address")]
    pub(crate) listen: SocketAddr,
    /// Largest request body in bytes, after decompression too; at least 1. Default 64 MiB, and never more than the
    /// half of the body budget.
    #[serde(deserialize_with = "values::size_above_zero")]
    pub(crate) max_body: ByteSize,
    /// Bytes that the bodies of requests and answers in memory may hold together, under the ceiling where the device shares memory
    /// with the process; at least twice `max_body`. Default none: twice `max_body`, or an eighth of the ceiling where
    /// that is less.
    #[serde(deserialize_with = "values::size_above_zero")]
    pub(crate) body_budget: Option<ByteSize>,
    /// Longest time from a request's arrival to its answer; at least 1 ms. Default 30 s.
    #[serde(deserialize_with = "values::duration_above_zero")]
    pub(crate) request_timeout: Duration,
    /// How long a shutdown waits for requests in flight. Default 30 s.
    #[serde(deserialize_with = "values::duration")]
    pub(crate) shutdown_grace: Duration,
    /// File whose trimmed content is the bearer token of admin calls; read again when it changes. Default none: they are
    /// open.
    #[serde(deserialize_with = "values::path")]
    pub(crate) admin_token_file: Option<PathBuf>,
    /// PEM file with the certificate that clients are shown, and the chain behind it; read again when it changes.
    /// Default none: plain HTTP.
    #[serde(deserialize_with = "values::path")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's private key, without a passphrase. Given where `tls_cert` is.
    #[serde(deserialize_with = "values::path")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Connections that may be open at once, 1 to 65536. Default 512.
    #[serde(deserialize_with = "values::count::<_, _, 1, 65536>")]
    pub(crate) max_connections: usize,
    /// Largest head of a request in bytes, 1 KiB to 256 KiB. Default 64 KiB.
    #[serde(deserialize_with = "values::header_size")]
    pub(crate) max_header: ByteSize,
    /// Longest time from the first byte of a head to its last, and for a TLS handshake; at least 1 ms. Default 10 s.
    #[serde(deserialize_with = "values::duration_above_zero")]
    pub(crate) header_timeout: Duration,
    /// Longest silence on a connection between two requests; at least 1 ms. Default 75 s.
    #[serde(deserialize_with = "values::duration_above_zero")]
    pub(crate) idle_timeout: Duration,
    /// Longest time in which a client takes nothing of its answer; at least 1 ms. Default 30 s.
    #[serde(deserialize_with = "values::duration_above_zero")]
    pub(crate) send_timeout: Duration,
}

impl Server {
    /// Bytes that one body, and that all bodies together may hold under this ceiling.
    pub(crate) fn bodies(&self, ceiling: ByteSize) -> (ByteSize, ByteSize) {
        let share = ByteSize::b((ceiling.as_u64() / 8).min(2 * self.max_body.as_u64()));
        let budget = self.body_budget.unwrap_or(share);
        (self.max_body.min(ByteSize::b(budget.as_u64() / 2)), budget)
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8000)),
            max_body: ByteSize::mib(64),
            body_budget: None,
            request_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(30),
            admin_token_file: None,
            tls_cert: None,
            tls_key: None,
            max_connections: 512,
            max_header: ByteSize::kib(64),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            send_timeout: Duration::from_secs(30),
        }
    }
}

//! `health`: whether a server is ready, for container health checks and scripts.

use super::{Usage, client, start};
use crate::cli::Health;
use crate::config::{Flags, Server};
use anyhow::{Context, bail};
use http::Uri;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// How long the server may take; health checks are commonly given some seconds.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn run(arguments: &Health) -> anyhow::Result<()> {
    let url = match &arguments.url {
        Some(url) => url.clone(),
        None => own(&start::configuration(arguments.config.as_deref(), &Flags::default())?.server)?,
    };
    let (status, text) = client::get(&url, "/v2/health/ready", PATIENCE).context("not ready")?;
    if !status.is_success() {
        let error = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
        let sentence = error["error"].as_str().unwrap_or(&text);
        bail!("not ready: {url} answered {}: {sentence}", status.as_u16());
    }
    writeln!(std::io::stdout(), "ready")?;
    Ok(())
}

/// Where a server with this configuration is reached from its own machine.
fn own(server: &Server) -> anyhow::Result<Uri> {
    let mut address = server.listen;
    if address.port() == 0 {
        bail!(Usage("server.listen has port 0, so that only the server knows its port; say --url".into()));
    }
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let scheme = if server.tls_cert.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{address}").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_listens_everywhere_is_asked_on_the_loopback() {
        for (listen, url) in [
            ("127.0.0.1:8000", "http://127.0.0.1:8000/"),
            ("0.0.0.0:80", "http://127.0.0.1:80/"),
            ("[::]:8000", "http://[::1]:8000/"),
            ("192.168.0.7:8000", "http://192.168.0.7:8000/"),
        ] {
            let server = Server { listen: listen.parse().unwrap(), ..Server::default() };
            assert_eq!(own(&server).unwrap().to_string(), url);
            let server = Server { tls_cert: Some("c.pem".into()), ..server };
            assert_eq!(own(&server).unwrap().to_string(), url.replace("http", "https"));
        }
        let any = Server { listen: "127.0.0.1:0".parse().unwrap(), ..Server::default() };
        assert!(own(&any).is_err());
    }
}

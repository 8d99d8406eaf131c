//! The end of the process, in order: tell, drain, finish.
//!
//! 1. A signal turns readiness to 503; every answer from then on closes its connection, so that clients move on.
//! 2. After a lead, in which load balancers notice, no new connection is accepted.
//! 3. Connections end with the answer to what they have sent; idle ones are closed. At the end of the grace period
//!    the rest is cut.

use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long after the signal connections are still accepted: a tenth of the grace period, one second at most.
pub(crate) fn lead(grace: Duration) -> Duration {
    (grace / 10).min(Duration::from_secs(1))
}

/// A token that is cancelled by SIGTERM or SIGINT. A second signal ends the process at once.
///
/// # Errors
/// The handlers cannot be installed.
pub(crate) fn on_signal() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let told = stop.clone();
    tokio::spawn(async move {
        for second in [false, true] {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            };
            if second {
                tracing::warn!(signal = name, "second signal, stopping at once");
                std::process::exit(1);
            }
            tracing::info!(signal = name, "stopping");
            told.cancel();
        }
    });
    Ok(stop)
}

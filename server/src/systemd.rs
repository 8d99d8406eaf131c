//! What a service manager gives and is told: a socket that it listens on already, and when the server is ready or stops.
//! Without one, as on a terminal, nothing here does anything. The protocols are systemd's: sd_listen_fds(3), sd_notify(3).

use listenfd::ListenFd;
use sd_notify::NotifyState;
use std::io;
use std::net::TcpListener;
use std::time::Duration;

/// How much longer than the service manager would wait for ready a step of the start may take: a large model's load.
const STEP: Duration = Duration::from_secs(120);

/// The first socket that the service manager has passed, ready for tokio.
///
/// # Errors
/// It is no listening TCP socket.
pub(crate) fn passed_listener() -> io::Result<Option<TcpListener>> {
    let listener = ListenFd::from_env().take_tcp_listener(0)?;
    if let Some(listener) = &listener {
        listener.set_nonblocking(true)?;
    }
    Ok(listener)
}

/// The start goes on, and takes longer than it usually may.
pub(crate) fn starting(what: &str) {
    let micros = u32::try_from(STEP.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::ExtendTimeoutUsec(micros), NotifyState::Status(what)]);
}

/// Requests are answered from now on.
pub(crate) fn ready(what: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(what)]);
}

/// The end has begun.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping once the requests in flight are answered")]);
}

fn tell(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told (NOTIFY_SOCKET)");
    }
}

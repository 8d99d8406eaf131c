//! Where log lines go, and what becomes of a panic.

use crate::config::{Format, Level, Log};

/// Sends events of `log.level`, else of `default`, and above to stderr as text or JSON, and panics into the log.
pub(super) fn start(log: &Log, default: Level) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::from(log.level.unwrap_or(default)))
        .with_writer(std::io::stderr)
        .with_target(false);
    // A second start, as in tests, keeps the first.
    let _ = match log.format {
        Format::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    std::panic::set_hook(Box::new(|info| {
        let text = info.payload_as_str().unwrap_or("a panic without a message");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, text, "a thread panicked");
    }));
}

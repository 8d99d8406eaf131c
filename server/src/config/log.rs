//! `[log]`: what is logged and how.

use super::values;
use clap::ValueEnum;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;

/// Section `[log]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    /// The least severe events that are logged. Default `info`; of `check`, whose table tells the rest, `warn`.
    pub(crate) level: Option<Level>,
    /// How an event is written. Default `text`.
    pub(crate) format: Format,
    /// Where the arrival of each inference request is written, for `plimsoll simulate`; begun anew at each start. Default
    /// none: nowhere.
    #[serde(deserialize_with = "values::path")]
    pub(crate) arrivals: Option<PathBuf>,
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// What failed.
    Error,
    /// What an operator should look at.
    Warn,
    /// Starts, stops, loads and unloads.
    Info,
    /// Each request.
    Debug,
    /// Everything.
    Trace,
}

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A line for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl From<Level> for tracing::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        values::choice(from)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        values::choice(from)
    }
}

//! Arguments, file and environment → one checked configuration.
//!
//! One struct per section of `plimsoll.toml`, each in its own file with the default, unit and limits of
//! every key. `source` is the way in; what it returns has been validated.

mod batching;

mod cache;

mod device;

mod error;

mod keys;

mod lanes;

mod log;

mod memory;

mod models;

mod read;

mod server;

mod source;

pub(crate) mod values;

#[cfg(test)]
mod tests;

use plimsoll_engine::error::size;
use serde::Deserialize;

pub(crate) use batching::Batching;
pub(crate) use cache::Cache;
pub(crate) use device::{Device, Kind};
pub(crate) use error::ConfigError;
pub(crate) use lanes::{Lanes, Workspace};
pub(crate) use log::{Format, Level, Log};
pub(crate) use memory::Memory;
#[cfg(test)]
pub(crate) use memory::Reserve;
pub(crate) use models::{Load, Models, Replace};
pub(crate) use read::read_toml;
pub(crate) use server::Server;
pub(crate) use source::{FILE_VARIABLE, Flags, load};

/// The whole configuration: defaults < file < environment < flags.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Where to listen, and how much and how long a request may take.
    pub(crate) server: Server,
    /// What computes.
    pub(crate) device: Device,
    /// The ceiling and how it is divided.
    pub(crate) memory: Memory,
    /// How many runs happen at once.
    pub(crate) lanes: Lanes,
    /// The folder of models and when they are loaded.
    pub(crate) models: Models,
    /// Defaults of batching and queueing; a model can override them.
    pub(crate) batching: Batching,
    /// What is kept on disk between starts.
    pub(crate) cache: Cache,
    /// What is logged and how.
    pub(crate) log: Log,
}

impl Config {
    /// Checks what no key can check alone.
    ///
    /// # Errors
    /// [`ConfigError::Conflict`], naming the keys and their values.
    fn validate(&self) -> Result<(), ConfigError> {
        let Server { max_body, body_budget, request_timeout, .. } = self.server;
        if let Some(body_budget) = body_budget.filter(|budget| budget.as_u64() / 2 < max_body.as_u64()) {
            return Err(ConfigError::conflict(format!(
                "server.body_budget ({}) is less than twice server.max_body ({}): \
                 the budget must hold a body of full size and the answer to it",
                size(body_budget.as_u64()),
                size(max_body.as_u64())
            )));
        }
        let half = match (&self.server.tls_cert, &self.server.tls_key) {
            (Some(_), None) => Some(("tls_cert", "tls_key")),
            (None, Some(_)) => Some(("tls_key", "tls_cert")),
            _ => None,
        };
        if let Some((given, missing)) = half {
            return Err(ConfigError::conflict(format!(
                "server.{given} is set and server.{missing} is not: TLS needs the certificate and its key"
            )));
        }
        let max_delay = self.batching.max_delay;
        if max_delay >= request_timeout {
            return Err(ConfigError::conflict(format!(
                "batching.max_delay ({}) is not below server.request_timeout ({}): \
                 a request would time out while it waits for company",
                humantime::format_duration(max_delay),
                humantime::format_duration(request_timeout)
            )));
        }
        match self.memory.ceiling {
            Some(ceiling) => self.memory.under(ceiling).map(drop),
            None => Ok(()),
        }
    }
}

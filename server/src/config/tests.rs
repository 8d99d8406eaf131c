mod environment;
mod file;
mod limits;
mod shipped;

use super::source::assemble;
use super::{Config, ConfigError, Flags};
use std::ffi::OsString;
use std::path::Path;

/// The configuration from the text of a `plimsoll.toml` alone.
fn from_file(text: &str) -> Result<Config, ConfigError> {
    assemble(Some((Path::new("plimsoll.toml"), text)), [], &Flags::default())
}

/// The configuration from a file and variables.
fn from_both(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    assemble(Some((Path::new("plimsoll.toml"), text)), variables, &Flags::default())
}

/// The configuration from variables alone.
fn from_variables(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    from_both("", variables)
}

fn refusal(result: Result<Config, ConfigError>) -> String {
    result.unwrap_err().to_string()
}

//! File, environment and flags → [`Config`].

use super::keys::{PREFIX, keys, variable_name};
use super::read::{nearest, sentence};
use super::{Config, ConfigError, Kind, read_toml};
use bytesize::ByteSize;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The file that is read when none is named and it exists.
const DEFAULT_FILE: &str = "plimsoll.toml";

/// Names the configuration file; the command line reads it.
pub(crate) const FILE_VARIABLE: &str = "PLIMSOLL_CONFIG";

/// Variables that begin like those of keys and are read by others: the command line, the load scenarios, the tests.
const NOT_KEYS: [&str; 4] = [FILE_VARIABLE, "PLIMSOLL_URL", "PLIMSOLL_BIN", "PLIMSOLL_FETCHED"];

/// What the command line overrides; `None` leaves what file and environment say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Flags {
    /// For `models.path`.
    pub(crate) models: Option<PathBuf>,
    /// For `server.listen`.
    pub(crate) listen: Option<SocketAddr>,
    /// For `memory.ceiling`.
    pub(crate) ceiling: Option<ByteSize>,
    /// For `device.kind`.
    pub(crate) device: Option<Kind>,
}

/// The configuration from `file` (or `./plimsoll.toml` where none is named and it exists), the environment
/// and the flags, the later over the earlier, checked as a whole.
///
/// Each key can be set by a variable `PLIMSOLL_<SECTION>__<KEY>`. Its text is taken as a TOML value when that
/// is a value the key can have, else as a string; an empty text counts as not set.
///
/// # Errors
/// [`ConfigError`], for the first thing that is wrong.
pub(crate) fn load(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &Flags,
) -> Result<Config, ConfigError> {
    let default = Path::new(DEFAULT_FILE);
    let file = file.or_else(|| default.exists().then_some(default));
    let text = match file {
        Some(file) => Some(fs::read_to_string(file).map_err(|error| ConfigError::unreadable(file, error))?),
        None => None,
    };
    assemble(file.zip(text.as_deref()), environment, flags)
}

/// [`load`] once the file is read.
pub(super) fn assemble(
    file: Option<(&Path, &str)>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &Flags,
) -> Result<Config, ConfigError> {
    let mut table = Table::new();
    if let Some((file, text)) = file {
        // The file is judged alone first: only then can an error name its line.
        read_toml::<Config>(text, file)?;
        table = read_toml(text, file)?;
    }
    for (name, text) in ours(environment)? {
        let (section, key, value) = read_variable(&name, &text)?;
        let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(section) = section {
            section.insert(key.to_owned(), value);
        }
    }
    let mut config: Config =
        table.try_into().map_err(|error| ConfigError::conflict(sentence(error.message(), None)))?;
    flags.apply(&mut config);
    config.validate()?;
    Ok(config)
}

impl Flags {
    fn apply(&self, config: &mut Config) {
        if let Some(models) = &self.models {
            config.models.path.clone_from(models);
        }
        if let Some(listen) = self.listen {
            config.server.listen = listen;
        }
        if let Some(ceiling) = self.ceiling {
            config.memory.ceiling = Some(ceiling);
        }
        if let Some(device) = self.device {
            config.device.kind = device;
        }
    }
}

/// The variables that set a key, in name order so that the first error is always the same one.
fn ours(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut found = Vec::new();
    for (name, text) in environment {
        let Ok(name) = name.into_string() else { continue };
        let elsewhere = NOT_KEYS.contains(&name.as_str()) || is_service_link(&name);
        if !name.starts_with(PREFIX) || elsewhere || text.is_empty() {
            continue;
        }
        let text = text
            .into_string()
            .map_err(|_| ConfigError::variable(&name, "expected UTF-8 text, got other bytes"))?;
        found.push((name, text));
    }
    found.sort_unstable();
    Ok(found)
}

/// Kubernetes puts such variables into every pod beside a service whose name begins with `plimsoll`.
fn is_service_link(name: &str) -> bool {
    !name.contains("__")
        && (["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].iter().any(|part| name.contains(part))
            || name.ends_with("_PORT"))
}

/// The section, key and value that a variable sets.
fn read_variable(name: &str, text: &str) -> Result<(&'static str, &'static str, Value), ConfigError> {
    let keys = keys().into_iter().flat_map(|(section, keys)| keys.iter().map(move |key| (section, *key)));
    let known: Vec<_> = keys.map(|(section, key)| (variable_name(section, key), section, key)).collect();
    let Some((_, section, key)) = known.iter().find(|(known, ..)| known == name) else {
        let offer = nearest(name, known.iter().map(|(known, ..)| known.as_str()))
            .map_or_else(String::new, |right| format!("; did you mean {right}?"));
        return Err(ConfigError::variable(name, format!("unknown variable{offer}")));
    };
    let as_text = Value::String(text.to_owned());
    let first = text.parse().unwrap_or_else(|_| as_text.clone());
    let error = match check(section, key, &first) {
        Ok(()) => return Ok((section, key, first)),
        Err(error) => error,
    };
    match check(section, key, &as_text) {
        Ok(()) => Ok((section, key, as_text)),
        Err(_) => Err(ConfigError::variable(name, error)),
    }
}

/// Whether the key can have this value, whatever the others have.
fn check(section: &str, key: &str, value: &Value) -> Result<(), String> {
    let inner = Table::from_iter([(key.to_owned(), value.clone())]);
    let outer = Table::from_iter([(section.to_owned(), Value::Table(inner))]);
    outer.try_into::<Config>().map(drop).map_err(|error| sentence(error.message(), None))
}

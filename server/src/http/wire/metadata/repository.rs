//! Bodies of the model repository extension: index, load, unload.

use crate::http::wire::text::json_error;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// One model version of the answer of `POST /v2/repository/index`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct IndexEntry {
    /// The model's name.
    pub(crate) name: String,
    /// The version, such as `1`.
    pub(crate) version: String,
    /// Whether it can answer.
    pub(crate) state: ModelState,
    /// Why it is in this state, where there is something to say.
    pub(crate) reason: String,
}

/// Whether a model version can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum ModelState {
    /// Loaded.
    Ready,
    /// Not loaded, or failed to load.
    Unavailable,
    /// On its way in.
    Loading,
}

/// The body of `POST /v2/repository/index`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexRequest {
    /// Whether to list only what can answer.
    pub(crate) ready: bool,
}

/// The body of `POST /v2/repository/models/{model}/load`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadRequest {
    /// Names of the parameters that would load something else than the repository holds: `config` and `file:…`.
    pub(crate) overrides: Vec<String>,
}

/// The body of `POST /v2/repository/models/{model}/unload`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnloadRequest {
    /// Whether models that were loaded for this one's sake go too; no model here has any.
    pub(crate) unload_dependents: bool,
}

/// A body that is not what the repository extension has there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadBody {
    /// Not a JSON object.
    #[error("the body must be empty or a JSON object: {0}")]
    NotAnObject(String),
    /// A member of the wrong type.
    #[error("`{member}` must be {expected}")]
    Kind {
        /// The member's name.
        member: &'static str,
        /// What it must be.
        expected: &'static str,
    },
}

/// A JSON object whose members are read only where they mean something.
type Object<'a> = BTreeMap<String, &'a RawValue>;

impl IndexRequest {
    /// Reads a body, which may be empty.
    ///
    /// # Errors
    /// It is not a JSON object, or `ready` is not a boolean.
    pub(crate) fn parse(body: &[u8]) -> Result<IndexRequest, BadBody> {
        Ok(IndexRequest { ready: flag(&object(body)?, "ready")? })
    }
}

impl LoadRequest {
    /// Reads a body, which may be empty.
    ///
    /// # Errors
    /// It is not a JSON object, or `parameters` is not one.
    pub(crate) fn parse(body: &[u8]) -> Result<LoadRequest, BadBody> {
        let object = object(body)?;
        let overrides = parameters(&object)?.into_keys();
        let overrides = overrides.filter(|name| name == "config" || name.starts_with("file:")).collect();
        Ok(LoadRequest { overrides })
    }
}

impl UnloadRequest {
    /// Reads a body, which may be empty.
    ///
    /// # Errors
    /// It is not a JSON object, `parameters` is not one, or `unload_dependents` is not a boolean.
    pub(crate) fn parse(body: &[u8]) -> Result<UnloadRequest, BadBody> {
        let object = object(body)?;
        Ok(UnloadRequest { unload_dependents: flag(&parameters(&object)?, "unload_dependents")? })
    }
}

fn object(body: &[u8]) -> Result<Object<'_>, BadBody> {
    if body.is_empty() {
        return Ok(Object::new());
    }
    serde_json::from_slice(body).map_err(|error| BadBody::NotAnObject(json_error(&error)))
}

fn parameters<'a>(object: &Object<'a>) -> Result<Object<'a>, BadBody> {
    member(object, "parameters", "an object")
}

fn flag(object: &Object<'_>, name: &'static str) -> Result<bool, BadBody> {
    member(object, name, "true or false")
}

/// Reads a member, or its default where it is absent or null.
fn member<'a, T: Deserialize<'a> + Default>(
    object: &Object<'a>,
    member: &'static str,
    expected: &'static str,
) -> Result<T, BadBody> {
    let Some(raw) = object.get(member) else { return Ok(T::default()) };
    let value: Option<T> = serde_json::from_str(raw.get()).map_err(|_| BadBody::Kind { member, expected })?;
    Ok(value.unwrap_or_default())
}

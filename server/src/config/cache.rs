//! `[cache]`: what is kept on disk between starts.

use super::values;
use serde::Deserialize;
use std::path::PathBuf;

/// Section `[cache]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cache {
    /// Folder for compiled kernels, tuning results and packed weights. Default none: nothing is kept.
    #[serde(deserialize_with = "values::path")]
    pub(crate) dir: Option<PathBuf>,
}

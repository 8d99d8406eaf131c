//! `[models]`: the folder of models and when they are loaded.

use super::values;
use clap::ValueEnum;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;
use std::time::Duration;

/// The shortest time between two looks at the folder.
const MIN_WATCH: Duration = Duration::from_millis(100);

/// Section `[models]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Models {
    /// The folder of models, relative to the working directory. Default `models`.
    #[serde(deserialize_with = "values::path")]
    pub(crate) path: PathBuf,
    /// Which models are loaded at start. Default `all`.
    pub(crate) load: Load,
    /// How often the folder is compared with what is served, at least every 100 ms; `None` (`false` in the
    /// file) is never. Default 2 s. The folder is polled because change notices of the kernel do not cross
    /// container mounts and network file systems.
    #[serde(deserialize_with = "watch")]
    pub(crate) watch: Option<Duration>,
    /// What happens where a version does not fit beside the one that it replaces. Default `keep`.
    pub(crate) replace: Replace,
}

/// Which models are loaded at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Every model of the folder.
    All,
    /// None; each is loaded at its first request.
    OnDemand,
    /// These; the others on an explicit load only.
    Names(Vec<String>),
}

/// What happens where a version does not fit beside the one that it replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Replace {
    /// The load is refused, and the version that serves goes on serving.
    #[default]
    Keep,
    /// The version that serves is unloaded first; until the other is ready, the model is not.
    UnloadFirst,
}

impl Default for Models {
    fn default() -> Self {
        Self {
            path: PathBuf::from("models"),
            load: Load::All,
            watch: Some(Duration::from_secs(2)),
            replace: Replace::default(),
        }
    }
}

impl<'de> Deserialize<'de> for Replace {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        values::choice(from)
    }
}

impl<'de> Deserialize<'de> for Load {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        values::Reader::new("\"all\", \"on_demand\" or a list of names such as [\"digits\"]")
            .text(|text| match text {
                "all" => Some(Self::All),
                "on_demand" => Some(Self::OnDemand),
                _ => None,
            })
            .list(|names| Some(Self::Names(names)))
            .read(from)
    }
}

fn watch<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    values::Reader::new("false or a duration of at least 100ms such as \"2s\"")
        .text(|text| values::parse_duration(text).ok().filter(|every| *every >= MIN_WATCH).map(Some))
        .flag(|on| (!on).then_some(None))
        .read(from)
}

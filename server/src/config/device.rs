//! `[device]`: what computes.

use super::values;
use clap::ValueEnum;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;

/// Section `[device]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Device {
    /// Which kind of device. Default `auto`.
    pub(crate) kind: Kind,
    /// Which device of that kind, counted from 0, at most 255. Default 0.
    #[serde(deserialize_with = "values::count::<_, _, 0, 255>")]
    pub(crate) index: usize,
    /// Folder of CUDA binaries that `plimsoll kernels build` has made. Default none: kernels are compiled at the first
    /// start where NVIDIA's run-time compiler is installed, and kept in `cache.dir`.
    #[serde(deserialize_with = "values::path")]
    pub(crate) kernels: Option<PathBuf>,
    /// CPU threads that one lane computes with, 1 to 1024. Default 1.
    #[serde(deserialize_with = "values::count::<_, _, 1, 1024>")]
    pub(crate) threads: usize,
}

impl Default for Device {
    fn default() -> Self {
        Self { kind: Kind::Auto, index: 0, kernels: None, threads: 1 }
    }
}

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// CUDA where it works, else the CPU with a warning
    Auto,
    /// The CPU
    Cpu,
    /// An NVIDIA GPU; refuses to start without one
    Cuda,
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        values::choice(from)
    }
}

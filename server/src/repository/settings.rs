//! `model.toml`: what one model is served with.

use super::Constant;
use crate::config::{Batching, ConfigError, read_toml, values};
use crate::schedule::{Class, Priority, Services};
use bytesize::ByteSize;
use clap::ValueEnum;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The priority of a model that names none.
pub(crate) const DEFAULT_PRIORITY: u8 = 5;

/// The settings of one model, all optional.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ModelSettings {
    /// Number format to compute with. Default none: fp32.
    pub(crate) precision: Option<Precision>,
    /// Whether each step's kernel is the one that is measured to be the fastest, on a GPU; a rule of thumb chooses otherwise.
    /// Default true.
    pub(crate) tuning: bool,
    /// Most rows that are run together, 1 to 65536. Default none: `max_batch` in `[batching]`.
    #[serde(deserialize_with = "values::count::<_, _, 1, 65536>")]
    pub(crate) max_batch: Option<usize>,
    /// How long a request may wait for a steady lane, and for others to run with it, before a burst lane will do.
    /// Default none: `max_delay` in `[batching]`.
    #[serde(deserialize_with = "values::duration")]
    pub(crate) max_delay: Option<Duration>,
    /// A size, from 1, for each dimension that the model names and leaves open.
    #[serde(deserialize_with = "dims")]
    pub(crate) dims: BTreeMap<String, usize>,
    /// A value for each input that never changes; requests do not bring it.
    pub(crate) constants: BTreeMap<String, Constant>,
    /// Sets of input shapes that are made ready before the first request, each input name → sizes from 1.
    #[serde(deserialize_with = "prepare")]
    pub(crate) prepare: Vec<BTreeMap<String, Vec<usize>>>,
    /// Who gets a free lane when several models wait, 0 to 9, the higher first. Default 5.
    #[serde(deserialize_with = "priority")]
    pub(crate) priority: u8,
    /// The part of the steady lanes' time, 0 to 1, that the model gets before others as long as it has work for it.
    /// Default 0: none.
    #[serde(deserialize_with = "values::share")]
    pub(crate) share: f64,
    /// Never unload this model to make room for another. Default false.
    pub(crate) pin: bool,
    /// The most bytes that the model may hold, of the slab and of host memory. Default none: what is free.
    #[serde(deserialize_with = "values::size_above_zero")]
    pub(crate) memory_limit: Option<ByteSize>,
    /// For an output, the name of each class in the order of its last dimension.
    pub(crate) labels: BTreeMap<String, Vec<String>>,
    /// Requests that may wait, 1 to 65536. Default none: `queue_limit` in `[batching]`.
    #[serde(deserialize_with = "values::count::<_, _, 1, 65536>")]
    pub(crate) queue_limit: Option<usize>,
    /// Longest time from arrival to answer, from 1 ms. Default none: `request_timeout` in `[server]`.
    #[serde(deserialize_with = "values::duration_above_zero")]
    pub(crate) timeout: Option<Duration>,
}

/// Number format to compute with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Precision {
    /// 32-bit floating point
    Fp32,
    /// 32-bit storage, products rounded to 10 bits of mantissa
    Tf32,
    /// 16-bit floating point
    Fp16,
}

impl From<Precision> for plimsoll_engine::fuse::Precision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Fp32 => Self::F32,
            Precision::Tf32 => Self::Tf32,
            Precision::Fp16 => Self::F16,
        }
    }
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            precision: None,
            tuning: true,
            max_batch: None,
            max_delay: None,
            dims: BTreeMap::new(),
            constants: BTreeMap::new(),
            prepare: Vec::new(),
            priority: DEFAULT_PRIORITY,
            share: 0.0,
            pin: false,
            memory_limit: None,
            labels: BTreeMap::new(),
            queue_limit: None,
            timeout: None,
        }
    }
}

impl ModelSettings {
    /// The model as the scheduler sees it, `number` being unlike any other's, with what the defaults say where the
    /// settings do not.
    pub(crate) fn class(&self, number: u64, defaults: &Batching) -> Class {
        Class {
            model: number,
            queue_limit: self.queue_limit.unwrap_or(defaults.queue_limit),
            priority: Priority::new(self.priority),
            share: self.share,
            max_delay: self.max_delay.unwrap_or(defaults.max_delay),
            services: Services::default(),
        }
    }

    /// Most rows that are run together.
    pub(crate) fn max_batch(&self, defaults: &Batching) -> usize {
        self.max_batch.unwrap_or(defaults.max_batch)
    }

    /// Settings from the text of a `model.toml`; `file` is how errors name it.
    ///
    /// # Errors
    /// As [`read_toml`].
    pub(crate) fn read(text: &str, file: &Path) -> Result<Self, ConfigError> {
        read_toml(text, file)
    }
}

impl<'de> Deserialize<'de> for Precision {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        values::choice(from)
    }
}

fn priority<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    values::Reader::new("a whole number from 0 to 9")
        .integer(|number| u8::try_from(number).ok().filter(|number| *number <= 9))
        .read(from)
}

/// A size of an axis, from 1.
#[derive(Deserialize)]
#[serde(transparent)]
struct Size(#[serde(deserialize_with = "values::count::<_, _, 1, { 1 << 32 }>")] usize);

fn dims<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, usize>, D::Error> {
    let dims = BTreeMap::<String, Size>::deserialize(from)?;
    Ok(dims.into_iter().map(|(name, Size(size))| (name, size)).collect())
}

fn prepare<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<BTreeMap<String, Vec<usize>>>, D::Error> {
    let sizes = |shape: Vec<Size>| shape.into_iter().map(|Size(size)| size).collect();
    let set = |shapes: BTreeMap<String, Vec<Size>>| {
        shapes.into_iter().map(|(input, shape)| (input, sizes(shape))).collect()
    };
    Ok(Vec::deserialize(from)?.into_iter().map(set).collect())
}

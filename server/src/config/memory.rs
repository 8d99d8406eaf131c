//! `[memory]`: the ceiling and how it is divided.

use super::{ConfigError, values};
use bytesize::ByteSize;
use plimsoll_engine::error::size;
use serde::{Deserialize, Deserializer};

/// The ceiling where none is configured and enough is available.
const DEFAULT_CEILING: ByteSize = ByteSize::gib(1);

/// The largest share of the ceiling that the reserve may take: beyond it no model has a place.
const MAX_RESERVE_PERCENT: u8 = 90;

/// Section `[memory]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Memory {
    /// Bytes that the whole process may hold on the device; above `headroom` and `reserve` together.
    /// Default none: 1 GiB, or half of what is available at start where that is less.
    #[serde(deserialize_with = "values::size_above_zero")]
    pub(crate) ceiling: Option<ByteSize>,
    /// What weights can never take, kept for bursts and larger batches. Default 10 % of the ceiling.
    pub(crate) reserve: Reserve,
    /// Bytes under the ceiling that are never planned with: they absorb what the process takes after start
    /// outside the slab, such as growth inside the driver and, where device memory is host memory, request
    /// bodies, sockets and logs. Default 64 MiB.
    #[serde(deserialize_with = "values::size")]
    pub(crate) headroom: ByteSize,
}

/// How much is reserved: a size, or a share of the ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// So many bytes.
    Size(ByteSize),
    /// A share of the ceiling in percent, 0 to 90.
    Percent(u8),
}

/// The section with every share and default turned into bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// What the whole process may hold on the device.
    pub(crate) ceiling: ByteSize,
    /// What weights can never take.
    pub(crate) reserve: ByteSize,
    /// What is never planned with.
    pub(crate) headroom: ByteSize,
}

impl Default for Memory {
    fn default() -> Self {
        Self { ceiling: None, reserve: Reserve::Percent(10), headroom: ByteSize::mib(64) }
    }
}

impl Memory {
    /// The limits in bytes on a device where `available_bytes` are free at start.
    ///
    /// # Errors
    /// [`ConfigError::Conflict`] when nothing would be left under the ceiling.
    pub(crate) fn limits(&self, available_bytes: u64) -> Result<Limits, ConfigError> {
        let fallback = || DEFAULT_CEILING.min(ByteSize::b(available_bytes / 2));
        self.under(self.ceiling.unwrap_or_else(fallback))
    }

    /// The limits in bytes under this ceiling.
    pub(super) fn under(&self, ceiling: ByteSize) -> Result<Limits, ConfigError> {
        let headroom = self.headroom;
        let size = |bytes: ByteSize| size(bytes.as_u64());
        if ceiling <= headroom {
            return Err(ConfigError::conflict(format!(
                "memory.ceiling ({}) is not above memory.headroom ({}): nothing is left for models",
                size(ceiling),
                size(headroom)
            )));
        }
        let reserve = self.reserve.of(ceiling);
        let limit = Reserve::Percent(MAX_RESERVE_PERCENT).of(ceiling);
        if reserve > limit {
            return Err(ConfigError::conflict(format!(
                "memory.reserve ({}) is more than {MAX_RESERVE_PERCENT}% of memory.ceiling ({}), which is {}",
                size(reserve),
                size(ceiling),
                size(limit)
            )));
        }
        if reserve.as_u64().saturating_add(headroom.as_u64()) >= ceiling.as_u64() {
            return Err(ConfigError::conflict(format!(
                "memory.reserve ({}) and memory.headroom ({}) leave nothing for models under memory.ceiling ({})",
                size(reserve),
                size(headroom),
                size(ceiling)
            )));
        }
        Ok(Limits { ceiling, reserve, headroom })
    }
}

impl Reserve {
    /// The bytes reserved under this ceiling.
    fn of(self, ceiling: ByteSize) -> ByteSize {
        match self {
            Self::Size(size) => size,
            Self::Percent(percent) => {
                ByteSize::b((u128::from(ceiling.as_u64()) * u128::from(percent) / 100) as u64)
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(share) => {
                let percent = share.trim_end().parse().ok()?;
                (percent <= MAX_RESERVE_PERCENT).then_some(Self::Percent(percent))
            }
            None => values::parse_size(text).ok().map(Self::Size),
        }
    }
}

impl<'de> Deserialize<'de> for Reserve {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        values::Reader::new(format!(
            "a size such as \"200MiB\" or a share of the ceiling from \"0%\" to \"{MAX_RESERVE_PERCENT}%\""
        ))
        .text(Self::parse)
        .integer(|bytes| Some(Self::Size(ByteSize::b(bytes))))
        .read(from)
    }
}

//! `[lanes]`: how many runs happen at once.

use super::values;
use bytesize::ByteSize;
use serde::{Deserialize, Deserializer};

/// Section `[lanes]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Lanes {
    /// Lanes that always exist, 1 to 1024. Default none: as many as fill the cores, see [`Lanes::count`], or two on a
    /// GPU.
    #[serde(deserialize_with = "values::count::<_, _, 1, 1024>")]
    pub(crate) steady: Option<usize>,
    /// Workspace of each lane. Default `auto`.
    pub(crate) workspace: Workspace,
}

/// How large the workspace of a lane is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Workspace {
    /// An eighth of the slab over all steady lanes together.
    #[default]
    Auto,
    /// So many bytes; a request that needs more is refused.
    Size(ByteSize),
}

impl Lanes {
    /// The number of steady lanes where `cores` CPU cores are there and each lane computes with `threads`.
    pub(crate) fn count(&self, cores: usize, threads: usize) -> usize {
        self.steady.unwrap_or_else(|| (cores / threads.max(1)).max(1))
    }

    /// The number of steady lanes on a GPU, which one run at a time can fill.
    pub(crate) fn count_on_gpu(&self) -> usize {
        self.steady.unwrap_or(ON_GPU)
    }
}

/// Lanes of a GPU by default: one computes while the other's inputs and outputs are brought and fetched.
const ON_GPU: usize = 2;

impl<'de> Deserialize<'de> for Workspace {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let sized = |size: ByteSize| (size.as_u64() > 0).then_some(Self::Size(size));
        values::Reader::new("\"auto\" or a size above zero such as \"64MiB\"")
            .text(move |text| match text {
                "auto" => Some(Self::Auto),
                size => values::parse_size(size).ok().and_then(sized),
            })
            .integer(move |bytes| sized(ByteSize::b(bytes)))
            .read(from)
    }
}

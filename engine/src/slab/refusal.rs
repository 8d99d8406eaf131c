//! A refusal, and the sentence that says what would help.

use crate::error::size;

/// A reservation that was refused; the account is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{owner}` needs {}, {}; {}", size(*.needed), room(*.free, *.ceiling, *.bound), self.help())]
pub struct DoesNotFit {
    /// Who asked.
    pub owner: String,
    /// Bytes asked for.
    pub needed: u64,
    /// Bytes that were free: under the ceiling, under `memory.headroom` or under the asker's own cap.
    pub free: u64,
    /// The ceiling, in bytes.
    pub ceiling: u64,
    /// Who else holds how many bytes, largest first.
    pub holders: Vec<(String, u64)>,
    /// What was in the way.
    pub bound: Bound,
    /// What would make it fit, best first; empty where that was not looked for.
    pub remedies: Vec<Remedy>,
}

/// What was in the way of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The sum of the free bytes.
    Sum,
    /// The free bytes suffice, but they lie apart.
    Pieces {
        /// The largest piece, in bytes.
        largest_free: u64,
    },
    /// The host memory that `memory.headroom` leaves.
    Headroom {
        /// In bytes.
        headroom_bytes: u64,
    },
    /// What this owner alone may hold.
    Cap {
        /// In bytes.
        cap_bytes: u64,
    },
}

/// Something that would make a refused reservation fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// A setting that is at least so high.
    Setting {
        /// Its key.
        setting: &'static str,
        /// In bytes.
        bytes: u64,
    },
    /// Bringing the free bytes together.
    Compaction {
        /// Bytes that would be moved.
        moved_bytes: u64,
    },
    /// Unloading all of these.
    Unload(Vec<Unloading>),
    /// Nothing but other lines: even with everyone else unloaded it does not fit.
    OtherLines,
}

/// One who would have to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unloading {
    /// A model's name and version.
    pub owner: String,
    /// Bytes that it holds.
    pub bytes: u64,
    /// How long it has been idle, in milliseconds; filled in by the caller, who has a clock.
    pub idle_ms: Option<u64>,
}

impl DoesNotFit {
    fn help(&self) -> String {
        if self.remedies.is_empty() {
            return unload_any(&self.holders);
        }
        let remedies: Vec<String> = self.remedies.iter().map(Remedy::text).collect();
        format!("fits {}", remedies.join(" or "))
    }
}

impl Remedy {
    fn text(&self) -> String {
        match self {
            Remedy::Setting { setting, bytes } => format!("with {setting} of at least {}", size_up(*bytes)),
            Remedy::Compaction { moved_bytes } => {
                format!("after moving {} of idle weights together", size(*moved_bytes))
            }
            Remedy::Unload(all) => {
                let all: Vec<String> = all.iter().map(Unloading::text).collect();
                format!("after unloading {}", all.join(" and "))
            }
            Remedy::OtherLines => "only with a higher memory.ceiling or a lower memory.reserve".into(),
        }
    }
}

impl Unloading {
    fn text(&self) -> String {
        let idle = self.idle_ms.map_or_else(String::new, |idle_ms| format!(", idle {}", duration(idle_ms)));
        format!("`{}` ({}{idle})", self.owner, size(self.bytes))
    }
}

fn room(free: u64, ceiling: u64, bound: Bound) -> String {
    match bound {
        Bound::Headroom { headroom_bytes } => {
            format!("{} of host memory free of the {} of memory.headroom", size(free), size(headroom_bytes))
        }
        Bound::Sum => format!("{} free under the ceiling of {}", size(free), size(ceiling)),
        Bound::Pieces { largest_free } => format!(
            "{} free under the ceiling of {}, of which {} in one piece",
            size(free),
            size(ceiling),
            size(largest_free)
        ),
        Bound::Cap { cap_bytes } => {
            format!("{} free under its memory_limit of {}", size(free), size(cap_bytes))
        }
    }
}

fn unload_any(holders: &[(String, u64)]) -> String {
    if holders.is_empty() {
        return "no model is loaded that could leave: raise memory.ceiling, or lower memory.reserve".into();
    }
    let three = holders.iter().take(3).map(|(owner, bytes)| format!("`{owner}` ({})", size(*bytes)));
    format!("unload {}, or raise memory.ceiling", three.collect::<Vec<_>>().join(" or "))
}

/// Bytes for a person who will write them down as a setting: never less than they are.
fn size_up(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    match bytes {
        large if large > MIB => format!("{} MiB", large.div_ceil(MIB)),
        small => format!("{} KiB", small.div_ceil(1 << 10)),
    }
}

/// Milliseconds for a person: `12 min`.
fn duration(ms: u64) -> String {
    match ms / 1000 {
        seconds if seconds >= 48 * 3600 => format!("{} days", seconds / (24 * 3600)),
        seconds if seconds >= 2 * 3600 => format!("{} h", seconds / 3600),
        seconds if seconds >= 120 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests;

//! The ledger: every byte of host memory is entered before it is used, by whom and why, and refunded when its holder
//! goes. The slab keeps its own account, of extents.

use super::refusal::{Bound, DoesNotFit, Remedy};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The lines that are drawn once at start. All in bytes; together they are at most the ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// What the whole process may hold.
    pub ceiling: u64,
    /// What the device's driver takes; 0 on the CPU.
    pub driver: u64,
    /// What the process held before the slab was taken (on devices that share memory with it).
    pub process: u64,
    /// What request bodies in memory may take (on devices that share memory with the process).
    pub bodies: u64,
    /// What is kept for staging, host steps, graphs and everything too small for a line of its own. Reservations of
    /// host memory are made from this.
    pub headroom: u64,
    /// The slab: weights, lanes and reserve.
    pub slab: u64,
}

impl Fixed {
    /// What is left for the slab: the ceiling less all other lines, never below zero.
    pub fn for_slab(&self) -> u64 {
        let others = self.driver.saturating_add(self.process).saturating_add(self.bodies);
        self.ceiling.saturating_sub(others.saturating_add(self.headroom))
    }
}

/// What host memory is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What a load takes for a moment.
    Staging,
    /// What is kept of an imported model to prepare it for further shapes.
    Import,
    /// Constants and values of steps that run on the host, and of models that are run whole.
    Host,
}

impl Kind {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Staging => "staging",
            Kind::Import => "import",
            Kind::Host => "host",
        }
    }
}

/// One entry of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who holds the bytes: a model's name and version, as a person knows it.
    pub owner: String,
    /// What for.
    pub kind: Kind,
    /// How many.
    pub bytes: u64,
}

/// The ledger as it stands at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The lines drawn at start.
    pub fixed: Fixed,
    /// Every entry, oldest first.
    pub held: Vec<Held>,
    /// Sum of the entries.
    pub held_bytes: u64,
    /// The highest that sum has been.
    pub peak_bytes: u64,
    /// What can still be reserved.
    pub free_bytes: u64,
}

/// The account itself, shared by all who load models.
#[derive(Debug)]
pub struct Ledger {
    fixed: Fixed,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    held: BTreeMap<u64, Held>,
    next: u64,
    sum: u64,
    peak: u64,
}

impl Ledger {
    /// An empty ledger between the lines of `fixed`.
    pub fn new(fixed: Fixed) -> Arc<Ledger> {
        Arc::new(Ledger { fixed, entries: Mutex::default() })
    }

    /// A ledger that refuses nothing, for tools that run one model without a ceiling.
    pub fn unlimited() -> Arc<Ledger> {
        Ledger::new(Fixed { ceiling: u64::MAX, headroom: u64::MAX, ..Fixed::default() })
    }

    /// Enters `bytes` for `owner` until the reservation is dropped.
    ///
    /// # Errors
    /// Fewer bytes are free; nothing was entered.
    pub fn reserve(
        self: &Arc<Ledger>,
        owner: &str,
        kind: Kind,
        bytes: u64,
    ) -> Result<Reservation, DoesNotFit> {
        let mut entries = self.entries();
        let free = self.fixed.headroom.saturating_sub(entries.sum);
        if bytes > free {
            return Err(DoesNotFit {
                owner: owner.into(),
                needed: bytes,
                free,
                ceiling: self.fixed.ceiling,
                holders: holders(&entries, owner),
                bound: Bound::Headroom { headroom_bytes: self.fixed.headroom },
                remedies: vec![Remedy::Setting {
                    setting: "memory.headroom",
                    bytes: (self.fixed.headroom - free).saturating_add(bytes),
                }],
            });
        }
        let id = entries.next;
        entries.next += 1;
        entries.sum += bytes;
        entries.peak = entries.peak.max(entries.sum);
        entries.held.insert(id, Held { owner: owner.into(), kind, bytes });
        Ok(Reservation { ledger: Arc::clone(self), id, bytes })
    }

    /// What the whole process may hold, in bytes.
    pub fn ceiling(&self) -> u64 {
        self.fixed.ceiling
    }

    /// Bytes that `owner` holds.
    pub fn held_bytes(&self, owner: &str) -> u64 {
        self.entries().held.values().filter(|held| held.owner == owner).map(|held| held.bytes).sum()
    }

    /// The ledger as it stands.
    pub fn account(&self) -> Account {
        let entries = self.entries();
        Account {
            fixed: self.fixed,
            held: entries.held.values().cloned().collect(),
            held_bytes: entries.sum,
            peak_bytes: entries.peak,
            free_bytes: self.fixed.headroom.saturating_sub(entries.sum),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // No code under this lock can panic half way through a change.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn holders(entries: &Entries, asking: &str) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for held in entries.held.values().filter(|held| held.owner != asking) {
        *sums.entry(&held.owner).or_default() += held.bytes;
    }
    let mut holders: Vec<_> = sums.into_iter().map(|(owner, bytes)| (owner.to_string(), bytes)).collect();
    holders.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    holders
}

/// Bytes entered in a [`Ledger`]; dropping it refunds them.
#[derive(Debug)]
pub struct Reservation {
    ledger: Arc<Ledger>,
    id: u64,
    bytes: u64,
}

impl Reservation {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut entries = self.ledger.entries();
        if entries.held.remove(&self.id).is_some() {
            entries.sum -= self.bytes;
        }
    }
}

#[cfg(test)]
mod tests;

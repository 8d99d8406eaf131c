//! The catalogue's entries: a model's versions, the state of each, and what is said of them.

use super::served::Served;
use super::{Found, FoundVersion};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One model of the folder.
pub(super) struct Entry {
    pub(super) found: Found,
    pub(super) slots: BTreeMap<u64, Slot>,
}

/// One version's place.
pub(super) struct Slot {
    pub(super) found: FoundVersion,
    pub(super) state: State,
    /// What serves now, also while its successor is loading.
    pub(super) served: Option<Arc<Served>>,
    /// Its files are gone; it serves until a version that is there does.
    pub(super) leaving: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Unloaded,
    Loading,
    Ready,
    Failed(String),
}

impl Entry {
    pub(super) fn new(found: Found) -> Entry {
        let slots = found.versions.iter().map(|version| (version.version, Slot::new(version))).collect();
        Entry { found, slots }
    }

    /// Takes over what a scan found, and returns the versions that went.
    pub(super) fn update(&mut self, found: Found) -> BTreeMap<u64, Slot> {
        let settings_changed = found.settings_fingerprint != self.found.settings_fingerprint;
        let mut slots = BTreeMap::new();
        for version in &found.versions {
            let before = self.slots.remove(&version.version);
            let mut slot = before.unwrap_or_else(|| Slot::new(version));
            if slot.found != *version || settings_changed {
                slot.found = version.clone();
                slot.state = State::Unloaded;
            }
            slot.leaving = false;
            slots.insert(version.version, slot);
        }
        if slots.values().any(|slot| slot.state != State::Ready) {
            let gone = std::mem::take(&mut self.slots);
            let serving = gone.into_iter().filter(|(_, slot)| slot.served.is_some());
            slots.extend(serving.map(|(version, slot)| (version, Slot { leaving: true, ..slot })));
        }
        self.found = found;
        std::mem::replace(&mut self.slots, slots)
    }

    /// Takes out the versions that only waited for a successor, and returns what served of them.
    pub(super) fn leave(&mut self) -> Vec<Arc<Served>> {
        let left = self.slots.extract_if(.., |_, slot| slot.leaving);
        left.filter_map(|(_, slot)| slot.served).collect()
    }

    pub(super) fn newest(&self) -> Option<Arc<Served>> {
        self.slots.values().rev().find_map(|slot| slot.served.clone())
    }

    /// Why it does not answer, and what would change that; `on_demand` is whether a request loads it.
    pub(super) fn not_ready(&self, name: &str, slot: Option<&Slot>, on_demand: bool) -> NotServed {
        let slot = slot.or_else(|| self.slots.values().next_back());
        let state = slot.map_or(State::Unloaded, |slot| slot.state.clone());
        let reason = match (&state, &self.found.problem) {
            (State::Loading, _) => "it is loading".into(),
            (State::Failed(reason), _) => format!("it could not be loaded: {reason}"),
            (_, Some(problem)) if slot.is_none() => problem.clone(),
            _ if on_demand => "it is not loaded; an inference request loads it".into(),
            _ => format!("it is not loaded; load it by POST /v2/repository/models/{name}/load"),
        };
        let retry_after = Duration::from_secs(if state == State::Loading { 1 } else { 10 });
        NotServed::NotReady { name: name.into(), reason, retry_after }
    }

    pub(super) fn index(&self, name: &str) -> Vec<Indexed> {
        let line = |version: String, state, reason: &str| Indexed {
            name: name.into(),
            version,
            state,
            reason: reason.into(),
        };
        let mut lines: Vec<Indexed> = self
            .slots
            .iter()
            .map(|(version, slot)| {
                let version = version.to_string();
                match (&slot.state, &slot.served) {
                    (_, Some(_)) if slot.leaving => line(
                        version,
                        Availability::Ready,
                        "its files are gone; it serves until another version does",
                    ),
                    // A successor that failed is worth telling, and does not make the version unready.
                    (State::Failed(reason), Some(_)) => line(
                        version,
                        Availability::Ready,
                        &format!("serves as it was; its change could not be loaded: {reason}"),
                    ),
                    (_, Some(_)) => line(version, Availability::Ready, ""),
                    (State::Loading, None) => line(version, Availability::Loading, ""),
                    (State::Failed(reason), None) => line(version, Availability::Unavailable, reason),
                    (_, None) => line(version, Availability::Unavailable, "unloaded"),
                }
            })
            .collect();
        let problem =
            self.found.problem.as_deref().or(self.found.settings.as_ref().err().map(String::as_str));
        if let (true, Some(problem)) = (lines.is_empty(), problem) {
            lines.push(line(String::new(), Availability::Unavailable, problem));
        }
        lines
    }
}

impl Slot {
    fn new(found: &FoundVersion) -> Slot {
        Slot { found: found.clone(), state: State::Unloaded, served: None, leaving: false }
    }
}

/// Why a model does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotServed {
    /// No model of that name.
    #[error("unknown model `{name}`; {}", listed("there are", .known, "there are none"))]
    Unknown { name: String, known: Vec<String> },
    /// No such version.
    #[error("model `{name}` has no version `{version}`; {}", listed("it has", .known, "it has none"))]
    UnknownVersion { name: String, version: String, known: Vec<String> },
    /// Known, and not loaded now.
    #[error("model `{name}` is not ready: {reason}")]
    NotReady { name: String, reason: String, retry_after: Duration },
}

fn listed(before: &str, names: &[String], none: &str) -> String {
    const MOST: usize = 20;
    if names.is_empty() {
        return none.into();
    }
    let more = if names.len() > MOST { format!(" and {} more", names.len() - MOST) } else { String::new() };
    format!("{before} {}{more}", names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", "))
}

/// Whether a version answers, as the repository's index tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    Ready,
    Loading,
    Unavailable,
}

/// One line of the repository's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Indexed {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) state: Availability,
    /// Why it is not ready; empty when it is.
    pub(crate) reason: String,
}

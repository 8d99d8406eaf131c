//! A version that does not fit beside the one that it replaces, which is unloaded first where the operator wants that.

use super::load::LoadFailed;
use super::registry::Registry;
use super::served::{Origin, Served};
use plimsoll_engine::error::Error as EngineError;
use plimsoll_engine::slab::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

impl Registry {
    /// What serves in the place of a version whose load was refused, where the load may succeed without it: the
    /// version as it was before its files changed, and versions whose files are gone.
    pub(super) fn in_the_way(
        &self,
        name: &str,
        version: u64,
        refused: &LoadFailed,
    ) -> Option<Vec<Arc<Served>>> {
        let LoadFailed::Engine(EngineError::DoesNotFit(refusal)) = refused else { return None };
        let old: Vec<Arc<Served>> = {
            let catalogue = self.read();
            let slots = catalogue.get(name)?.slots.iter();
            let replaced = slots.filter(|(number, slot)| **number == version || slot.leaving);
            replaced.filter_map(|(_, slot)| slot.served.clone()).collect()
        };
        let held: u64 = old.iter().map(|old| self.arena.held_by(&old.owner())).sum();
        // What a version replaces does not count against its own cap.
        let capped = matches!(refusal.bound, Bound::Cap { .. });
        let helps = !capped && refusal.needed <= refusal.free.saturating_add(held);
        (helps && !old.is_empty()).then_some(old)
    }

    /// Unloads `old` and loads what was refused beside it; where that fails, the old one again if it can be.
    ///
    /// # Errors
    /// The load failed, and what became of the old one.
    pub(super) async fn load_instead(
        self: &Arc<Self>,
        name: &str,
        origin: Origin,
        old: Vec<Arc<Served>>,
        refused: &LoadFailed,
    ) -> Result<Arc<Served>, LoadFailed> {
        let version = origin.found.version;
        tracing::warn!(model = name, version, %refused, "what serves is unloaded first (models.replace)");
        let before = old.iter().find(|old| old.origin.found == origin.found).map(|old| old.origin.clone());
        self.take_out(name, version, old).await;
        let failed = match self.load_version(name, origin).await {
            Ok(served) => return Ok(served),
            Err(failed) => Box::new(failed),
        };
        let gone = "what served was unloaded for it";
        let then = match before {
            None => format!("{gone}, and cannot be loaded again, for its files were overwritten or removed"),
            Some(before) => match self.load_version(name, before).await {
                Ok(served) => {
                    self.set(name, version, |slot| slot.served = Some(served));
                    format!("{gone}, and has been loaded again")
                }
                Err(error) => format!("{gone}, and could not be loaded again: {error}"),
            },
        };
        Err(LoadFailed::Replacing { failed, then })
    }

    /// Unloads what a version replaces, and waits until the requests that run on it have given its memory back.
    async fn take_out(&self, name: &str, version: u64, old: Vec<Arc<Served>>) {
        self.set(name, version, |slot| slot.served = None);
        if let Some(entry) = self.write().get_mut(name) {
            entry.leave();
        }
        old.iter().for_each(|served| self.unloaded(served));
        let owners: Vec<String> = old.iter().map(|served| served.owner()).collect();
        // No request waits for an answer for longer; one that runs on past its deadline is not waited for.
        let longest = old.iter().map(|served| served.timeout).max().unwrap_or_default();
        drop(old);
        // Memory goes with the last program that runs in it, which tells nobody.
        const LOOK: Duration = Duration::from_millis(2);
        let end = Instant::now() + longest;
        while owners.iter().any(|owner| self.arena.held_by(owner) > 0) && Instant::now() < end {
            sleep(LOOK).await;
        }
    }
}

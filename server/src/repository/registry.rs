//! The catalogue of models and their states: who answers, and what the folder has.

use super::catalogue::{Entry, Indexed, NotServed, Slot, State};
use super::load::LoadFailed;
use super::loader::Loader;
use super::served::{self, Defaults, Served};
use super::{Found, scan};
use crate::config::{Load, Models, Replace};
use crate::metrics::Metrics;
use futures_util::future::BoxFuture;
use plimsoll_engine::arena::Arena;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// The models of one folder.
pub(crate) struct Registry {
    pub(super) root: PathBuf,
    policy: Load,
    pub(super) replace: Replace,
    pub(super) defaults: Defaults,
    pub(super) arena: Arc<Arena>,
    pub(super) metrics: Metrics,
    catalogue: RwLock<BTreeMap<String, Entry>>,
    pub(super) loader: Loader,
    /// One load at a time: two would each count on the bytes that the other takes.
    pub(super) loading: tokio::sync::Mutex<()>,
    pub(super) warm: OnceLock<Warm>,
}

/// First runs of a model version that is about to be ready, on the lanes.
pub(crate) type Warm = Box<dyn Fn(Arc<Served>) -> BoxFuture<'static, ()> + Send + Sync>;

impl Registry {
    /// A catalogue of what lies in the models' folder now; nothing is loaded yet.
    ///
    /// # Errors
    /// The folder cannot be read, or the system refuses the loader's thread.
    pub(crate) fn open(
        models: &Models,
        defaults: Defaults,
        arena: Arc<Arena>,
        metrics: Metrics,
    ) -> std::io::Result<Arc<Registry>> {
        let found = scan(&models.path)?;
        let catalogue = found.into_iter().map(|found| (found.name.clone(), Entry::new(found))).collect();
        let catalogue = RwLock::new(catalogue);
        let registry = Arc::new(Registry {
            root: models.path.clone(),
            policy: models.load.clone(),
            replace: models.replace,
            defaults,
            arena,
            metrics,
            catalogue,
            loader: Loader::start()?,
            loading: Default::default(),
            warm: OnceLock::new(),
        });
        if registry.on_demand() {
            let weak = Arc::downgrade(&registry);
            let evict = move |owner: &str| weak.upgrade().is_some_and(|registry| registry.evict(owner));
            registry.arena.set_evict(Box::new(evict));
        }
        Ok(registry)
    }

    /// Who warms a version before it is ready; the first to be named stays.
    pub(crate) fn set_warm(&self, warm: Warm) {
        let _ = self.warm.set(warm);
    }

    /// Lets a model version go to make room for another; it is loaded again when it is asked for.
    fn evict(&self, owner: &str) -> bool {
        // Dropped without the lock, for which every request would wait.
        let left = self.take_out_owner(owner);
        left.is_some()
    }

    fn take_out_owner(&self, owner: &str) -> Option<Arc<Served>> {
        let mut catalogue = self.write();
        for (name, entry) in catalogue.iter_mut() {
            for (version, slot) in &mut entry.slots {
                if served::owner(name, &version.to_string()) != owner {
                    continue;
                }
                let left = slot.served.take()?;
                slot.state = State::Unloaded;
                tracing::info!(model = name, version, "evicted");
                entry.slots.retain(|_, slot| !slot.leaving || slot.served.is_some());
                return Some(left);
            }
        }
        None
    }

    /// Whether models are loaded when they are first asked for.
    pub(crate) fn on_demand(&self) -> bool {
        matches!(self.policy, Load::OnDemand)
    }

    /// The folder.
    pub(crate) fn root(&self) -> &std::path::Path {
        &self.root
    }

    /// Names that the policy wants loaded without being asked, in name order.
    pub(crate) fn wanted(&self) -> Vec<String> {
        self.read().keys().filter(|name| self.wants(name)).cloned().collect()
    }

    fn wants(&self, name: &str) -> bool {
        match &self.policy {
            Load::All => true,
            Load::OnDemand => false,
            Load::Names(names) => names.iter().any(|wanted| wanted == name),
        }
    }

    /// Names in the policy's list that no folder bears.
    pub(crate) fn missing(&self) -> Vec<String> {
        let catalogue = self.read();
        match &self.policy {
            Load::Names(names) => {
                names.iter().filter(|name| !catalogue.contains_key(*name)).cloned().collect()
            }
            _ => vec![],
        }
    }

    /// The model version that answers now; without a version, the newest that is ready.
    ///
    /// # Errors
    /// There is none of that name or version, or it is not ready.
    pub(crate) fn get(&self, name: &str, version: Option<&str>) -> Result<Arc<Served>, NotServed> {
        let catalogue = self.read();
        let Some(entry) = catalogue.get(name) else {
            return Err(NotServed::Unknown { name: name.into(), known: catalogue.keys().cloned().collect() });
        };
        match version {
            None => entry.newest().ok_or_else(|| entry.not_ready(name, None, self.on_demand())),
            Some(text) => {
                // Only the way in which the metadata write it: `01` is no version.
                let number = text.parse().ok().filter(|number: &u64| number.to_string() == text);
                let slot = number.and_then(|number| entry.slots.get(&number));
                let Some(slot) = slot else {
                    let known = entry.slots.keys().map(u64::to_string).collect();
                    return Err(NotServed::UnknownVersion { name: name.into(), version: text.into(), known });
                };
                slot.served.clone().ok_or_else(|| entry.not_ready(name, Some(slot), self.on_demand()))
            }
        }
    }

    /// The deadline of requests to a model that sets none of its own.
    pub(crate) fn timeout(&self) -> Duration {
        self.defaults.timeout
    }

    /// As [`Registry::get`], loading the model first where the policy says that a request does so.
    ///
    /// # Errors
    /// As [`Registry::get`]; a load that failed says why.
    pub(crate) async fn demand(
        self: &Arc<Self>,
        name: &str,
        version: Option<&str>,
    ) -> Result<Arc<Served>, LoadFailed> {
        match self.get(name, version) {
            Err(NotServed::NotReady { .. }) if self.on_demand() => {
                self.load(name).await?;
                self.get(name, version).map_err(LoadFailed::Unknown)
            }
            other => other.map_err(LoadFailed::Unknown),
        }
    }

    /// Takes note of a model as a scan found it. Versions that changed are outdated, those that went are dropped.
    pub(super) fn found(&self, found: Found) {
        let mut catalogue = self.write();
        let went = match catalogue.get_mut(&found.name) {
            Some(entry) => entry.update(found),
            None => {
                catalogue.insert(found.name.clone(), Entry::new(found));
                Default::default()
            }
        };
        drop(catalogue);
        drop(went);
    }

    /// Takes note that a model's files are gone.
    pub(super) fn gone(&self, name: &str) {
        let went = self.write().remove(name);
        drop(went);
    }

    /// The models as they were last found, in name order.
    pub(super) fn scanned(&self) -> Vec<Found> {
        self.read().values().map(|entry| entry.found.clone()).collect()
    }

    /// Whether a change of this model's files should load it: it is wanted, or it has been loaded before.
    pub(super) fn follows(&self, name: &str) -> bool {
        let serving = |entry: &Entry| entry.slots.values().any(|slot| slot.served.is_some());
        self.wants(name) || self.read().get(name).is_some_and(serving)
    }

    /// Every model and version with its state, in name order.
    pub(crate) fn index(&self) -> Vec<Indexed> {
        let catalogue = self.read();
        catalogue.iter().flat_map(|(name, entry)| entry.index(name)).collect()
    }

    /// Every version that is ready, in name order.
    pub(crate) fn ready(&self) -> Vec<Arc<Served>> {
        let catalogue = self.read();
        let slots = catalogue.values().flat_map(|entry| entry.slots.values());
        slots.filter_map(|slot| slot.served.clone()).collect()
    }

    /// Versions of a model that are ready, as the protocol writes them.
    pub(crate) fn ready_versions(&self, name: &str) -> Vec<String> {
        let catalogue = self.read();
        let slots = catalogue.get(name).into_iter().flat_map(|entry| &entry.slots);
        slots.filter(|(_, slot)| slot.served.is_some()).map(|(version, _)| version.to_string()).collect()
    }

    /// Notes why no version of a model can be loaded.
    pub(super) fn fail(&self, name: &str, reason: &str) {
        if let Some(entry) = self.write().get_mut(name) {
            let there = entry.slots.values_mut().filter(|slot| !slot.leaving);
            there.for_each(|slot| slot.state = State::Failed(reason.into()));
        }
    }

    pub(super) fn set(&self, name: &str, version: u64, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.write().get_mut(name).and_then(|entry| entry.slots.get_mut(&version)) {
            change(slot);
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Entry>> {
        self.catalogue.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Entry>> {
        self.catalogue.write().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The catalogue of models and their states: what is loaded, and the only way to load and unload.

use super::catalogue::{Entry, Indexed, NotServed, Slot, State};
use super::idle::with_idle_times;
use super::loader::Loader;
use super::served::{self, Defaults, Served};
use super::{Found, FoundVersion, ModelSettings, scan, scan_one};
use crate::config::Load;
use crate::metrics::{self, Metrics};
use plimsoll_engine::arena::Arena;
use plimsoll_engine::error::Error as EngineError;
use plimsoll_engine::slab::What;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The models of one folder.
pub(crate) struct Registry {
    root: PathBuf,
    policy: Load,
    pub(super) defaults: Defaults,
    pub(super) arena: Arc<Arena>,
    pub(super) metrics: Metrics,
    catalogue: RwLock<BTreeMap<String, Entry>>,
    pub(super) loader: Loader,
    /// One load at a time: two would each count on the bytes that the other takes.
    loading: tokio::sync::Mutex<()>,
}

/// Why a load did not end in a ready model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadFailed {
    #[error(transparent)]
    Unknown(NotServed),
    #[error("{0}")]
    Settings(String),
    #[error("{0}")]
    Unusable(String),
    #[error(transparent)]
    Engine(EngineError),
    #[error("the load ended without a result")]
    Lost,
}

impl Registry {
    /// A catalogue of what lies in `root` now; nothing is loaded yet.
    ///
    /// # Errors
    /// The folder cannot be read, or the system refuses the loader's thread.
    pub(crate) fn open(
        root: PathBuf,
        policy: Load,
        defaults: Defaults,
        arena: Arc<Arena>,
        metrics: Metrics,
    ) -> std::io::Result<Arc<Registry>> {
        let found = scan(&root)?;
        let catalogue = found.into_iter().map(|found| (found.name.clone(), Entry::new(found))).collect();
        let catalogue = RwLock::new(catalogue);
        let registry = Arc::new(Registry {
            root,
            policy,
            defaults,
            arena,
            metrics,
            catalogue,
            loader: Loader::start()?,
            loading: Default::default(),
        });
        if registry.on_demand() {
            let weak = Arc::downgrade(&registry);
            let evict = move |owner: &str| weak.upgrade().is_some_and(|registry| registry.evict(owner));
            registry.arena.set_evict(Box::new(evict));
        }
        Ok(registry)
    }

    /// Lets a model version go to make room for another; it is loaded again when it is asked for.
    fn evict(&self, owner: &str) -> bool {
        let mut catalogue = self.write();
        for (name, entry) in catalogue.iter_mut() {
            for (version, slot) in &mut entry.slots {
                if served::owner(name, &version.to_string()) != owner || slot.served.take().is_none() {
                    continue;
                }
                slot.state = State::Unloaded;
                tracing::info!(model = name, version, "evicted");
                return true;
            }
        }
        false
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
            None => entry.newest().ok_or_else(|| entry.not_ready(name, None)),
            Some(text) => {
                // Only the way in which the metadata write it: `01` is no version.
                let number = text.parse().ok().filter(|number: &u64| number.to_string() == text);
                let slot = number.and_then(|number| entry.slots.get(&number));
                let Some(slot) = slot else {
                    let known = entry.slots.keys().map(u64::to_string).collect();
                    return Err(NotServed::UnknownVersion { name: name.into(), version: text.into(), known });
                };
                slot.served.clone().ok_or_else(|| entry.not_ready(name, Some(slot)))
            }
        }
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

    /// Loads every version of a model that is not loaded as it lies on disk now. What serves goes on serving until
    /// its successor is ready. The load goes on when the caller does not wait for it.
    ///
    /// # Errors
    /// There is no such model, or its newest version cannot be loaded.
    pub(crate) async fn load(self: &Arc<Self>, name: &str) -> Result<(), LoadFailed> {
        let (registry, name) = (Arc::clone(self), name.to_string());
        let load = tokio::spawn(async move {
            let _turn = registry.loading.lock().await;
            registry.refresh(&name).await?;
            registry.load_versions(&name).await
        });
        load.await.unwrap_or(Err(LoadFailed::Lost))
    }

    /// Looks at the model's folder again, so that a load takes what lies there now.
    async fn refresh(self: &Arc<Self>, name: &str) -> Result<(), LoadFailed> {
        let (root, wanted) = (self.root.clone(), name.to_string());
        let scanned = tokio::task::spawn_blocking(move || scan_one(&root, &wanted));
        let scanned = scanned.await.map_err(|_| LoadFailed::Lost)?;
        let scanned =
            scanned.map_err(|error| LoadFailed::Unusable(format!("{}: {error}", self.root.display())))?;
        let known = || self.read().keys().cloned().collect();
        match scanned {
            Some(found) => self.found(found),
            None => {
                self.gone(name);
                let unknown = NotServed::Unknown { name: name.into(), known: known() };
                return Err(LoadFailed::Unknown(unknown));
            }
        }
        Ok(())
    }

    async fn load_versions(self: &Arc<Self>, name: &str) -> Result<(), LoadFailed> {
        let (work, settings) = match self.outdated(name) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(model = name, %error, "cannot be loaded");
                self.fail(name, &error.to_string());
                return Err(error);
            }
        };
        let mut newest = Ok(());
        for version in work {
            tracing::info!(model = name, version = version.version, "loading");
            self.set(name, version.version, |slot| slot.state = State::Loading);
            let result = self.load_version(name, &version, &settings).await;
            let outcome = if result.is_ok() { "success" } else { "failed" };
            self.metrics.counter(&metrics::LOADS, &[("outcome", outcome.into())]).increment(1);
            match result {
                Ok(served) => {
                    let owner = served.owner();
                    self.arena.record(What::Load, &owner, self.arena.held_by(&owner));
                    tracing::info!(
                        model = name,
                        version = version.version,
                        imported = served.was_imported(),
                        "loaded"
                    );
                    self.set(name, version.version, |slot| {
                        slot.served = Some(Arc::new(served));
                        slot.state = State::Ready;
                    });
                    newest = Ok(());
                }
                Err(error) => {
                    tracing::warn!(model = name, version = version.version, %error, "cannot be loaded");
                    self.set(name, version.version, |slot| slot.state = State::Failed(error.to_string()));
                    newest = Err(error);
                }
            }
        }
        newest
    }

    async fn load_version(
        self: &Arc<Self>,
        name: &str,
        version: &FoundVersion,
        settings: &ModelSettings,
    ) -> Result<Served, LoadFailed> {
        let (registry, name, version, settings) =
            (Arc::clone(self), name.to_string(), version.clone(), settings.clone());
        let load = move || Served::load(&name, &version, &settings, &registry);
        match self.loader.run(load).await {
            Ok(result) => result.map_err(|error| LoadFailed::Engine(with_idle_times(error, &self.ready()))),
            Err(_) => Err(LoadFailed::Lost),
        }
    }

    /// The versions that are not loaded as they lie on disk, oldest first, and the settings to load them with.
    fn outdated(&self, name: &str) -> Result<(Vec<FoundVersion>, ModelSettings), LoadFailed> {
        let catalogue = self.read();
        let Some(entry) = catalogue.get(name) else { return Err(LoadFailed::Lost) };
        if entry.slots.is_empty() {
            let problem = entry.found.problem.clone().unwrap_or_else(|| "it has no version".into());
            return Err(LoadFailed::Unusable(format!("model `{name}` cannot be loaded: {problem}")));
        }
        let settings = entry.found.settings.clone().map_err(LoadFailed::Settings)?;
        let outdated = entry.slots.values().filter(|slot| slot.state != State::Ready);
        Ok((outdated.map(|slot| slot.found.clone()).collect(), settings))
    }

    /// Stops serving a model; requests under way keep what they hold until they are answered.
    ///
    /// # Errors
    /// There is no such model.
    pub(crate) async fn unload(&self, name: &str) -> Result<(), NotServed> {
        // After any load under way, which would otherwise bring the model back.
        let _turn = self.loading.lock().await;
        let mut catalogue = self.write();
        let Some(entry) = catalogue.get_mut(name) else {
            return Err(NotServed::Unknown { name: name.into(), known: catalogue.keys().cloned().collect() });
        };
        for slot in entry.slots.values_mut() {
            if let Some(served) = slot.served.take() {
                let owner = served.owner();
                self.arena.record(What::Unload, &owner, self.arena.held_by(&owner));
            }
            slot.state = State::Unloaded;
        }
        tracing::info!(model = name, "unloaded");
        Ok(())
    }

    /// Takes note of a model as a scan found it. Versions that changed are outdated, those that went are dropped.
    pub(super) fn found(&self, found: Found) {
        let mut catalogue = self.write();
        match catalogue.get_mut(&found.name) {
            Some(entry) => entry.update(found),
            None => {
                catalogue.insert(found.name.clone(), Entry::new(found));
            }
        }
    }

    /// Takes note that a model's files are gone.
    pub(super) fn gone(&self, name: &str) {
        self.write().remove(name);
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
    fn fail(&self, name: &str, reason: &str) {
        if let Some(entry) = self.write().get_mut(name) {
            entry.slots.values_mut().for_each(|slot| slot.state = State::Failed(reason.into()));
        }
    }

    fn set(&self, name: &str, version: u64, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.write().get_mut(name).and_then(|entry| entry.slots.get_mut(&version)) {
            change(slot);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Entry>> {
        self.catalogue.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Entry>> {
        self.catalogue.write().unwrap_or_else(PoisonError::into_inner)
    }
}

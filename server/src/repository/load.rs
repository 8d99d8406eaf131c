//! The only way to load and unload: one model at a time, each version warm before it is ready.

use super::catalogue::{NotServed, State};
use super::idle::with_idle_times;
use super::registry::Registry;
use super::served::{Origin, Served};
use super::{FoundVersion, ModelSettings, scan_one};
use crate::config::Replace;
use crate::metrics;
use plimsoll_engine::error::Error as EngineError;
use plimsoll_engine::slab::What;
use std::sync::Arc;

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
    /// After the version that served was unloaded for it.
    #[error("{failed}; {then}")]
    Replacing { failed: Box<LoadFailed>, then: String },
    #[error("the load ended without a result")]
    Lost,
}

impl Registry {
    /// Loads every version of a model that is not loaded as it lies on disk now. What serves goes on serving until
    /// its successor is ready, where memory has room for both. The load goes on when the caller does not wait for it.
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
        let settings = Arc::new(settings);
        let mut newest = Ok(());
        for found in work {
            let version = found.version;
            tracing::info!(model = name, version, "loading");
            self.set(name, version, |slot| slot.state = State::Loading);
            let origin = Origin { found, settings: Arc::clone(&settings) };
            let mut result = self.load_version(name, origin.clone()).await;
            if let (Err(refused), Replace::UnloadFirst) = (&result, self.replace)
                && let Some(old) = self.in_the_way(name, version, refused)
            {
                result = self.load_instead(name, origin, old, refused).await;
            }
            let outcome = if result.is_ok() { "success" } else { "failed" };
            self.metrics.counter(&metrics::LOADS, &[("outcome", outcome.into())]).increment(1);
            newest = match result {
                Ok(served) => {
                    self.enter(name, version, served);
                    Ok(())
                }
                Err(error) => {
                    tracing::warn!(model = name, version, %error, "cannot be loaded");
                    self.set(name, version, |slot| slot.state = State::Failed(error.to_string()));
                    Err(error)
                }
            };
        }
        if newest.is_ok() {
            self.leave(name);
        }
        newest
    }

    /// Loads and warms what is not yet in the catalogue.
    pub(super) async fn load_version(
        self: &Arc<Self>,
        name: &str,
        origin: Origin,
    ) -> Result<Arc<Served>, LoadFailed> {
        let (registry, owned) = (Arc::clone(self), name.to_string());
        let served = match self.loader.run(move || Served::load(&owned, origin, &registry)).await {
            Ok(Ok(served)) => Arc::new(served),
            Ok(Err(error)) => return Err(LoadFailed::Engine(with_idle_times(error, &self.ready()))),
            Err(_) => return Err(LoadFailed::Lost),
        };
        if let Some(warm) = self.warm.get() {
            warm(Arc::clone(&served)).await;
        }
        Ok(served)
    }

    /// From now on this answers.
    fn enter(&self, name: &str, version: u64, served: Arc<Served>) {
        let owner = served.owner();
        self.arena.record(What::Load, &owner, self.arena.held_by(&owner));
        tracing::info!(model = name, version, imported = served.was_imported(), "loaded");
        let mut changing = Some(served);
        self.set(name, version, |slot| {
            std::mem::swap(&mut slot.served, &mut changing);
            // A change that was seen meanwhile has left it outdated.
            if slot.state == State::Loading {
                slot.state = State::Ready;
            }
        });
        // What served before goes without the catalogue's lock, for which every request would wait.
        drop(changing);
        self.leave(name);
    }

    /// Lets those versions go that only waited for a successor.
    fn leave(&self, name: &str) {
        let left = self.write().get_mut(name).map(|entry| entry.leave()).unwrap_or_default();
        left.iter().for_each(|served| self.unloaded(served));
    }

    /// Enters in the memory's history that a version goes.
    pub(super) fn unloaded(&self, served: &Served) {
        let owner = served.owner();
        self.arena.record(What::Unload, &owner, self.arena.held_by(&owner));
        tracing::info!(model = served.name, version = served.version, "unloaded");
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
        let outdated = entry.slots.values().filter(|slot| !slot.leaving && slot.state != State::Ready);
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
        let mut left = entry.leave();
        for slot in entry.slots.values_mut() {
            left.extend(slot.served.take());
            slot.state = State::Unloaded;
        }
        drop(catalogue);
        left.iter().for_each(|served| self.unloaded(served));
        Ok(())
    }
}

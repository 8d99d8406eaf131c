//! A model version that is ready: the engine's model, and what the server knows about serving it.

use super::batches::{self, Batches};
use super::fitting::{check_labels, first_shapes, narrowing};
use super::loader::Loader;
use super::meters::Meters;
use super::registry::Registry;
use super::stats::Stats;
use super::{FoundVersion, ModelSettings};
use crate::config::Batching;
use crate::schedule::{Class, Runs, Services};
use lru::LruCache;
use plimsoll_engine::cache::Cache;
use plimsoll_engine::error::Error;
use plimsoll_engine::import::{Dim, Signature};
use plimsoll_engine::model::{Limits, Model, Source};
use plimsoll_engine::program::Program;
use plimsoll_engine::slab::Terms;
use plimsoll_engine::tensor::{Shape, Tensor};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a model gets that its own settings do not name.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    /// Batching and queueing.
    pub(crate) batching: Batching,
    /// Longest time from a request's head to its answer.
    pub(crate) timeout: Duration,
    /// The engine's limits on every model.
    pub(crate) limits: Limits,
    /// Where imported graphs and packed weights are kept between starts.
    pub(crate) cache: Option<Arc<Cache>>,
}

/// A model version that is ready to serve.
pub(crate) struct Served {
    /// The model's name.
    pub(crate) name: String,
    /// The version, as the protocol writes it.
    pub(crate) version: String,
    /// Longest time from a request's head to its answer.
    pub(crate) timeout: Duration,
    /// What it has done.
    pub(crate) stats: Stats,
    /// Class names of outputs.
    pub(crate) labels: BTreeMap<String, Vec<String>>,
    /// What it was loaded from.
    pub(super) origin: Origin,
    model: Arc<Model>,
    /// Whom it is to the scheduler: another than at an earlier load of the same version.
    class: Arc<Class>,
    /// `None` where requests run one by one.
    batches: Option<Batches>,
    /// How long runs take, by the input shapes without what is the number of rows.
    services: Mutex<LruCache<Vec<Shape>, Arc<Services>>>,
    meters: Meters,
    loader: Loader,
}

/// What a version is loaded from.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) found: FoundVersion,
    pub(super) settings: Arc<ModelSettings>,
}

impl Served {
    /// Loads a version: import, prepared shapes, everything but the entry in the catalogue. Takes seconds; to be
    /// called where blocking is allowed.
    ///
    /// # Errors
    /// The model cannot be imported, prepared for the shapes that its settings name, or does not fit.
    pub(super) fn load(name: &str, origin: Origin, registry: &Registry) -> Result<Served, Error> {
        let Origin { found, settings } = &origin;
        let Registry { defaults, arena, metrics, .. } = registry;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let owner = owner(name, &found.version.to_string());
        let terms = Terms {
            priority: settings.priority,
            pinned: settings.pin,
            cap_bytes: settings.memory_limit.map(|limit| limit.as_u64()),
        };
        let narrowing = narrowing(settings);
        let within = Some(registry.root());
        let source =
            Source { path: &found.file, within, narrowing: &narrowing, cache: defaults.cache.as_ref() };
        let precision = settings.precision.map_or(defaults.limits.precision, Into::into);
        let max_batch = settings.max_batch(&defaults.batching);
        let batches = (max_batch > 1).then(|| Batches::new(max_batch));
        let most = batches.as_ref().and_then(|_| NonZeroUsize::new(Batches::programs(max_batch)));
        let programs = most.unwrap_or(defaults.limits.programs);
        let limits = Limits { precision, programs, tuning: settings.tuning, ..defaults.limits };
        let model = Model::load(&source, &owner, limits, terms, arena)?;
        if model.precision() != precision {
            let (asked, used) = (precision.name(), model.precision().name());
            tracing::warn!(
                model = name,
                asked,
                used,
                "the device does not compute in the precision of model.toml"
            );
        }
        check_labels(model.signature(), settings)?;
        let services = Mutex::new(LruCache::new(SHAPES));
        for shapes in first_shapes(model.signature(), settings)? {
            model.program(&shapes).map_err(unasked)?;
            if let Some(batches) = &batches {
                batches.prepare(&shapes, &services_of(&services, &shapes), &model);
            }
        }
        let class = settings.class(NEXT.fetch_add(1, Ordering::Relaxed), &defaults.batching);
        Ok(Served {
            name: name.into(),
            version: found.version.to_string(),
            timeout: settings.timeout.unwrap_or(defaults.timeout),
            stats: Stats::default(),
            labels: settings.labels.clone(),
            origin: origin.clone(),
            model: Arc::new(model),
            class: Arc::new(class),
            batches,
            services,
            meters: Meters::new(metrics, name, found.version),
            loader: registry.loader.clone(),
        })
    }

    /// The name under which the ledger holds its bytes.
    pub(crate) fn owner(&self) -> String {
        owner(&self.name, &self.version)
    }

    /// Whether the model's file was imported, and not all of it found in the cache.
    pub(crate) fn was_imported(&self) -> bool {
        self.model.was_imported()
    }

    /// What the model takes and gives.
    pub(crate) fn signature(&self) -> &Signature {
        self.model.signature()
    }

    /// The model as the scheduler sees it.
    pub(crate) fn class(&self) -> &Arc<Class> {
        &self.class
    }

    /// How long runs of a program's shapes take.
    pub(crate) fn services(&self, program: &Program) -> Arc<Services> {
        services_of(&self.services, program.shapes())
    }

    /// The programs that are prepared.
    pub(crate) fn prepared(&self) -> Vec<Arc<Program>> {
        self.model.programs()
    }

    /// What these inputs can be run by, and their rows; a program that is not ready is prepared by the loader.
    ///
    /// # Errors
    /// As [`Model::program`].
    pub(crate) async fn runs(&self, inputs: &[Tensor]) -> Result<(Arc<Runs>, usize), Error> {
        let shapes: Vec<Shape> = inputs.iter().map(|tensor| tensor.shape().into()).collect();
        let services = || services_of(&self.services, &shapes);
        let batches = self.batches.as_ref();
        let open = batches.and_then(|batches| batches.runs(&shapes, services, &self.model, &self.loader));
        if let Some(open) = open {
            return Ok(open);
        }
        let program = match self.program(&shapes).await {
            // What groups hold may be what is missing.
            Err(Error::DoesNotFit(_)) if self.batches.as_ref().is_some_and(Batches::clear) => {
                self.program(&shapes).await
            }
            found => found,
        };
        let rows = self.rows_of_shapes(inputs.iter().map(Tensor::shape));
        Ok((Arc::new(Runs::alone(rows, program?, services())), rows))
    }

    /// As [`Served::runs`], from what is ready.
    pub(crate) fn ready_runs(&self, shapes: &[Shape]) -> Option<(Arc<Runs>, usize)> {
        if let Some(open) = self.batches.as_ref().and_then(|batches| batches.open(shapes)) {
            return Some(open);
        }
        let program = self.model.ready_program(shapes)?;
        let rows = self.rows_of_shapes(shapes.iter().map(|shape| shape.as_slice()));
        Some((Arc::new(Runs::alone(rows, program, services_of(&self.services, shapes))), rows))
    }

    async fn program(&self, shapes: &[Shape]) -> Result<Arc<Program>, Error> {
        if let Some(program) = self.model.ready_program(shapes) {
            return Ok(program);
        }
        let (model, shapes) = (Arc::clone(&self.model), shapes.to_vec());
        let prepared = self.loader.run(move || model.program(&shapes)).await;
        prepared.unwrap_or_else(|_| {
            Err(Error::Panicked { reason: "the preparation ended without a result".into() })
        })
    }

    /// Rows that a run of these input shapes infers: the first axis where that is open, else one.
    fn rows_of_shapes<'a>(&self, mut shapes: impl Iterator<Item = &'a [usize]>) -> usize {
        let open = |dims: &Vec<Dim>| dims.first().is_some_and(|dim| !matches!(dim, Dim::Fixed(_)));
        let first = self.signature().inputs.first().and_then(|port| port.dims.as_ref());
        match (first.is_some_and(open), shapes.next().and_then(|shape| shape.first())) {
            (true, Some(&rows)) => rows,
            _ => 1,
        }
    }

    /// Rows that a run of this program infers.
    pub(crate) fn rows_of(&self, program: &Program) -> usize {
        self.rows_of_shapes(program.shapes().iter().map(|shape| shape.as_slice()))
    }

    /// Enters a finished request in the metrics.
    pub(crate) fn measured(&self, spent: &super::stats::Spent, received: usize, sent: usize) {
        self.meters.measured(spent, received, sent);
    }

    /// Counts an outcome of a request.
    pub(crate) fn outcome(&self, outcome: &str) {
        self.meters.outcome(outcome);
    }
}

/// Sets of shapes of which it is remembered how long their runs take.
const SHAPES: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Nobody has sent the shapes that a load makes ready, so to send smaller ones is no remedy.
fn unasked(error: Error) -> Error {
    match error {
        Error::Workspace { shapes, needed_bytes, lane_bytes } => {
            Error::PreparedWorkspace { shapes, needed_bytes, lane_bytes }
        }
        other => other,
    }
}

fn services_of(known: &Mutex<LruCache<Vec<Shape>, Arc<Services>>>, shapes: &[Shape]) -> Arc<Services> {
    let rests = batches::rows(shapes.iter().map(|shape| shape.as_slice()));
    let key = rests.map_or_else(|| shapes.to_vec(), |(_, rests)| rests);
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(known.get_or_insert(key, Arc::default))
}

/// The name under which the ledger holds a version's bytes.
pub(crate) fn owner(model: &str, version: &str) -> String {
    format!("{model}:{version}")
}

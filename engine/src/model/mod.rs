//! A model file under the ledger: its signature, and programs for the shapes that are asked for.

mod origin;

pub use origin::Source;

use crate::arena::Arena;
use crate::device::{Constants, Manner, Null, Pick, Runnable};
use crate::error::{Error, shapes_text};
use crate::fuse::{Fused, Precision, Preferences, fuse};
use crate::graph::Graph;
use crate::import::{Lowered, Signature, caught};
use crate::plan::layout;
use crate::program::{Executor, Program};
use crate::slab::{Agreement, Kind, Reservation, Terms};
use crate::tensor::Shape;
use lru::LruCache;
use origin::Origin;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits on what a model may prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Programs kept, one a set of input shapes; the least recently used leaves for the next. Default 16.
    pub programs: NonZeroUsize,
    /// Threads inside an op; programs are planned for so many. Default 1.
    pub threads: usize,
    /// How numbers are stored and multiplied, on devices that know that; f32 on the others. Default f32.
    pub precision: Precision,
    /// What a run computes. Default the model, as planned.
    pub compute: Compute,
    /// Whether each step's kernel is the one that is measured to be the fastest, on devices that have several for it.
    /// Default true.
    pub tuning: bool,
}

/// What the runs of a model compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compute {
    /// The model, step by step as planned; as tract's own plan only where it cannot be planned.
    #[default]
    Planned,
    /// tract's own plan of the model, whole: the reference that planned programs are compared with.
    Whole,
    /// Nothing; outputs are zeros. What a run takes then is the time of whoever asks for it.
    Nothing,
}

impl Default for Limits {
    fn default() -> Self {
        const SIXTEEN: NonZeroUsize = NonZeroUsize::new(16).unwrap();
        Limits {
            programs: SIXTEEN,
            threads: 1,
            precision: Precision::F32,
            compute: Compute::Planned,
            tuning: true,
        }
    }
}

/// A loaded model.
pub struct Model {
    owner: String,
    origin: Origin,
    limits: Limits,
    arena: Arc<Arena>,
    programs: Mutex<LruCache<Vec<Shape>, Arc<Program>>>,
    /// Held while a program is prepared, so that two callers do not prepare the same one.
    preparing: Mutex<()>,
    /// Packed constants, shared by the programs.
    constants: Constants,
    range: Mutex<Range>,
    _terms: Option<Agreement>,
}

impl Model {
    /// Loads a model; what it will hold is entered under the name `owner`, on these terms.
    ///
    /// # Errors
    /// The file cannot be imported, or the import does not fit; nothing is held then.
    pub fn load(
        source: &Source<'_>,
        owner: &str,
        limits: Limits,
        terms: Terms,
        arena: &Arc<Arena>,
    ) -> Result<Model, Error> {
        let terms = arena.agree(owner, terms);
        // What is run whole is tract's, and not to be written down.
        let source = Source { cache: source.cache.filter(|_| limits.compute != Compute::Whole), ..*source };
        Ok(Model {
            owner: owner.into(),
            origin: Origin::open(&source, owner, arena)?,
            limits,
            arena: Arc::clone(arena),
            programs: Mutex::new(LruCache::new(limits.programs)),
            preparing: Mutex::new(()),
            constants: arena.device().constants(),
            range: Mutex::default(),
            _terms: terms,
        })
    }

    /// The name under which the ledger holds its bytes.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// What the model takes and gives.
    pub fn signature(&self) -> &Arc<Signature> {
        self.origin.signature()
    }

    /// How the model's numbers are stored and multiplied.
    pub fn precision(&self) -> Precision {
        self.preferences().precision
    }

    /// Whether the file was imported, and not everything found in the cache.
    pub fn was_imported(&self) -> bool {
        self.origin.was_imported()
    }

    /// Bytes of the weights that the import holds in memory; 0 where no import was needed.
    pub fn imported_bytes(&self) -> usize {
        self.origin.imported_bytes()
    }

    /// The programs that are ready.
    pub fn programs(&self) -> Vec<Arc<Program>> {
        lock(&self.programs).iter().map(|(_, program)| Arc::clone(program)).collect()
    }

    /// The program for these shapes if it is ready; never prepares, so it takes microseconds.
    pub fn ready_program(&self, shapes: &[Shape]) -> Option<Arc<Program>> {
        lock(&self.programs).get(shapes).cloned()
    }

    /// The program for these shapes, prepared now if need be, which can take seconds.
    ///
    /// # Errors
    /// A shape is not what its input takes, the model cannot be prepared for it, or the program's workspace is
    /// larger than a lane's or does not fit under the ceiling.
    pub fn program(&self, shapes: &[Shape]) -> Result<Arc<Program>, Error> {
        let _one_at_a_time = lock(&self.preparing);
        if let Some(program) = self.ready_program(shapes) {
            return Ok(program);
        }
        let (executor, host) = self.executor(shapes)?;
        let arena = Arc::clone(&self.arena);
        let signature = Arc::clone(self.signature());
        let program = Program::new(&self.owner, signature, shapes.to_vec(), executor, arena, host);
        let program = Arc::new(program);
        lock(&self.programs).put(shapes.to_vec(), Arc::clone(&program));
        Ok(program)
    }

    /// The graph that is planned for these shapes and what fusion did to it, for reports: lowered anew, since programs
    /// do not keep it. `None` where the model is run whole.
    ///
    /// # Errors
    /// As for [`Model::program`], as far as the import goes.
    pub fn fused(&self, shapes: &[Shape]) -> Result<Option<Fused>, Error> {
        let grant = self.origin.grant();
        match self.origin.import()?.import.lowered(shapes, self.whole(), &grant)?.0 {
            Lowered::Graph(graph) => Ok(Some(fuse(graph, &self.preferences()))),
            Lowered::Whole(..) => Ok(None),
        }
    }

    /// The graph of [`Model::fused`].
    ///
    /// # Errors
    /// As there.
    pub fn graph(&self, shapes: &[Shape]) -> Result<Option<Graph>, Error> {
        Ok(self.fused(shapes)?.map(|fused| fused.graph))
    }

    /// What the device does well, at the model's precision where the device knows it.
    fn preferences(&self) -> Preferences {
        let device = self.arena.device();
        let precision = self.limits.precision;
        let precision = if device.computes_in(precision) { precision } else { Precision::F32 };
        Preferences { precision, wide: lock(&self.range).wide.clone(), ..device.preferences() }
    }

    fn whole(&self) -> bool {
        self.limits.compute == Compute::Whole
    }

    /// What computes for these shapes, and the host memory that it holds. Where f16 has no room for what a step makes, that
    /// step and those that need it are made anew in f32.
    fn executor(&self, shapes: &[Shape]) -> Result<(Executor, Option<Reservation>), Error> {
        for _ in 0..WIDENINGS {
            match self.attempt(shapes)? {
                Attempt::Made(executor, host) => return Ok((executor, host)),
                Attempt::Beyond(names) => lock(&self.range).wide.extend(names),
            }
        }
        lock(&self.range).known = true;
        match self.attempt(shapes)? {
            Attempt::Made(executor, host) => Ok((executor, host)),
            Attempt::Beyond(_) => Err(Error::Fault { reason: "a range that is known was looked for".into() }),
        }
    }

    fn attempt(&self, shapes: &[Shape]) -> Result<Attempt, Error> {
        let preferences = self.preferences();
        if let Some(graph) = self.origin.kept_graph(shapes, &preferences) {
            match self.planned(graph, shapes) {
                // Weights that were kept are gone: they are imported again.
                Err(Error::Weights { .. }) => {}
                made => return made,
            }
        }
        let imported = self.origin.import()?;
        let (lowered, staging) = imported.import.lowered(shapes, self.whole(), &self.origin.grant())?;
        let graph = match lowered {
            Lowered::Graph(graph) => graph,
            Lowered::Whole(reference, reason) => {
                drop(staging);
                let reason = reason.map(|why| format!("node `{}`: {}", why.node, why.reason));
                let bytes = reference.constant_bytes + reference.live_peak_bytes;
                let host = self.reserve(bytes as u64)?;
                return Ok(Attempt::Made(Executor::Whole(reference, reason), host));
            }
        };
        let Fused { graph, .. } = fuse(graph, &preferences);
        let record = self.origin.record(&graph);
        let made = self.planned(graph, shapes)?;
        // What constants were only in the graph are in the slab now.
        drop(staging);
        if let (Some(record), Attempt::Made(..)) = (record, &made) {
            self.origin.keep_graph(shapes, &preferences, &record, self.limits.programs.get());
        }
        Ok(made)
    }

    /// Plans a fused graph and brings its constants into the slab.
    fn planned(&self, graph: Graph, shapes: &[Shape]) -> Result<Attempt, Error> {
        let layout = layout(&graph);
        let host = self.reserve(layout.host_bytes())?;
        let Limits { threads, tuning, .. } = self.limits;
        let pick = if tuning { Pick::Fastest } else { Pick::Nth(0) };
        let manner = Manner { precision: self.preferences().precision, threads, pick };
        let prepared = self.arena.device().prepare(graph, layout, manner)?;
        let needed = prepared.plan().workspace_bytes;
        if let Some(lane_bytes) = self.arena.largest_workspace().filter(|bytes| needed > *bytes) {
            return Err(self.too_large(shapes, needed as usize, lane_bytes as usize));
        }
        let room = |bytes| self.arena.room(&self.owner, bytes);
        let program = prepared.finish(&self.constants, self.origin.kept().as_ref(), &room)?;
        if let Some(names) = self.beyond(&*program)? {
            return Ok(Attempt::Beyond(names));
        }
        let program = match self.limits.compute {
            Compute::Nothing => Box::new(Null::of(program)),
            _ => program,
        };
        Ok(Attempt::Made(Executor::Planned(program), host))
    }

    /// Steps for whose results f16 has no room, unless it is known by now which those are.
    fn beyond(&self, program: &dyn Runnable) -> Result<Option<Vec<String>>, Error> {
        if self.preferences().precision != Precision::F16 || lock(&self.range).known {
            return Ok(None);
        }
        let room = |bytes| self.arena.spare_room(&self.owner, bytes);
        // What panics on noise says nothing of what clients send.
        let found = caught(|| program.beyond_range(&room, self.arena.tick()));
        let Some(mut names) = found.unwrap_or(Ok(None))? else { return Ok(None) };
        let mut range = lock(&self.range);
        names.retain(|name| !range.wide.contains(name));
        range.known = names.is_empty();
        Ok((!names.is_empty()).then_some(names))
    }

    /// Host memory, letting the model's own least recently used programs go where that helps.
    fn reserve(&self, bytes: u64) -> Result<Option<Reservation>, Error> {
        if bytes == 0 {
            return Ok(None);
        }
        loop {
            match self.arena.reserve(&self.owner, Kind::Host, bytes) {
                Ok(held) => return Ok(Some(held)),
                Err(refusal) if lock(&self.programs).pop_lru().is_none() => return Err(refusal.into()),
                Err(_) => {}
            }
        }
    }

    fn too_large(&self, shapes: &[Shape], needed_bytes: usize, lane_bytes: usize) -> Error {
        let names = self.signature().inputs.iter().map(|port| port.name.as_str());
        Error::Workspace { shapes: shapes_text(names, shapes), needed_bytes, lane_bytes }
    }
}

/// How often more of a model is made f32 than before.
const WIDENINGS: usize = 4;

/// What came of preparing a program.
enum Attempt {
    Made(Executor, Option<Reservation>),
    /// These steps have to store f32.
    Beyond(Vec<String>),
}

/// What f16 has no room for.
#[derive(Default)]
struct Range {
    /// The names of nodes whose results are stored as f32.
    wide: BTreeSet<String>,
    /// Whether it was seen that those are all.
    known: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole between statements: a panic elsewhere cannot have left it half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

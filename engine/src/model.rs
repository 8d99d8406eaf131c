//! A model file under the ledger: its signature, and programs for the shapes that are asked for.

use crate::error::{Error, shapes_text};
use crate::import::{Import, Narrowing, Signature};
use crate::program::Program;
use crate::slab::{DoesNotFit, Kind, Ledger, Reservation};
use crate::tensor::Shape;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits on what a model may prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Programs kept, one a set of input shapes; the least recently used leaves for the next. Default 16.
    pub programs: NonZeroUsize,
    /// Bytes of workspace that a lane has; `None` where only the ceiling limits it. Default `None`.
    pub workspace_bytes: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        const SIXTEEN: NonZeroUsize = NonZeroUsize::new(16).unwrap();
        Limits { programs: SIXTEEN, workspace_bytes: None }
    }
}

/// A loaded model.
pub struct Model {
    owner: String,
    import: Import,
    signature: Arc<Signature>,
    limits: Limits,
    ledger: Arc<Ledger>,
    programs: Mutex<LruCache<Vec<Shape>, Arc<Program>>>,
    /// Held while a program is prepared, so that two callers do not prepare the same one.
    preparing: Mutex<()>,
    _weights: Reservation,
}

impl Model {
    /// Imports the file at `path` and enters its weights in the ledger under the name `owner`.
    ///
    /// # Errors
    /// The file cannot be imported, or its weights do not fit under the ceiling; nothing is held then.
    pub fn load(
        path: &Path,
        owner: &str,
        narrowing: &Narrowing,
        limits: Limits,
        ledger: &Arc<Ledger>,
    ) -> Result<Model, Error> {
        // The file's length is about what the import takes: what cannot fit is refused before it is read.
        let length =
            std::fs::metadata(path).map_err(|source| Error::Read { path: path.into(), source })?.len();
        let staging = ledger.reserve(owner, Kind::Weights, length)?;
        let import = Import::open(path, narrowing, ledger.account().fixed.for_models())?;
        drop(staging);
        let weights = ledger.reserve(owner, Kind::Weights, import.weights_bytes() as u64)?;
        let signature = Arc::new(import.signature().clone());
        Ok(Model {
            owner: owner.into(),
            import,
            signature,
            limits,
            ledger: Arc::clone(ledger),
            programs: Mutex::new(LruCache::new(limits.programs)),
            preparing: Mutex::new(()),
            _weights: weights,
        })
    }

    /// What the model takes and gives.
    pub fn signature(&self) -> &Arc<Signature> {
        &self.signature
    }

    /// Bytes of the weights as imported.
    pub fn weights_bytes(&self) -> usize {
        self.import.weights_bytes()
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
        let reference = self.import.reference(shapes)?;
        let workspace_bytes = reference.live_peak_bytes;
        if let Some(lane_bytes) = self.limits.workspace_bytes
            && workspace_bytes > lane_bytes
        {
            return Err(self.too_large(shapes, workspace_bytes, lane_bytes));
        }
        let bytes = (reference.constant_bytes + workspace_bytes) as u64;
        let held = self.reserve_program(bytes)?;
        let program = Program::new(Arc::clone(&self.signature), shapes.to_vec(), reference, held);
        let program = Arc::new(program);
        lock(&self.programs).put(shapes.to_vec(), Arc::clone(&program));
        Ok(program)
    }

    /// Reserves for a program, letting the model's own least recently used programs go where that helps.
    fn reserve_program(&self, bytes: u64) -> Result<Reservation, DoesNotFit> {
        loop {
            match self.ledger.reserve(&self.owner, Kind::Program, bytes) {
                Ok(held) => return Ok(held),
                Err(refusal) => {
                    if lock(&self.programs).pop_lru().is_none() {
                        return Err(refusal);
                    }
                }
            }
        }
    }

    fn too_large(&self, shapes: &[Shape], needed_bytes: usize, lane_bytes: usize) -> Error {
        let names = self.signature.inputs.iter().map(|port| port.name.as_str());
        Error::Workspace { shapes: shapes_text(names, shapes), needed_bytes, lane_bytes }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole between statements: a panic elsewhere cannot have left it half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

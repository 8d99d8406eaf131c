//! What a lane has recorded: a program's launches as graphs of the driver, which start with one call.
//!
//! A recording holds addresses, so it is good for one workspace and for weights that lie where they lay: whoever
//! replays names the addresses, and where they differ the program is recorded anew.

use super::context::Context;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{CUgraphExec, CUgraphInstantiate_flags, CUstream, CUstreamCaptureMode};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The addresses that a recording depends on.
pub(super) type Bases = SmallVec<[u64; 4]>;

/// A graph that can be started.
pub(super) struct Graph(CUgraphExec);

// SAFETY: a handle of the driver's, which any thread may use that has entered the context.
unsafe impl Send for Graph {}

/// What is known of a program in a lane.
pub(super) struct Recording {
    /// Gone when the program is.
    alive: Weak<()>,
    bases: Bases,
    /// A graph for each part of the program; `None` where it could not be recorded and is launched each time.
    pub(super) parts: Vec<Option<Graph>>,
}

/// The recordings of a lane, by program.
pub(super) struct Graphs {
    context: Arc<Context>,
    known: HashMap<u64, Recording>,
}

impl Graphs {
    /// None yet.
    pub(super) fn new(context: &Arc<Context>) -> Graphs {
        Graphs { context: Arc::clone(context), known: HashMap::new() }
    }

    /// What was recorded of a program for these addresses.
    pub(super) fn get(&self, program: u64, bases: &Bases) -> Option<&Recording> {
        self.known.get(&program).filter(|recording| recording.bases == *bases)
    }

    /// Keeps what was recorded, and forgets programs that are gone.
    pub(super) fn put(&mut self, program: u64, alive: &Arc<()>, bases: Bases, parts: Vec<Option<Graph>>) {
        self.known.retain(|_, recording| recording.alive.strong_count() > 0);
        self.known.insert(program, Recording { alive: Arc::downgrade(alive), bases, parts });
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        if self.context.enter().is_ok() {
            self.known.clear();
        }
    }
}

impl Drop for Graphs {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Graph {
    /// Records what `launch` puts into the stream, and has the driver bring it to the device.
    ///
    /// # Errors
    /// The driver cannot record it, or `launch` fails.
    pub(super) fn record(
        stream: CUstream,
        launch: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<Graph, DriverError> {
        // SAFETY: the stream is the caller's and idle; what begins here ends below, whatever `launch` answers. Other
        // threads may call the driver meanwhile.
        unsafe {
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            result::stream::begin_capture(stream, mode)?;
            let launched = launch();
            let graph = result::stream::end_capture(stream);
            if let (Err(_), Ok(graph)) = (&launched, &graph) {
                let _ = result::graph::destroy(*graph);
            }
            launched?;
            let graph = graph?;
            let made = result::graph::instantiate(graph, CUgraphInstantiate_flags(0));
            let _ = result::graph::destroy(graph);
            let made = Graph(made?);
            result::graph::upload(made.0, stream)?;
            Ok(made)
        }
    }

    /// Starts the graph.
    ///
    /// # Safety
    /// What its launches read and write is still there, until the stream has come past it.
    ///
    /// # Errors
    /// The driver's.
    pub(super) unsafe fn launch(&self, stream: CUstream) -> Result<(), DriverError> {
        // SAFETY: the graph lives as long as this; the rest is the caller's promise.
        unsafe { result::graph::launch(self.0, stream) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: instantiated in `record`, destroyed once, when no run of it is under way.
        let _ = unsafe { result::graph::exec_destroy(self.0) };
    }
}

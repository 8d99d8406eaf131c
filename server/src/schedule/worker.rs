//! The workers: threads that own what they run on.

use super::queue::{Admission, Class, Lanes, Place, Queue};
use plimsoll_engine::error::Error;
use plimsoll_engine::program::{Program, Workspace};
use plimsoll_engine::tensor::Tensor;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// One admitted request.
struct Job {
    program: Arc<Program>,
    inputs: Vec<Tensor>,
    deadline: Instant,
    entered: Instant,
    reply: oneshot::Sender<Result<Done, Failed>>,
}

/// A finished run.
#[derive(Debug)]
pub(crate) struct Done {
    /// The outputs in the signature's order.
    pub(crate) outputs: Vec<Tensor>,
    /// Time in the queue.
    pub(crate) queued: Duration,
    /// Time of the run.
    pub(crate) computed: Duration,
}

/// Why an admitted job has no result.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Its deadline passed.
    Expired {
        /// Whether it was running by then; what had not begun was not run.
        begun: bool,
    },
    /// The run failed.
    Run(Error),
    /// The worker is gone.
    Lost,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    lanes: u32,
}

struct State {
    queue: Queue<Job>,
    running: u32,
    closed: bool,
}

/// The queue and its workers.
pub(crate) struct Scheduler {
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Scheduler {
    /// Starts `lanes` workers, each with `threads` threads inside an op.
    pub(crate) fn start(lanes: usize, threads: usize) -> anyhow::Result<Scheduler> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { queue: Queue::new(), running: 0, closed: false }),
            work: Condvar::new(),
            lanes: u32::try_from(lanes).unwrap_or(u32::MAX),
        });
        let workers = (0..lanes)
            .map(|lane| {
                let shared = Arc::clone(&shared);
                let workspace = Workspace::new(threads)?;
                let name = format!("lane-{lane}");
                Ok(std::thread::Builder::new().name(name).spawn(move || work(&shared, workspace))?)
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Scheduler { shared, workers: Mutex::new(workers) })
    }

    /// Admits a request, or says at once why not.
    pub(crate) fn submit(
        &self,
        class: Class,
        program: Arc<Program>,
        inputs: Vec<Tensor>,
        deadline: Instant,
    ) -> Result<Ticket, Admission> {
        let (reply, answer) = oneshot::channel();
        let entered = Instant::now();
        let job = Job { program, inputs, deadline, entered, reply };
        let mut state = self.shared.state();
        if state.closed {
            return Err(Admission::Closed);
        }
        let lanes = Lanes { count: self.shared.lanes, busy: state.running >= self.shared.lanes };
        let place = state.queue.push(job, class, entered, deadline, lanes)?;
        drop(state);
        self.shared.work.notify_one();
        Ok(Ticket { shared: Arc::clone(&self.shared), place: Some(place), deadline, answer })
    }

    /// Jobs that wait.
    pub(crate) fn queued(&self) -> usize {
        self.shared.state().queue.len()
    }

    /// Refuses further jobs, lets the workers finish those admitted, and waits for them.
    pub(crate) fn finish(&self) {
        self.shared.state().closed = true;
        self.shared.work.notify_all();
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            // A worker that panicked has dropped its job's reply: its caller knows.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn work(shared: &Shared, mut workspace: Workspace) {
    while let Some(job) = next(shared) {
        let started = Instant::now();
        let queued = started - job.entered;
        let result = if started >= job.deadline {
            Err(Failed::Expired { begun: false })
        } else {
            let mut outputs = vec![];
            job.program
                .run(&mut workspace, &job.inputs, &mut outputs)
                .map(|()| Done { outputs, queued, computed: started.elapsed() })
                .map_err(Failed::Run)
        };
        // The inputs lie in the request's body, whose bytes are budgeted: they go before anyone is told.
        drop(job.inputs);
        // Counted down before the reply: whoever asks next finds this lane free.
        shared.state().running -= 1;
        let _ = job.reply.send(result);
    }
}

/// The next job, or `None` when the scheduler has closed and nothing waits.
fn next(shared: &Shared) -> Option<Job> {
    let mut state = shared.state();
    loop {
        if let Some(job) = state.queue.pop() {
            state.running += 1;
            return Some(job);
        }
        if state.closed {
            return None;
        }
        state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// An admitted job's claim to its answer. Dropping it takes the job out of the queue if it still waits there.
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    /// Where the job waits, as far as this ticket knows; `None` once it has been answered.
    place: Option<Place>,
    deadline: Instant,
    answer: oneshot::Receiver<Result<Done, Failed>>,
}

impl Ticket {
    /// Waits for the answer, until the deadline at most.
    ///
    /// # Errors
    /// The deadline passed, the run failed, or the worker is gone.
    pub(crate) async fn wait(mut self) -> Result<Done, Failed> {
        let answer = match tokio::time::timeout_at(self.deadline.into(), &mut self.answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Failed::Lost),
            Err(_) => {
                let waited = self.place.take().and_then(|place| self.shared.state().queue.remove(place));
                return Err(Failed::Expired { begun: waited.is_none() });
            }
        };
        self.place = None;
        answer
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A client that hung up, or whose deadline passed, frees its place for another.
        if let Some(place) = self.place {
            let _ = self.shared.state().queue.remove(place);
        }
    }
}

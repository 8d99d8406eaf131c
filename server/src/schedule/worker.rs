//! The lanes and the workers: who runs a job, on what, and how its answer gets back.

use super::bursts::Bursts;
use super::queue::{Admission, Class, Lanes, Place, Queue};
use plimsoll_engine::error::Error;
use plimsoll_engine::lane::{Lane, Pool, Want};
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
    /// Whatever must live as long as the inputs, such as their share of a budget.
    held: Box<dyn Send>,
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

/// What all who run jobs share.
struct Shared {
    state: Mutex<State>,
    /// There is a job and a lane for it, or the end has come.
    work: Condvar,
    /// Lanes are handed out and given back, never made for a request.
    lanes: Pool<Workspace>,
    on_burst: OnBurst,
}

/// Told when a burst begins: by whose run, and the bytes of the lane that it takes.
pub(crate) type OnBurst = Box<dyn Fn(&str, u64) + Send + Sync>;

struct State {
    queue: Queue<Job>,
    bursts: Bursts,
    closed: bool,
}

/// A run that takes less than this is not worth a thread of its own: to wake one, and to be woken by it, takes
/// tens of microseconds each, and an async thread may well be busy for as long as that.
const SHORT: Duration = Duration::from_micros(200);

/// The queue, the lanes and the workers.
pub(crate) struct Scheduler {
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Scheduler {
    /// Starts a worker for each of the lanes, the burst lanes included.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub(crate) fn start(lanes: Pool<Workspace>, on_burst: OnBurst) -> anyhow::Result<Scheduler> {
        let counters = lanes.counters();
        let shared = Arc::new(Shared {
            state: Mutex::new(State { queue: Queue::new(), bursts: Bursts::default(), closed: false }),
            work: Condvar::new(),
            lanes,
            on_burst,
        });
        let workers = (0..counters.steady.lanes + counters.burst.lanes)
            .map(|at| {
                let shared = Arc::clone(&shared);
                Ok(std::thread::Builder::new().name(format!("worker-{at}")).spawn(move || work(&shared))?)
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Scheduler { shared, workers: Mutex::new(workers) })
    }

    /// Admits a request, or says at once why not. A short run for which a lane is idle is done before this returns.
    ///
    /// # Errors
    /// The model's queue is full, the deadline cannot be met, or the end has come.
    pub(crate) fn submit(
        &self,
        class: Class,
        program: Arc<Program>,
        inputs: Vec<Tensor>,
        held: Box<dyn Send>,
        deadline: Instant,
    ) -> Result<Ticket, Admission> {
        let (reply, answer) = oneshot::channel();
        let entered = Instant::now();
        let job = Job { program, inputs, held, deadline, entered, reply };
        let mut state = self.shared.state();
        if state.closed {
            return Err(Admission::Closed);
        }
        let short = !class.service.is_zero() && class.service < SHORT;
        if short
            && state.queue.len() == 0
            && let Some(lane) = self.shared.lanes.take(job.need_bytes(), Want::Steady)
        {
            drop(state);
            run(&self.shared, lane, job);
            return Ok(Ticket { shared: Arc::clone(&self.shared), place: None, deadline, answer });
        }
        let steady = self.shared.lanes.counters().steady;
        let count = u32::try_from(steady.lanes).unwrap_or(u32::MAX);
        let lanes = Lanes { count, busy: steady.busy == steady.lanes };
        let place = state.queue.push(job, class, entered, deadline, lanes)?;
        drop(state);
        self.shared.work.notify_one();
        Ok(Ticket { shared: Arc::clone(&self.shared), place: Some(place), deadline, answer })
    }

    /// Jobs that wait.
    pub(crate) fn queued(&self) -> usize {
        self.shared.state().queue.len()
    }

    /// Wakes a worker, as the end of a run does.
    #[cfg(test)]
    pub(super) fn nudge(&self) {
        self.shared.work.notify_one();
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

impl Job {
    fn need_bytes(&self) -> u64 {
        self.program.workspace_bytes() as u64
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker: takes a job and a lane for it, again and again.
fn work(shared: &Shared) {
    while let Some((lane, job)) = next(shared) {
        run(shared, lane, job);
    }
}

/// The first job for which there is a lane, or `None` when the end has come and nothing waits. A job may pass one
/// before it that needs more workspace: it takes no lane that the other could use.
fn next(shared: &Shared) -> Option<(Lane<Workspace>, Job)> {
    let mut state = shared.state();
    loop {
        let lane = |job: &Job| shared.lanes.take(job.need_bytes(), Want::BurstToo);
        if let Some((lane, job)) = state.queue.pop_with(lane) {
            if lane.is_burst() && state.bursts.taken(Instant::now()) {
                drop(state);
                (shared.on_burst)(job.program.owner(), lane.bytes());
            }
            return Some((lane, job));
        }
        if state.closed && state.queue.len() == 0 {
            // One run's end wakes one worker, and more may wait than runs are left.
            shared.work.notify_all();
            return None;
        }
        state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Runs a job on a lane, gives the lane back and answers.
fn run(shared: &Shared, mut lane: Lane<Workspace>, job: Job) {
    let Job { program, inputs, held, deadline, entered, reply } = job;
    let started = Instant::now();
    let result = if started >= deadline {
        Err(Failed::Expired { begun: false })
    } else {
        let mut outputs = vec![];
        program
            .run(&mut lane.workspace(), &inputs, &mut outputs)
            .map(|()| Done { outputs, queued: started - entered, computed: started.elapsed() })
            .map_err(Failed::Run)
    };
    // The inputs lie in the request's body, whose bytes are budgeted (`held`), and the program may be all that is left of a
    // model that was unloaded: both go before anyone is told.
    drop((inputs, held, program));
    // The lane too: whoever asks next finds it idle.
    let burst = lane.is_burst();
    drop(lane);
    let mut state = shared.state();
    if burst {
        state.bursts.given_back(Instant::now());
    }
    let more = state.queue.len() > 0 || state.closed;
    drop(state);
    if more {
        shared.work.notify_one();
    }
    let _ = reply.send(result);
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
        if let Ok(answer) = self.answer.try_recv() {
            self.place = None;
            return answer;
        }
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

//! The workers: who runs a job, and how its answer gets back.

use super::hall::{Entered, Hall, Needs, Turn};
use super::queue::{Admission, Class, Place};
use plimsoll_engine::error::Error;
use plimsoll_engine::lane::{Lane, Pool, Want};
use plimsoll_engine::program::{Program, Workspace};
use plimsoll_engine::tensor::Tensor;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// One admitted request.
struct Job {
    program: Arc<Program>,
    want: Want,
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

type Workers = Hall<Job, Workspace>;

/// Told when a burst begins: by whose run, and the bytes of the lane that it takes.
pub(crate) type OnBurst = Box<dyn Fn(&str, u64) + Send + Sync>;

/// The queue, the lanes and the workers.
pub(crate) struct Scheduler {
    hall: Arc<Workers>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Scheduler {
    /// Starts a worker for each of the lanes, the burst lanes included.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub(crate) fn start(lanes: Pool<Workspace>, on_burst: OnBurst) -> anyhow::Result<Scheduler> {
        let counters = lanes.counters();
        let (hall, on_burst) = (Arc::new(Hall::new(lanes)), Arc::new(on_burst));
        let workers = (0..counters.steady.lanes + counters.burst.lanes)
            .map(|at| {
                let (hall, on_burst) = (Arc::clone(&hall), Arc::clone(&on_burst));
                let thread = std::thread::Builder::new().name(format!("worker-{at}"));
                Ok(thread.spawn(move || work(&hall, &on_burst))?)
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Scheduler { hall, workers: Mutex::new(workers) })
    }

    /// Admits a request, or says at once why not. A short run for which a lane is idle is done before this returns.
    ///
    /// # Errors
    /// The model's queue is full, the deadline cannot be met, or the end has come.
    pub(crate) fn submit(
        &self,
        class: Class,
        program: Arc<Program>,
        want: Want,
        inputs: Vec<Tensor>,
        held: Box<dyn Send>,
        deadline: Instant,
    ) -> Result<Ticket, Admission> {
        let (reply, answer) = oneshot::channel();
        let entered = Instant::now();
        let job = Job { program, want, inputs, held, deadline, entered, reply };
        let hall = Arc::clone(&self.hall);
        let place = match self.hall.enter(job, class, entered, deadline)? {
            Entered::Waits(place) => Some(place),
            Entered::Now(lane, job) => {
                run(&hall, lane, job);
                None
            }
        };
        Ok(Ticket { hall, place, deadline, answer })
    }

    /// Bytes of the largest lane that will do.
    pub(crate) fn largest_bytes(&self, want: Want) -> u64 {
        self.hall.largest_bytes(want)
    }

    /// Jobs that wait.
    pub(crate) fn queued(&self) -> usize {
        self.hall.queued()
    }

    /// Refuses further jobs, lets the workers finish those admitted, and waits for them.
    pub(crate) fn finish(&self) {
        self.hall.close();
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            // A worker that panicked has dropped its job's reply: its caller knows.
            let _ = worker.join();
        }
    }
}

impl Needs for Job {
    fn need_bytes(&self) -> u64 {
        self.program.workspace_bytes() as u64
    }

    fn want(&self) -> Want {
        self.want
    }
}

/// A worker: takes a job and a lane for it, again and again.
fn work(hall: &Workers, on_burst: &OnBurst) {
    while let Some(Turn { lane, job, begins_burst }) = hall.next() {
        if begins_burst {
            on_burst(job.program.owner(), lane.bytes());
        }
        run(hall, lane, job);
    }
}

/// Runs a job on a lane, gives the lane back and answers.
fn run(hall: &Workers, mut lane: Lane<Workspace>, job: Job) {
    let Job { program, inputs, held, deadline, entered, reply, .. } = job;
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
    hall.give_back(lane);
    let _ = reply.send(result);
}

/// An admitted job's claim to its answer. Dropping it takes the job out of the queue if it still waits there.
pub(crate) struct Ticket {
    hall: Arc<Workers>,
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
                let waited = self.place.take().and_then(|place| self.hall.withdraw(place));
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
            let _ = self.hall.withdraw(place);
        }
    }
}

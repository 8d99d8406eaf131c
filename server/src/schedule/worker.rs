//! The workers: who runs jobs, and how their answers get back.

use super::class::{Admission, Class};
use super::desk::{Place, Pressure, Refused};
use super::hall::{Entered, Hall, Turn};
use super::job::{Asked, Done, Failed, Job, Look};
use super::recorder::Recorder;
use plimsoll_engine::error::Error;
use plimsoll_engine::lane::{Lane, Pool, Want};
use plimsoll_engine::program::{Program, Workspace};
use plimsoll_engine::tensor::Tensor;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

type Workers = Hall<Job, Workspace>;

/// What begins: told once, until it has been quiet for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// A burst lane of so many bytes is taken.
    Burst(u64),
    /// A request is refused.
    Shedding,
}

/// Told what begins, and with whose request.
pub(crate) type Tell = Box<dyn Fn(Begins, &str) + Send + Sync>;

/// The queue, the lanes and the workers.
pub(crate) struct Scheduler {
    hall: Arc<Workers>,
    tell: Arc<Tell>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    recorder: Option<Recorder>,
}

impl Scheduler {
    /// Starts a worker for each of the lanes, the burst lanes included.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub(crate) fn start(lanes: Pool<Workspace>, tell: Tell) -> anyhow::Result<Scheduler> {
        let counters = lanes.counters();
        let (hall, tell) = (Arc::new(Hall::new(lanes)), Arc::new(tell));
        let workers = (0..counters.steady.lanes + counters.burst.lanes)
            .map(|at| {
                let (hall, tell) = (Arc::clone(&hall), Arc::clone(&tell));
                let thread = std::thread::Builder::new().name(format!("worker-{at}"));
                Ok(thread.spawn(move || work(&hall, &tell))?)
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Scheduler { hall, tell, workers: Mutex::new(workers), recorder: None })
    }

    /// Has arrivals written down, if there is a recorder.
    pub(crate) fn recorded(self, recorder: Option<Recorder>) -> Scheduler {
        Scheduler { recorder, ..self }
    }

    /// Admits a request, or says at once why not. A short run for which a lane is idle is done before this returns.
    ///
    /// # Errors
    /// The model's queue is full, the deadline cannot be met, or the end has come.
    pub(crate) fn submit(&self, class: &Arc<Class>, asked: Asked) -> Result<Ticket, Admission> {
        let (reply, answer) = oneshot::channel();
        let (entered, deadline) = (Instant::now(), asked.deadline);
        let program = asked.look.program().map(Arc::clone);
        self.note(&asked.look, deadline.saturating_duration_since(entered));
        let job = Job { asked, entered, reply };
        let hall = Arc::clone(&self.hall);
        let place = match self.hall.enter(job, class, entered, deadline) {
            Ok(Entered::Waits(place)) => Some(place),
            Ok(Entered::Now(Turn { mut lane, jobs, bucket, .. })) => {
                let ran = run(&mut lane, jobs, bucket);
                hall.give_back(lane, ran.took);
                ran.reply();
                None
            }
            Err(refused) => return Err(self.refuse(refused, program.as_deref())),
        };
        Ok(Ticket { hall, place, deadline, answer })
    }

    /// Says whether a request that is still on its way would be let in if it came now; one that would be counts nowhere yet.
    ///
    /// # Errors
    /// As [`Scheduler::submit`].
    pub(crate) fn foresee(
        &self,
        class: &Arc<Class>,
        look: &Look,
        deadline: Instant,
    ) -> Result<(), Admission> {
        let now = Instant::now();
        self.hall.foresee(look, class, now, deadline).map_err(|refused| {
            self.note(look, deadline.saturating_duration_since(now));
            self.refuse(refused, look.program().map(|program| &**program))
        })
    }

    /// Has an arrival written down.
    fn note(&self, look: &Look, timeout: Duration) {
        // What leaves the reserve alone is no request, but a first run of our own.
        if let (Some(recorder), Want::BurstToo, Some(program)) = (&self.recorder, look.want, look.program()) {
            recorder.note(program.owner(), look.rows, timeout);
        }
    }

    fn refuse(&self, refused: Refused, program: Option<&Program>) -> Admission {
        if refused.begins_shedding {
            (self.tell)(Begins::Shedding, program.map_or("", Program::owner));
        }
        refused.why
    }

    /// Jobs that wait.
    pub(crate) fn queued(&self) -> usize {
        self.hall.queued()
    }

    /// How hard the server is pressed.
    pub(crate) fn pressure(&self) -> Pressure {
        self.hall.pressure()
    }

    /// Bytes of the largest lane that will do.
    pub(crate) fn largest_bytes(&self, want: Want) -> u64 {
        self.hall.lanes().largest_bytes(want)
    }

    /// Refuses further jobs, lets the workers finish those admitted, and waits for them.
    pub(crate) fn finish(&self) {
        self.hall.close();
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            // A worker that panicked has dropped its jobs' replies: their callers know.
            let _ = worker.join();
        }
        if let Some(recorder) = &self.recorder {
            recorder.finish();
        }
    }
}

/// A worker: takes jobs and a lane for them, again and again.
fn work(hall: &Workers, tell: &Tell) {
    let mut next = hall.next();
    while let Some(Turn { mut lane, jobs, bucket, begins_burst }) = next {
        if begins_burst
            && let Some((_, program)) = jobs.first().and_then(|job| job.asked.look.runs.at(bucket))
        {
            tell(Begins::Burst(lane.bytes()), program.owner());
        }
        let ran = run(&mut lane, jobs, bucket);
        next = hall.exchange(lane, ran.took);
        // The lane is idle or at work again by now: whoever asks next finds it so.
        ran.reply();
        next = next.or_else(|| hall.next());
    }
}

type Answer = Result<Done, Failed>;

/// What a run has come to.
struct Ran {
    answers: Vec<(oneshot::Sender<Answer>, Answer)>,
    /// How long it took, where it tells of the runs to come.
    took: Option<Duration>,
}

impl Ran {
    fn reply(self) {
        for (reply, answer) in self.answers {
            // Whoever does not wait any more has gone.
            let _ = reply.send(answer);
        }
    }
}

/// Runs jobs together in a lane.
fn run(lane: &mut Lane<Workspace>, jobs: Vec<Job>, bucket: usize) -> Ran {
    let started = Instant::now();
    let (alive, expired): (Vec<Job>, Vec<Job>) =
        jobs.into_iter().partition(|job| started < job.asked.deadline);
    let late = |job: Job| (job.reply, Err(Failed::Expired { begun: false }));
    let mut ran = Ran { answers: expired.into_iter().map(late).collect(), took: None };
    let Some((_, program)) = alive.first().and_then(|first| first.asked.look.runs.at(bucket)).cloned() else {
        return ran;
    };
    let rows = alive.iter().map(|job| job.asked.look.rows).sum();
    let mut apart = false;
    let results: Vec<Result<Outputs, Failed>> = match together(lane, &alive, &program) {
        Ok(outputs) => {
            ran.took = Some(started.elapsed());
            outputs.into_iter().map(Ok).collect()
        }
        Err(error) if alive.len() == 1 => vec![Err(Failed::Run(error))],
        // What is wrong with one must not hurt the others: each is tried by itself.
        Err(_) => {
            apart = true;
            alive.iter().map(|job| by_itself(lane, &job.asked)).collect()
        }
    };
    let mut counted = false;
    for (job, answer) in alive.into_iter().zip(results) {
        let Job { asked, entered, reply } = job;
        let led = match apart {
            true => Some(asked.look.rows),
            // Whoever is gone tells nobody.
            false if counted || reply.is_closed() => None,
            false => Some(rows),
        };
        counted |= led.is_some();
        let done = |outputs| Done { outputs, queued: started - entered, computed: started.elapsed(), led };
        // The inputs lie in the request's body, whose bytes are budgeted, and the program may be all that is left of a
        // model that was unloaded: both go before anyone is told.
        drop(asked);
        ran.answers.push((reply, answer.map(done)));
    }
    ran
}

type Outputs = Vec<Tensor>;

fn together(lane: &mut Lane<Workspace>, jobs: &[Job], program: &Program) -> Result<Vec<Outputs>, Error> {
    let inputs: SmallVec<[&[Tensor]; 1]> = jobs.iter().map(|job| job.asked.inputs.as_slice()).collect();
    program.run_together(&mut lane.workspace(), &inputs)
}

fn by_itself(lane: &mut Lane<Workspace>, asked: &Asked) -> Result<Outputs, Failed> {
    let program = asked.look.program().ok_or(Failed::Lost)?;
    let outputs = program.run_together(&mut lane.workspace(), &[&asked.inputs]).map_err(Failed::Run);
    outputs?.pop().ok_or(Failed::Lost)
}

/// An admitted job's claim to its answer. Dropping it takes the job out of the queue if it still waits there.
pub(crate) struct Ticket {
    hall: Arc<Workers>,
    /// Where the job waits, as far as this ticket knows; `None` once it has been answered.
    place: Option<Place>,
    deadline: Instant,
    answer: oneshot::Receiver<Answer>,
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

//! A fork-join group of threads: one caller hands out numbered tasks and waits until all of them are done.
//!
//! A call costs no allocation and, while the helpers still spin, no system call: small models fork some dozens of
//! times within a few hundred microseconds. A helper that wakes too late is not waited for: the caller takes all
//! the tasks that nobody else took, closes the round and waits only for helpers which are inside it.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

#[cfg(test)]
mod tests;

/// How often a helper looks for the next round before it parks, and the caller for the end of the last task: some
/// 20 µs where a pause takes 40 to 140 cycles. Counted, for this package reads no clock.
const SPIN: u32 = 600;

/// In `Shared::state`: the number of the round above, whether it is open, and how many helpers are inside it.
const ROUND: u64 = 1 << 32;
const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;

/// Work by task number and by worker number, as the helpers see it.
type Work = dyn Fn(usize, usize) + Sync;

/// A round's work. The pointers are read only by threads which are inside an open round.
#[derive(Clone, Copy)]
struct Job {
    work: *const Work,
    tasks: usize,
}

struct Shared {
    state: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    next: AtomicUsize,
    /// The thread to wake when the last helper leaves a closed round.
    caller: Mutex<Option<Thread>>,
    /// The first panic of a round.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    parked: Box<[AtomicBool]>,
}

// SAFETY: `job` is written by the one caller (`Threads::busy`) while the round is closed and nobody is inside, and
// read by helpers that entered an open round; `state` orders the two. What it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Shared {}

/// A fork-join group of `count` threads, the caller among them, which one lane owns.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Held for the time of a round. Who finds it held, a task that forks again say, runs its tasks itself.
    busy: AtomicBool,
}

impl Threads {
    /// Starts `count - 1` helpers; 1 (or 0) starts none.
    pub(crate) fn new(count: usize) -> std::io::Result<Threads> {
        let helpers = count.saturating_sub(1);
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            caller: Mutex::new(None),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            parked: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut group =
            Threads { shared, helpers: Vec::with_capacity(helpers), busy: AtomicBool::new(false) };
        for index in 0..helpers {
            let shared = group.shared.clone();
            let builder = thread::Builder::new().name(format!("compute-{}", index + 1));
            group.helpers.push(builder.spawn(move || help(&shared, index))?);
        }
        Ok(group)
    }

    /// How many threads work, the caller among them.
    pub(crate) fn count(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Runs `work(0)` to `work(tasks - 1)`, each once, and returns when all are done. A panic of a task is raised
    /// again here, after the others are done.
    pub(crate) fn for_each(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        self.for_each_worker(tasks, &|task, _| work(task));
    }

    /// As `for_each`; `work` also gets the number of the worker, below `count()`: no two tasks of one call that run
    /// at the same time have the same, so that each worker may have a scratch area of its own.
    pub(crate) fn for_each_worker(&self, tasks: usize, work: &(dyn Fn(usize, usize) + Sync)) {
        if self.helpers.is_empty() || tasks <= 1 || self.busy.swap(true, Ordering::Acquire) {
            return (0..tasks).for_each(|task| work(task, 0));
        }
        let panic = self.round(tasks, work);
        self.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn round(&self, tasks: usize, work: &(dyn Fn(usize, usize) + Sync)) -> Option<Box<dyn Any + Send>> {
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. Helpers use the pointer only inside the round, which this function
        // closes and sees empty before it returns; it cannot unwind in between, tasks being caught.
        let work =
            unsafe { std::mem::transmute::<*const (dyn Fn(usize, usize) + Sync + '_), *const Work>(work) };
        let job = Job { work, tasks };
        // SAFETY: no round is open and none is inside: `busy` is held, and the last round was seen empty.
        unsafe { *shared.job.get() = Some(job) };
        shared.next.store(0, Ordering::Relaxed);
        // Sequentially consistent, like the helpers' `parked`: either this sees it or the helper sees the round.
        let state = shared.state.load(Ordering::Relaxed);
        shared.state.store((state & !(ROUND - 1)).wrapping_add(ROUND) | OPEN, Ordering::SeqCst);
        for (parked, helper) in shared.parked.iter().zip(&self.helpers).take(tasks - 1) {
            if parked.load(Ordering::SeqCst) && parked.swap(false, Ordering::SeqCst) {
                helper.thread().unpark();
            }
        }
        run_tasks(shared, job, 0);
        let mut inside = shared.state.fetch_and(!OPEN, Ordering::AcqRel) & INSIDE;
        let mut spin = Spin::new();
        while inside > 0 {
            if !spin.turn() {
                *lock(&shared.caller) = Some(thread::current());
                // A helper that left before the line above did not see whom to wake; one after it does.
                if shared.state.load(Ordering::SeqCst) & INSIDE > 0 {
                    thread::park();
                }
            }
            inside = shared.state.load(Ordering::Acquire) & INSIDE;
        }
        lock(&shared.panic).take()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for helper in &self.helpers {
            helper.thread().unpark();
        }
        for helper in self.helpers.drain(..) {
            // A helper catches what its tasks throw, so that it has nothing to report here.
            let _ = helper.join();
        }
    }
}

/// A poisoned lock is as good as any: what it holds is replaced as a whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_tasks(shared: &Shared, job: Job, worker: usize) {
    // SAFETY: the round is open or this thread is counted inside it, so that the caller still holds the work.
    let work = unsafe { &*job.work };
    loop {
        let task = shared.next.fetch_add(1, Ordering::Relaxed);
        if task >= job.tasks {
            return;
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(task, worker))) {
            lock(&shared.panic).get_or_insert(panic);
        }
    }
}

/// The life of a helper: wait for a round that it has not seen, enter it, take tasks, leave.
fn help(shared: &Shared, index: usize) {
    let mut seen = 0;
    while let Some(round) = wait(shared, index, seen) {
        seen = round;
        if !enter(shared, round) {
            continue;
        }
        // SAFETY: inside the round, which keeps the caller from writing the job.
        if let Some(job) = unsafe { *shared.job.get() } {
            run_tasks(shared, job, index + 1);
        }
        let left = shared.state.fetch_sub(1, Ordering::SeqCst) - 1;
        if left & (OPEN | INSIDE) == 0
            && let Some(caller) = lock(&shared.caller).take()
        {
            caller.unpark();
        }
    }
}

/// The next open round after `seen`, or none at the end.
fn wait(shared: &Shared, index: usize, seen: u64) -> Option<u64> {
    // Some(None) is the end, none that there is nothing to do yet.
    let look = || {
        let state = shared.state.load(Ordering::SeqCst);
        let round = (state & OPEN != 0 && state / ROUND != seen).then_some(state / ROUND);
        if shared.stop.load(Ordering::SeqCst) { Some(None) } else { round.map(Some) }
    };
    let mut spin = Spin::new();
    loop {
        if let Some(found) = look() {
            return found;
        }
        if spin.turn() {
            continue;
        }
        shared.parked[index].store(true, Ordering::SeqCst);
        if look().is_none() {
            thread::park();
        }
        shared.parked[index].store(false, Ordering::SeqCst);
        spin = Spin::new();
    }
}

/// Counts this thread into the round, unless that has been closed meanwhile.
fn enter(shared: &Shared, round: u64) -> bool {
    let open = |state: u64| (state & OPEN != 0 && state / ROUND == round).then_some(state + 1);
    shared.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).is_ok()
}

/// Waiting without a system call, for `SPIN` turns at most.
struct Spin {
    turns: u32,
}

impl Spin {
    fn new() -> Spin {
        Spin { turns: 0 }
    }

    /// Waits for a moment; false when it is time to park.
    fn turn(&mut self) -> bool {
        std::hint::spin_loop();
        self.turns += 1;
        self.turns < SPIN
    }
}

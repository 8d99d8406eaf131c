//! The one thread on which models are imported and programs prepared.
//!
//! One, because each import takes memory for a moment that no ledger line foresees, and two at once would take it
//! twice; and always the same, because an allocator keeps a pool for every thread that ever asked it for much. Other
//! threads have the processor before it, so that models that run hardly notice a load.

use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

/// Importing recurses along a graph's edges.
const STACK_BYTES: usize = 16 << 20;

/// Hands work to the thread. The thread ends when the last loader is dropped.
#[derive(Clone)]
pub(crate) struct Loader(Sender<Work>);

/// The work ended without a result: it panicked, or the thread is gone.
#[derive(Debug)]
pub(crate) struct Lost;

impl Loader {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn start() -> std::io::Result<Loader> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("loader".into()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            step_back();
            run(&receiver);
        })?;
        Ok(Loader(sender))
    }

    /// Does `work` on the thread, after what was handed over before. It is done also when nobody waits for it.
    ///
    /// # Errors
    /// The work panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Lost> {
        let (reply, answer) = oneshot::channel();
        let work = Box::new(move || {
            let _ = reply.send(work());
        });
        self.0.send(work).map_err(|_| Lost)?;
        answer.await.map_err(|_| Lost)
    }

    /// As [`Loader::run`], for work whose end nobody waits for.
    pub(crate) fn begin(&self, work: impl FnOnce() + Send + 'static) {
        // Where the thread is gone, the server ends.
        let _ = self.0.send(Box::new(work));
    }
}

/// Lets other threads go first that want the processor.
fn step_back() {
    #[cfg(target_os = "linux")]
    {
        // A tenth of what others get where all are busy. With less, a load on a busy machine would hardly end, and what
        // others wait for (weights being moved, the kernel's lock on the process's mappings) would be held for long.
        const NICE: i32 = 10;
        // Linux takes "this process" to mean the thread that asks.
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::debug!(%error, "loads have the priority of everything else");
        }
    }
}

fn run(work: &Receiver<Work>) {
    while let Ok(work) = work.recv() {
        // A panic loses its own work's reply and nothing else.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_in_order_and_a_panic_harms_only_its_own() {
        let loader = Loader::start().unwrap();
        assert_eq!(loader.run(|| 1).await.unwrap(), 1);
        assert!(loader.run(|| -> u8 { panic!("a fault") }).await.is_err());
        assert_eq!(loader.run(|| 2).await.unwrap(), 2);
    }
}

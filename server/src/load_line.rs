//! The load line, watched: what the process really holds, against the ceiling that it promises.
//!
//! The ledger counts what is planned. What nobody planned for (an allocator, a library, a very large answer) shows in
//! the resident memory alone, so that is sampled all the while.

use crate::process::Resident;
use plimsoll_engine::arena::Arena;
use plimsoll_engine::error::size;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time between two samples, each of which takes some ten microseconds.
const EVERY: Duration = Duration::from_millis(100);

/// Where samples come from: the system, or a test.
pub(crate) type Sample = Box<dyn Fn() -> Option<Resident> + Send + Sync>;

/// The ceiling, and what has been seen of the process under it.
pub(crate) struct LoadLine {
    arena: Arc<Arena>,
    ceiling: u64,
    /// What resident memory is compared with: the ceiling, where host memory is under it.
    limit: u64,
    sample: Sample,
    seen: Mutex<Seen>,
}

/// What has been seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The last sample; `None` where the system does not tell.
    pub(crate) resident: Option<Resident>,
    /// Whether that was over the ceiling.
    pub(crate) over: bool,
    /// Times that the ceiling was passed.
    pub(crate) breaches: u64,
}

/// What a sample tells that the one before did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// Nothing.
    None,
    /// The process is over the ceiling.
    Over,
    /// It has been, and no sample fell into that time.
    WasOver,
    /// It is no longer.
    Back,
}

impl Seen {
    /// Takes note of a sample.
    fn note(&mut self, resident: Resident, ceiling: u64) -> News {
        let (before, peak_before) = (self.over, self.resident.map_or(0, |before| before.peak));
        self.over = resident.now > ceiling;
        self.resident = Some(resident);
        let news = match (before, self.over) {
            (false, true) => News::Over,
            (true, false) => News::Back,
            (false, false) if resident.peak > ceiling.max(peak_before) => News::WasOver,
            _ => News::None,
        };
        self.breaches += u64::from(matches!(news, News::Over | News::WasOver));
        news
    }
}

impl LoadLine {
    /// The load line of this arena's ceiling; nobody looks yet.
    pub(crate) fn new(arena: Arc<Arena>, sample: Sample) -> LoadLine {
        let ceiling = arena.ledger().ceiling();
        let limit = if arena.counts_host_memory() { ceiling } else { u64::MAX };
        LoadLine { arena, ceiling, limit, sample, seen: Mutex::default() }
    }

    /// What the whole process may hold, in bytes.
    pub(crate) fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Looks now. The log is told when the ceiling is passed, once for each time, and when that is over.
    pub(crate) fn look(&self) -> Seen {
        // Sampled under the lock, so that no sample is noted after a later one.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(resident) = (self.sample)() {
            let news = seen.note(resident, self.limit);
            self.tell(news, resident);
        }
        *seen
    }

    fn tell(&self, news: News, Resident { now, peak }: Resident) {
        let (resident, peak, ceiling) = (size(now), size(peak), size(self.ceiling));
        match news {
            News::None => {}
            News::Back => {
                tracing::info!(%resident, %peak, %ceiling, "the process is under its ceiling again")
            }
            News::Over | News::WasOver => {
                let account = self.arena.ledger().account();
                let parts = [account.fixed.process, account.fixed.slab, account.held_bytes];
                // What the ledger knows to be in memory; the rest is what the headroom was too small for.
                let counted = size(parts.iter().sum());
                let [process, slab, host] = parts.map(size);
                let headroom = size(account.fixed.headroom);
                let text = match news {
                    News::Over => {
                        "the process holds more than its ceiling: it is not ready until it does not"
                    }
                    _ => "for a moment the process held more than its ceiling",
                };
                tracing::error!(
                    %resident, %peak, %ceiling, %counted, %process, %slab, %host, %headroom, "{text}"
                );
            }
        }
    }

    /// Looks again and again, on a thread of its own that ends with the load line: whatever else is stuck, this is not.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub(crate) fn watch(self: &Arc<LoadLine>) -> std::io::Result<()> {
        let watched = Arc::downgrade(self);
        std::thread::Builder::new().name("load-line".into()).spawn(move || {
            while let Some(line) = watched.upgrade() {
                line.look();
                drop(line);
                std::thread::sleep(EVERY);
            }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    const CEILING: u64 = 100;

    /// The news of samples `(now, peak)`, and the breaches counted by then.
    fn news(samples: &[(u64, u64)]) -> Vec<(News, u64)> {
        let mut seen = Seen::default();
        let note = |&(now, peak): &(u64, u64)| (seen.note(Resident { now, peak }, CEILING), seen.breaches);
        samples.iter().map(note).collect()
    }

    #[test]
    fn a_breach_is_told_once_until_it_is_over() {
        assert_eq!(
            news(&[(100, 100), (101, 101), (150, 150), (99, 150), (100, 150), (101, 150)]),
            [
                (News::None, 0),
                (News::Over, 1),
                (News::None, 1),
                (News::Back, 1),
                (News::None, 1),
                (News::Over, 2)
            ]
        );
    }

    #[test]
    fn a_breach_between_two_samples_is_told_by_the_peak() {
        assert_eq!(
            news(&[(90, 95), (90, 120), (90, 120), (90, 121), (110, 121), (90, 130), (90, 130)]),
            [
                (News::None, 0),
                (News::WasOver, 1),
                (News::None, 1),
                (News::WasOver, 2),
                (News::Over, 3),
                // Higher than any sample of the breach that just ended: part of it.
                (News::Back, 3),
                (News::None, 3)
            ]
        );
    }

    #[test]
    fn the_watch_looks_by_itself() {
        let now = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&now);
        let sample = Box::new(move || {
            let now = read.load(Ordering::Relaxed);
            Some(Resident { now, peak: now })
        });
        // The arena of the heap has the largest ceiling that there is.
        let line = LoadLine { ceiling: CEILING, limit: CEILING, ..LoadLine::new(Arena::unlimited(), sample) };
        let line = Arc::new(line);
        line.watch().unwrap();
        let until = |condition: fn(&Seen) -> bool| {
            let end = Instant::now() + Duration::from_secs(20);
            while !condition(&line.seen.lock().unwrap()) {
                assert!(Instant::now() < end, "{:?}", line.seen.lock().unwrap());
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        until(|seen| seen.resident.is_some() && !seen.over);
        now.store(CEILING + 1, Ordering::Relaxed);
        until(|seen| seen.over && seen.breaches == 1);
        now.store(CEILING, Ordering::Relaxed);
        until(|seen| !seen.over && seen.breaches == 1);
    }

    #[test]
    fn where_the_system_does_not_tell_nothing_is_said() {
        let line = LoadLine::new(Arena::unlimited(), Box::new(|| None));
        assert_eq!(line.look(), Seen::default());
    }
}

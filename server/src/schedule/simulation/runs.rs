//! The runs under way, which slow each other down.
//!
//! How long a run takes depends on how many lanes are busy, and that changes while it runs: the part that is left of it is
//! kept, and done at the pace of the moment.

use super::{Request, Run};
use std::time::{Duration, Instant};

/// A run under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) model: usize,
    /// Rows that it has room for.
    pub(super) rows: usize,
    /// As in [`Run`].
    pub(super) luck: f64,
    /// As in [`Run`].
    pub(super) woken: bool,
    pub(super) jobs: Vec<Request>,
    pub(super) begun: Instant,
}

/// How far a run is.
#[derive(Debug)]
struct Progress {
    run: Running,
    /// What is left of it, 0 to 1, at the time beside.
    left: f64,
    since: Instant,
    /// What all of it takes at the pace of the moment.
    whole: Duration,
    /// Counts changes of pace over all runs: what was foreseen before the last one does not hold.
    pace: u64,
}

/// The runs of all lanes.
#[derive(Debug)]
pub(super) struct Runs {
    lanes: Vec<Option<Progress>>,
    /// When each lane's last run was over.
    ended: Vec<Option<Instant>>,
    busy: usize,
    next_pace: u64,
}

impl Runs {
    /// So many idle lanes.
    pub(super) fn new(lanes: usize) -> Runs {
        Runs { lanes: (0..lanes).map(|_| None).collect(), ended: vec![None; lanes], busy: 0, next_pace: 1 }
    }

    /// Whether an idle lane has been idle for some time.
    pub(super) fn is_woken(&self, lane: usize, now: Instant) -> bool {
        self.ended.get(lane).copied().flatten() != Some(now)
    }

    /// A lane is busy from now on; [`Runs::pace`] has to follow.
    pub(super) fn begin(&mut self, lane: usize, run: Running) {
        if let Some(place) = self.lanes.get_mut(lane) {
            let since = run.begun;
            *place = Some(Progress { run, left: 1.0, since, whole: Duration::ZERO, pace: 0 });
            self.busy += 1;
        }
    }

    /// The run of a lane is over now, if that was foreseen at its last change of pace; [`Runs::pace`] has to follow.
    pub(super) fn end(&mut self, lane: usize, pace: u64, now: Instant) -> Option<Running> {
        let ended = self.lanes.get_mut(lane)?.take_if(|progress| progress.pace == pace)?;
        self.busy -= 1;
        *self.ended.get_mut(lane)? = Some(now);
        Some(ended.run)
    }

    /// Settles how fast each run goes on from now: lane, number of the pace and foreseen end of those for which that is
    /// another than before. `takes` tells what a run of a model takes.
    pub(super) fn pace(
        &mut self,
        now: Instant,
        takes: impl Fn(usize, Run) -> Duration,
    ) -> Vec<(usize, u64, Instant)> {
        let mut changed = vec![];
        for (lane, progress) in self.lanes.iter_mut().enumerate() {
            let Some(progress) = progress else { continue };
            let Running { model, rows, luck, woken, .. } = progress.run;
            let whole = takes(model, Run { rows, busy: self.busy, luck, woken });
            if whole == progress.whole && progress.pace > 0 {
                continue;
            }
            if progress.pace > 0 && !progress.whole.is_zero() {
                let passed = now.saturating_duration_since(progress.since).as_secs_f64();
                progress.left = (progress.left - passed / progress.whole.as_secs_f64()).max(0.0);
            }
            (progress.since, progress.whole, progress.pace) = (now, whole, self.next_pace);
            self.next_pace += 1;
            let left = if progress.left < 1.0 { whole.mul_f64(progress.left) } else { whole };
            changed.push((lane, progress.pace, now + left));
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_run_is_slower_for_as_long_as_another_is_beside_it() {
        let (mut runs, start) = (Runs::new(2), Instant::now());
        let run = |begun| Running { model: 0, rows: 1, luck: 0.5, woken: true, jobs: vec![], begun };
        let takes = |_, run: Run| 10 * MS * run.busy as u32;
        runs.begin(0, run(start));
        assert_eq!(runs.pace(start, takes), [(0, 1, start + 10 * MS)]);
        runs.begin(1, run(start + 5 * MS));
        let paces = runs.pace(start + 5 * MS, takes);
        assert_eq!(paces, [(0, 2, start + 15 * MS), (1, 3, start + 25 * MS)], "half of the first is left");
        let end = start + 15 * MS;
        assert!(runs.end(0, 1, end).is_none() && runs.end(0, 2, end).is_some());
        assert!(!runs.is_woken(0, end) && runs.is_woken(0, end + MS));
        assert_eq!(runs.pace(start + 15 * MS, takes), [(1, 4, start + 20 * MS)]);
        assert!(runs.pace(start + 16 * MS, takes).is_empty(), "nothing has changed");
    }
}

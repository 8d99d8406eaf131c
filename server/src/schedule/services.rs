//! How long the runs of a model take, by the rows that they take: measured, smoothed, and guessed where never measured.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Sizes that are told apart: 1, 2, 3 to 4, 5 to 8 and so on; the last one is everything above 65536 rows.
const SIZES: usize = 18;

/// What was measured longer ago says little of what a run would take now.
const LATELY: Duration = Duration::from_secs(5);

/// Smoothed times of runs. Two threads that write at once may lose one of two measurements, which does no harm.
#[derive(Debug, Default)]
pub(crate) struct Services {
    sizes: [Size; SIZES],
    /// When the last run of each size was measured.
    last: Mutex<[Option<Instant>; SIZES]>,
}

#[derive(Debug, Default)]
struct Size {
    /// Nanoseconds; 0 before the first run.
    mean_ns: AtomicU64,
    /// The mean distance from it.
    deviation_ns: AtomicU64,
}

/// What a run is expected to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Service {
    /// The mean.
    pub(crate) mean: Duration,
    /// How far from it runs are, on average.
    pub(crate) deviation: Duration,
}

impl Services {
    /// Notes a run. Weights as in the estimate of round trips in RFC 6298: an eighth for the mean, a quarter for the
    /// deviation; a half for the first run of its size for some time. One run that takes very long is believed in part
    /// only: if it is the rule, others will follow.
    pub(crate) fn record(&self, rows: usize, took: Duration, now: Instant) {
        let at = size_of(rows);
        let Some(size) = self.sizes.get(at) else { return };
        let lately = self.knows_lately(rows, now);
        if let Some(last) = self.last().get_mut(at) {
            *last = Some(now);
        }
        let part = if lately { 8 } else { 2 };
        let (mean, deviation) = (size.mean_ns.load(Relaxed), size.deviation_ns.load(Relaxed));
        let believed = if mean == 0 {
            u64::MAX
        } else {
            mean.saturating_mul(2).saturating_add(deviation.saturating_mul(4))
        };
        let ns = nanos(took).clamp(1, believed);
        let (mean, deviation) = match mean {
            0 => (ns, ns / 4),
            _ => (mean - mean / part + ns / part, deviation - deviation / 4 + mean.abs_diff(ns) / 4),
        };
        size.mean_ns.store(mean.max(1), Relaxed);
        size.deviation_ns.store(deviation, Relaxed);
    }

    /// Forgets what was measured of this size, for one measurement that is worth more.
    pub(crate) fn reset(&self, rows: usize, took: Duration) {
        let Some(size) = self.sizes.get(size_of(rows)) else { return };
        size.mean_ns.store(nanos(took).max(1), Relaxed);
        size.deviation_ns.store(0, Relaxed);
    }

    /// Whether a run of this size was ever measured.
    pub(crate) fn knows(&self, rows: usize) -> bool {
        self.sizes.get(size_of(rows)).is_some_and(|size| size.mean_ns.load(Relaxed) > 0)
    }

    /// Whether no run was measured within so long.
    pub(crate) fn is_stale(&self, now: Instant, within: Duration) -> bool {
        let last = self.last().iter().flatten().max().copied();
        last.is_none_or(|last| now.saturating_duration_since(last) > within)
    }

    /// Whether a run of this size has been measured within the last seconds.
    pub(crate) fn knows_lately(&self, rows: usize, now: Instant) -> bool {
        let last = self.last().get(size_of(rows)).copied().flatten();
        last.is_some_and(|last| now.saturating_duration_since(last) <= LATELY)
    }

    /// Nanoseconds for each row of a run of this size; `None` where none was ever measured.
    pub(crate) fn ns_per_row(&self, rows: usize) -> Option<f64> {
        let ns = self.sizes.get(size_of(rows))?.mean_ns.load(Relaxed);
        (ns > 0).then(|| ns as f64 / rows.max(1) as f64)
    }

    fn last(&self) -> MutexGuard<'_, [Option<Instant>; SIZES]> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a run of so many rows is expected to take; zero where no run was ever measured. A size that was not measured
    /// is taken for as long as its rows apart, as far as fewer were measured, or else for as long as more of them.
    pub(crate) fn of(&self, rows: usize) -> Service {
        let wanted = size_of(rows);
        let measured = |at: usize| {
            let size = self.sizes.get(at)?;
            let mean_ns = size.mean_ns.load(Relaxed);
            (mean_ns > 0).then(|| (mean_ns, size.deviation_ns.load(Relaxed)))
        };
        let smaller = || (0..wanted).rev().find_map(|at| Some((measured(at)?, 1u64 << (wanted - at))));
        let larger = || (wanted + 1..SIZES).find_map(|at| Some((measured(at)?, 1)));
        let found = measured(wanted).map(|found| (found, 1)).or_else(smaller).or_else(larger);
        let ((mean, deviation), times) = found.unwrap_or_default();
        let time = |ns: u64| Duration::from_nanos(ns.saturating_mul(times));
        Service { mean: time(mean), deviation: time(deviation) }
    }
}

fn size_of(rows: usize) -> usize {
    (rows.max(1).next_power_of_two().trailing_zeros() as usize).min(SIZES - 1)
}

/// Whole nanoseconds.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_was_not_measured_is_guessed_from_what_was() {
        let services = Services::default();
        assert_eq!(services.of(1), Service::default());
        services.record(8, 8 * MS, Instant::now());
        assert_eq!(services.of(1).mean, 8 * MS, "no longer than more rows");
        assert_eq!(services.of(5).mean, 8 * MS, "runs of 5 rows are runs of the bucket of 8");
        assert_eq!(services.of(32).mean, 32 * MS, "as long as its parts");
        services.record(1, 2 * MS, Instant::now());
        assert_eq!((services.of(1).mean, services.of(2).mean), (2 * MS, 4 * MS));
    }

    #[test]
    fn the_mean_follows_and_the_deviation_tells_how_steady_it_is() {
        let services = Services::default();
        for _ in 0..200 {
            services.record(1, 10 * MS, Instant::now());
        }
        let steady = services.of(1);
        assert!(steady.mean.abs_diff(10 * MS) < MS / 10 && steady.deviation < MS / 10, "{steady:?}");
        for at in 0..200 {
            services.record(1, if at % 2 == 0 { 10 * MS } else { 30 * MS }, Instant::now());
        }
        let wild = services.of(1);
        assert!(wild.mean.abs_diff(20 * MS) < 3 * MS && wild.deviation > 7 * MS, "{wild:?}");
    }

    #[test]
    fn one_run_that_takes_very_long_is_not_the_rule() {
        let (services, now) = (Services::default(), Instant::now());
        for _ in 0..50 {
            services.record(1, 10 * MS, now);
        }
        services.record(1, 8000 * MS, now);
        assert!(services.of(1).mean < 13 * MS, "{:?}", services.of(1));
        for _ in 0..60 {
            services.record(1, 8000 * MS, now);
        }
        assert!(services.of(1).mean > 7000 * MS, "but it may become so: {:?}", services.of(1));
        assert!(
            services.is_stale(now + 2000 * MS, 1000 * MS) && !services.is_stale(now + 500 * MS, 1000 * MS)
        );
        assert!(services.knows(1) && !services.knows(2));
    }
}

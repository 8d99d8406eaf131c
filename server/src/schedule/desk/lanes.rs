//! The lanes as the desk sees them: how large, whether busy, and until when.

use super::super::services::Services;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneSize {
    /// Bytes of its workspace.
    pub(crate) bytes: u64,
    /// Whether it is part of the reserve.
    pub(crate) burst: bool,
}

/// A run under way.
#[derive(Clone, Debug)]
pub(super) struct Busy {
    pub(super) model: u64,
    pub(super) services: Arc<Services>,
    /// Rows that the run has room for.
    pub(super) rows: usize,
    pub(super) since: Instant,
    pub(super) expected: Duration,
}

/// All lanes.
#[derive(Debug)]
pub(super) struct LaneStates {
    sizes: Vec<LaneSize>,
    busy: Vec<Option<Busy>>,
    idle: usize,
    steady: usize,
}

impl LaneStates {
    pub(super) fn new(sizes: Vec<LaneSize>) -> LaneStates {
        let (busy, idle) = (vec![None; sizes.len()], sizes.len());
        let steady = sizes.iter().filter(|lane| !lane.burst).count();
        LaneStates { sizes, busy, idle, steady }
    }

    /// How many steady lanes there are.
    pub(super) fn steady(&self) -> usize {
        self.steady
    }

    pub(super) fn has_any(&self) -> bool {
        !self.sizes.is_empty()
    }

    pub(super) fn has_idle(&self) -> bool {
        self.idle > 0
    }

    pub(super) fn is_burst(&self, lane: usize) -> bool {
        self.sizes.get(lane).is_some_and(|lane| lane.burst)
    }

    pub(super) fn bytes(&self, lane: usize) -> u64 {
        self.sizes.get(lane).map_or(0, |lane| lane.bytes)
    }

    /// The largest of a kind.
    pub(super) fn largest(&self, burst: bool) -> u64 {
        self.sizes.iter().filter(|lane| lane.burst == burst).map(|lane| lane.bytes).max().unwrap_or(0)
    }

    /// The idle lane of a kind with at least `need` bytes that suits a run which could do with `best`: the smallest that
    /// has so many, else the largest.
    pub(super) fn idle(&self, burst: bool, need: u64, best: u64) -> Option<usize> {
        let lanes = self.sizes.iter().zip(&self.busy).enumerate();
        lanes
            .filter(|(_, (size, busy))| busy.is_none() && size.burst == burst && size.bytes >= need)
            .min_by_key(|(_, (size, _))| match size.bytes >= best {
                true => (false, size.bytes),
                false => (true, u64::MAX - size.bytes),
            })
            .map(|(lane, _)| lane)
    }

    /// How many of a kind with at least so many bytes are idle.
    pub(super) fn count_idle(&self, burst: bool, need: u64) -> usize {
        let lanes = self.sizes.iter().zip(&self.busy);
        lanes.filter(|(size, busy)| busy.is_none() && size.burst == burst && size.bytes >= need).count()
    }

    pub(super) fn begin(&mut self, lane: usize, run: Busy) {
        if let Some(busy) = self.busy.get_mut(lane) {
            *busy = Some(run);
            self.idle -= 1;
        }
    }

    pub(super) fn end(&mut self, lane: usize) -> Option<Busy> {
        let ended = self.busy.get_mut(lane)?.take()?;
        self.idle += 1;
        Some(ended)
    }

    /// Lanes in which a model runs now.
    pub(super) fn busy_with(&self, model: u64) -> f64 {
        self.busy.iter().flatten().filter(|busy| busy.model == model).count() as f64
    }

    /// What is left of each lane's run, for lanes with at least `need` bytes: those of the reserve too where `burst`.
    pub(super) fn left(&self, burst: bool, need: u64, now: Instant) -> impl Iterator<Item = Duration> {
        let lanes = self.sizes.iter().zip(&self.busy);
        lanes
            .filter(move |(size, _)| size.bytes >= need && (burst || !size.burst))
            .map(move |(_, busy)| busy.as_ref().map_or(Duration::ZERO, |run| run.left(now)))
    }
}

impl Busy {
    /// What is left of the run: of one that is overdue, a quarter of what it has taken, since nobody knows what holds it
    /// up.
    fn left(&self, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.since);
        match self.expected.checked_sub(elapsed) {
            Some(left) => left,
            None if self.expected.is_zero() => Duration::ZERO,
            None => elapsed / 4,
        }
    }
}

#[cfg(all(test, not(loom)))] // the loom crate takes this file in without proptest
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_idle_lane_is_the_smallest_that_is_enough_or_else_the_largest(
            sizes in proptest::collection::vec((1u64..20, any::<bool>(), any::<bool>()), 0..8),
            need in 0u64..20,
            more in 0u64..10,
            burst in any::<bool>(),
        ) {
            let lane = |(bytes, burst, _): &(u64, bool, bool)| LaneSize { bytes: *bytes, burst: *burst };
            let mut lanes = LaneStates::new(sizes.iter().map(lane).collect());
            let run = Busy { model: 1, services: Arc::default(), rows: 1, since: Instant::now(), expected: Duration::ZERO };
            for (at, _) in sizes.iter().enumerate().filter(|(_, (.., busy))| *busy) {
                lanes.begin(at, run.clone());
            }
            let fitting = || {
                let kind = sizes.iter().filter(move |(bytes, of, busy)| *of == burst && !busy && *bytes >= need);
                kind.map(|(bytes, ..)| *bytes)
            };
            let enough = fitting().filter(|bytes| *bytes >= need + more).min();
            let found = lanes.idle(burst, need, need + more);
            prop_assert_eq!(found.map(|lane| lanes.bytes(lane)), enough.or(fitting().max()));
            prop_assert!(found.is_none_or(|lane| lanes.is_burst(lane) == burst && !sizes[lane].2));
            prop_assert_eq!(lanes.count_idle(burst, need), fitting().count());
        }
    }
}

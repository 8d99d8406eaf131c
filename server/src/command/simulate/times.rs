//! What runs take: as was said, or as was measured.

use crate::cli::Service;
use crate::command::timing::quantile;
use crate::schedule::simulation::Run;
use std::time::Duration;

/// What the runs of a model take.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Times {
    /// As was said, however many lanes are busy. Between two numbers of rows time grows evenly; above the largest by as
    /// much for each row as that one takes for each of its own.
    Given(Service),
    /// As was measured, by the rows of the run.
    Measured(Vec<Measured>),
}

/// The runs of one size.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) rows: usize,
    /// Fewest busy lanes first, one at least.
    pub(super) levels: Vec<Level>,
}

/// The runs of one size with so many lanes busy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Level {
    pub(super) busy: usize,
    /// Of runs that follow one another in their lane: shortest first, one at least.
    pub(super) follow: Vec<Duration>,
    /// Of runs whose lane has slept, likewise.
    pub(super) woken: Vec<Duration>,
}

impl Times {
    /// What a run takes.
    pub(super) fn takes(&self, run: Run) -> Duration {
        match self {
            Times::Given(Service(points)) => given(points, run.rows),
            Times::Measured(sizes) => {
                let size = sizes.iter().find(|size| size.rows >= run.rows).or(sizes.last());
                size.map_or(Duration::ZERO, |size| size.takes(run))
            }
        }
    }
}

fn given(points: &[(usize, Duration)], rows: usize) -> Duration {
    let after = points.partition_point(|(known, _)| *known < rows);
    let (Some((low, low_takes)), high) =
        (after.checked_sub(1).and_then(|at| points.get(at)), points.get(after))
    else {
        return points.first().map_or(Duration::ZERO, |(_, takes)| *takes);
    };
    match high {
        Some((high, high_takes)) => {
            let part = (rows - low) as f64 / (high - low) as f64;
            between(*low_takes, *high_takes, part)
        }
        None => low_takes.mul_f64(rows as f64 / *low as f64),
    }
}

impl Measured {
    /// What a run takes that is longer than this part of all. Between two numbers of busy lanes that were measured it
    /// grows evenly, and goes on so above the largest.
    pub(super) fn takes(&self, Run { busy, luck, woken, .. }: Run) -> Duration {
        let at = |level: &Level| {
            let times = if woken { &level.woken } else { &level.follow };
            (level.busy, quantile(times, luck))
        };
        let after = self.levels.partition_point(|level| level.busy < busy).max(1);
        let pair = |high: usize| Some((at(self.levels.get(high - 1)?), at(self.levels.get(high)?)));
        let pair = pair(after).or_else(|| pair(self.levels.len().saturating_sub(1).max(1)));
        match pair {
            Some(((low, short), (high, long))) => {
                let part = (busy.max(low) - low) as f64 / (high - low) as f64;
                between(short, long, part)
            }
            None => self.levels.first().map_or(Duration::ZERO, |level| at(level).1),
        }
    }
}

/// On the line through two times, `part` of the way from the one to the other; never below either's tenth.
fn between(from: Duration, to: Duration, part: f64) -> Duration {
    let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
    let least = from.min(to) / 10.0;
    Duration::from_secs_f64((from + (to - from) * part).max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_was_said_is_drawn_out_between_and_beyond_its_points() {
        let takes = |points: &[(usize, Duration)], rows| given(points, rows).as_millis();
        let points = [(2, 10 * MS), (4, 16 * MS)];
        assert_eq!([1, 2, 3, 4, 8].map(|rows| takes(&points, rows)), [10, 10, 13, 16, 32]);
        assert_eq!([1, 5].map(|rows| takes(&[(1, 7 * MS)], rows)), [7, 35]);
    }

    #[test]
    fn more_busy_lanes_are_slower_between_and_beyond_what_was_measured() {
        let level = |busy, ms: [u32; 3]| {
            let follow = ms.map(|ms| MS * ms).to_vec();
            Level { busy, woken: follow.iter().map(|takes| *takes * 2).collect(), follow }
        };
        let size = Measured { rows: 1, levels: vec![level(1, [10, 11, 12]), level(3, [20, 21, 40])] };
        let run = |busy, luck| Run { rows: 1, busy, luck, woken: false };
        let takes = |busy, luck| size.takes(run(busy, luck)).as_millis();
        assert_eq!([1, 2, 3, 4].map(|busy| takes(busy, 0.0)), [10, 15, 20, 25]);
        assert_eq!([1, 2, 3, 5].map(|busy| takes(busy, 0.99)), [12, 26, 40, 68]);
        assert_eq!(size.takes(Run { woken: true, ..run(2, 0.0) }), 30 * MS);
        let one = Measured { rows: 1, levels: vec![level(1, [10, 11, 12])] };
        assert_eq!(one.takes(run(5, 0.5)), 11 * MS);
    }
}

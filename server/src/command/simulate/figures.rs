//! What a simulation comes to, in figures.

use crate::command::timing::quantile;
use crate::schedule::simulation::{Arrival, Fate, Played, Ran};
use crate::schedule::{Admission, LaneSize};
use std::time::Duration;

/// All of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// In the order of the models.
    pub(super) models: Vec<OfModel>,
    /// From the first arrival to the last thing that happens.
    pub(super) lasted: Duration,
    /// The part of their time, 0 to 1, that steady lanes are busy.
    pub(super) steady_busy: f64,
    /// The same of burst lanes; 0 where there are none.
    pub(super) burst_busy: f64,
    /// The most lanes that are busy at once.
    pub(super) busy_peak: usize,
    /// When a request is refused first, since the start of the trace.
    pub(super) first_refusal: Option<Duration>,
}

/// What becomes of the requests of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OfModel {
    pub(super) requests: usize,
    pub(super) answered: usize,
    /// Refused, since the queue was full.
    pub(super) full: usize,
    /// Refused, since they could not have been answered in time.
    pub(super) too_late: usize,
    /// Refused, since no lane is large enough.
    pub(super) unfit: usize,
    /// Not answered by their deadlines.
    pub(super) expired: usize,
    /// From arrival to answer, the overhead included; sorted.
    pub(super) latencies: Vec<Duration>,
    pub(super) runs: usize,
    /// Rows of all runs.
    pub(super) rows: usize,
}

impl OfModel {
    /// The latency that this part of the answers, 0 to 1, is below; `None` where nothing was answered.
    pub(super) fn latency(&self, part: f64) -> Option<Duration> {
        (!self.latencies.is_empty()).then(|| quantile(&self.latencies, part))
    }

    /// Mean rows of a run; `None` where there was none.
    pub(super) fn rows_a_run(&self) -> Option<f64> {
        (self.runs > 0).then(|| self.rows as f64 / self.runs as f64)
    }
}

impl Figures {
    /// Counts. `overhead` is what every answer takes beside waiting and running.
    pub(super) fn of(
        models: usize,
        lanes: &[LaneSize],
        arrivals: &[Arrival],
        played: &Played,
        overhead: Duration,
    ) -> Figures {
        let mut figures = Figures { models: vec![OfModel::default(); models], ..Figures::default() };
        for (arrival, fate) in arrivals.iter().zip(&played.fates) {
            let Some(model) = figures.models.get_mut(arrival.model) else { continue };
            model.requests += 1;
            match fate {
                Fate::Answered { done, .. } => {
                    model.answered += 1;
                    model.latencies.push(done.saturating_sub(arrival.at) + overhead);
                }
                Fate::Expired { .. } => model.expired += 1,
                Fate::Unfit => model.unfit += 1,
                Fate::Refused(Admission::TooLate { .. }) => model.too_late += 1,
                Fate::Refused(_) => model.full += 1,
            }
            if matches!(fate, Fate::Refused(_) | Fate::Unfit) {
                figures.first_refusal.get_or_insert(arrival.at);
            }
        }
        for run in &played.runs {
            let Some(model) = figures.models.get_mut(run.model) else { continue };
            model.runs += 1;
            model.rows += run.rows;
        }
        figures.models.iter_mut().for_each(|model| model.latencies.sort_unstable());
        let begins = arrivals.first().map_or(Duration::ZERO, |arrival| arrival.at);
        let ends = arrivals
            .last()
            .map(|arrival| arrival.at)
            .into_iter()
            .chain(played.runs.iter().map(|run| run.done));
        figures.lasted = ends.max().unwrap_or(begins) - begins;
        let busy = |burst| busy(lanes, &played.runs, burst, figures.lasted);
        (figures.steady_busy, figures.burst_busy) = (busy(false), busy(true));
        figures.busy_peak = peak(&played.runs);
        figures
    }

    /// Answers a second, over all of the time.
    pub(super) fn goodput(&self, model: &OfModel) -> f64 {
        let seconds = self.lasted.as_secs_f64();
        if seconds > 0.0 { model.answered as f64 / seconds } else { 0.0 }
    }
}

/// The part of a kind of lanes' time that they are busy.
fn busy(lanes: &[LaneSize], runs: &[Ran], burst: bool, lasted: Duration) -> f64 {
    let count = lanes.iter().filter(|lane| lane.burst == burst).count();
    let of_kind = |run: &&Ran| lanes.get(run.lane).is_some_and(|lane| lane.burst == burst);
    let used: Duration = runs.iter().filter(of_kind).map(|run| run.done - run.begun).sum();
    let all = lasted.as_secs_f64() * count as f64;
    if all > 0.0 { used.as_secs_f64() / all } else { 0.0 }
}

/// The most runs at once.
fn peak(runs: &[Ran]) -> usize {
    // At the same moment what ends is counted before what begins.
    let mut changes: Vec<(Duration, bool)> =
        runs.iter().flat_map(|run| [(run.begun, true), (run.done, false)]).collect();
    changes.sort_unstable();
    let (mut busy, mut most) = (0usize, 0);
    for (_, begins) in changes {
        busy = if begins { busy + 1 } else { busy.saturating_sub(1) };
        most = most.max(busy);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn every_request_is_counted_once_and_lanes_by_their_kind() {
        let lane = |burst| LaneSize { bytes: 1, burst };
        let arrival = |at| Arrival { at: MS * at, model: 0, rows: 2, timeout: MS };
        let arrivals = [10, 10, 20, 30, 40, 50].map(arrival);
        let answered =
            |begun, done, lane| Fate::Answered { begun: MS * begun, done: MS * done, lane, together: 1 };
        let fates = vec![
            answered(10, 30, 0),
            answered(15, 30, 1),
            Fate::Expired { begun: true },
            Fate::Refused(Admission::Full { limit: 1, retry_after: MS }),
            Fate::Refused(Admission::TooLate { expected: MS, left: MS }),
            Fate::Unfit,
        ];
        let ran = |lane, begun, done| Ran { model: 0, lane, rows: 3, begun: MS * begun, done: MS * done };
        let runs = vec![ran(0, 10, 30), ran(1, 15, 30), ran(0, 30, 50)];
        let figures = Figures::of(1, &[lane(false), lane(true)], &arrivals, &Played { fates, runs }, MS);
        let model = &figures.models[0];
        let counts = [model.requests, model.answered, model.expired, model.full, model.too_late, model.unfit];
        assert_eq!(counts, [6, 2, 1, 1, 1, 1]);
        assert_eq!(model.latencies, [21 * MS, 21 * MS]);
        assert_eq!((model.latency(0.5), model.rows_a_run()), (Some(21 * MS), Some(3.0)));
        assert_eq!((figures.lasted, figures.busy_peak), (40 * MS, 2));
        assert_eq!((figures.steady_busy, figures.burst_busy), (1.0, 0.375));
        assert_eq!((figures.first_refusal, figures.goodput(model)), (Some(30 * MS), 50.0));
    }

    #[test]
    fn nothing_comes_to_nothing() {
        let figures = Figures::of(1, &[], &[], &Played { fates: vec![], runs: vec![] }, MS);
        let model = &figures.models[0];
        assert_eq!((model.latency(0.5), model.rows_a_run(), figures.goodput(model)), (None, None, 0.0));
    }
}

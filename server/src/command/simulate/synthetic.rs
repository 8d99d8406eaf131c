//! Arrivals that nobody recorded: at random or at even distances, at a rate that may swing.

use super::trace::Line;
use crate::cli::{Distances, Named, Wave};
use crate::command::random::Random;
use std::f64::consts::TAU;
use std::time::Duration;

/// The requests of all these models for so long, in the order of their times.
pub(super) fn requests(
    rates: &[Named<f64>],
    lasts: Duration,
    distances: Distances,
    wave: Option<Wave>,
    seed: u64,
) -> Vec<Line> {
    let mut lines: Vec<Line> = vec![];
    for (at, Named { model, value }) in rates.iter().enumerate() {
        // A sequence of its own for each model: one more leaves the others as they were.
        let mut random = Random::new(seed.wrapping_add(at as u64 + 1));
        let rate = Rate { per_second: *value, wave };
        let times = rate.times(lasts, distances, &mut random);
        lines.extend(times.map(|at| Line { at, model: model.clone(), rows: None, timeout: None }));
    }
    lines.sort_by_key(|line| line.at);
    lines
}

/// Requests a second, and how that swings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) per_second: f64,
    pub(super) wave: Option<Wave>,
}

impl Rate {
    /// How many requests are expected in the first `seconds`: the integral of
    /// `per_second · (1 + (factor − 1)/2 · (1 − cos(2πt/period)))`.
    pub(super) fn expected(&self, seconds: f64) -> f64 {
        let more = self.wave.map_or(0.0, |Wave { factor, period }| {
            let turn = TAU / period.as_secs_f64();
            (factor - 1.0) / 2.0 * (seconds - (turn * seconds).sin() / turn)
        });
        self.per_second * (seconds + more)
    }

    /// When requests come. On the scale of the number that is expected they come at distances of one, or of one on
    /// average as those of a Poisson process of rate one do.
    fn times<'a>(
        &'a self,
        lasts: Duration,
        distances: Distances,
        random: &'a mut Random,
    ) -> impl Iterator<Item = Duration> + 'a {
        let (mut reached, mut from, end) = (0.0, 0.0, lasts.as_secs_f64());
        let mut first = true;
        std::iter::from_fn(move || {
            reached += match distances {
                Distances::Even if std::mem::take(&mut first) => 0.0,
                Distances::Even => 1.0,
                Distances::Poisson => -(1.0 - random.unit()).ln(),
            };
            from = self.when(reached, from, end)?;
            Some(Duration::from_secs_f64(from))
        })
    }

    /// The seconds, at least `from`, in which so many are expected, by bisection; `None` where that is after `end`.
    fn when(&self, reached: f64, from: f64, end: f64) -> Option<f64> {
        if self.expected(end) <= reached {
            return None;
        }
        let (mut low, mut high) = (from, end);
        // To a nanosecond of the longest time that can be asked for.
        for _ in 0..48 {
            let middle = (low + high) / 2.0;
            match self.expected(middle) < reached {
                true => low = middle,
                false => high = middle,
            }
        }
        Some((low + high) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(distances: Distances, wave: Option<Wave>, seed: u64) -> Vec<f64> {
        let rates = [Named { model: "a".into(), value: 100.0 }];
        let lines = requests(&rates, Duration::from_secs(100), distances, wave, seed);
        lines.iter().map(|line| line.at.as_secs_f64()).collect()
    }

    #[test]
    fn random_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() {
        let times = times(Distances::Poisson, None, 7);
        assert!((9_700..10_300).contains(&times.len()), "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.95..1.05).contains(&(variance.sqrt() / mean)), "as much as the mean: {variance} {mean}");
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals_and_another_seed_others() {
        let [one, same, other] = [7, 7, 8].map(|seed| times(Distances::Poisson, None, seed));
        assert!(one == same && one != other);
    }

    #[test]
    fn even_arrivals_are_as_far_apart_as_the_rate_says() {
        let times = times(Distances::Even, None, 1);
        assert_eq!(times.len(), 10_000);
        assert!(times.iter().enumerate().all(|(at, time)| (time - at as f64 / 100.0).abs() < 1e-6));
    }

    #[test]
    fn a_wave_swings_between_the_rate_and_its_multiple() {
        let wave = Some(Wave { factor: 3.0, period: Duration::from_secs(10) });
        let times = times(Distances::Poisson, wave, 1);
        assert!((19_500..20_500).contains(&times.len()), "twice the rate on average: {}", times.len());
        let within = |from: f64, to: f64| {
            let phases = times.iter().map(|time| time % 10.0);
            phases.filter(|phase| (from..to).contains(phase)).count() as f64 / ((to - from) * 10.0)
        };
        let (trough, crest) = (within(0.0, 0.5), within(4.75, 5.25));
        assert!((90.0..120.0).contains(&trough) && (270.0..330.0).contains(&crest), "{trough} {crest}");
    }
}

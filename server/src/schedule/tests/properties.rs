//! What holds whatever comes, on a virtual clock.

use super::super::desk::{Bucket, LaneSize};
use super::super::simulation::{self, Arrival, Fate, Imagined, Run};
use super::*;
use proptest::prelude::*;

/// A model whose run of so many rows takes `fixed` and `each` for every row.
fn imagined(class: Class, most: usize, fixed: Duration, each: Duration) -> Imagined {
    let sizes = std::iter::successors(Some(1), |rows| Some(rows * 2)).take_while(|rows| *rows <= most);
    let buckets: Vec<Bucket> = sizes.map(|rows| Bucket { rows, bytes: rows as u64 * 10 }).collect();
    let takes = move |rows: usize| fixed + each * rows as u32;
    let services = Arc::new(Services::default());
    for bucket in &buckets {
        services.reset(bucket.rows, takes(bucket.rows));
    }
    // One alone is no group, as in the repository.
    let (buckets, alone) = if most > 1 { (buckets, vec![]) } else { (vec![], buckets) };
    let takes = Box::new(move |run: Run| takes(run.rows));
    Imagined { class: shared(class), services, buckets: buckets.into(), alone, takes }
}

fn simulate(lanes: Vec<LaneSize>, models: &[Imagined], arrivals: &[Arrival]) -> Vec<Fate> {
    simulation::simulate(lanes, models, arrivals, &mut || 0.5).fates
}

fn lanes(steady: usize, burst: usize) -> Vec<LaneSize> {
    let lane = |burst| LaneSize { bytes: 320, burst };
    [vec![lane(false); steady], vec![lane(true); burst]].concat()
}

/// Requests of one row at even distances.
fn evenly(model: usize, every: Duration, timeout: Duration, until: Duration) -> Vec<Arrival> {
    let times = (0..).map(|at| every * at).take_while(|at| *at < until);
    times.map(|at| Arrival { at, model, rows: 1, timeout }).collect()
}

fn merged(all: &[Vec<Arrival>]) -> Vec<Arrival> {
    let mut all = all.concat();
    all.sort_by_key(|arrival| arrival.at);
    all
}

/// From coming to being answered, of those that were.
fn latencies(arrivals: &[Arrival], fates: &[Fate], model: usize) -> Vec<Duration> {
    let pairs = arrivals.iter().zip(fates).filter(|(arrival, _)| arrival.model == model);
    let latency = |(arrival, fate): (&Arrival, &Fate)| match fate {
        Fate::Answered { done, .. } => Some(*done - arrival.at),
        _ => None,
    };
    pairs.filter_map(latency).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn at_twice_the_capacity_the_server_does_what_it_can_and_refuses_the_rest_at_once() {
    let model = [imagined(Class { queue_limit: 999, ..class(1, 5, MS) }, 1, 10 * MS, Duration::ZERO)];
    let arrivals = evenly(0, 5 * MS / 2, 100 * MS, 10 * SECOND);
    let fates = simulate(lanes(2, 0), &model, &arrivals);
    let answered = latencies(&arrivals, &fates, 0);
    assert!(answered.len() >= 1980, "{} of 2000 that two lanes can do in 10 s", answered.len());
    assert!(answered.iter().all(|latency| *latency <= 100 * MS));
    let expired = fates.iter().filter(|fate| matches!(fate, Fate::Expired { .. })).count();
    assert_eq!(expired, 0, "who is let in is answered in time");
}

#[test]
fn who_is_let_in_is_answered_in_time_though_runs_take_as_long_as_they_please() {
    // Twice the capacity, and runs of 2 to 18 ms that are all three times as long from the fifth second on.
    let class = Class { queue_limit: 999, ..class(1, 5, MS) };
    let mut runs = 0u32;
    let mut luck = || {
        runs += 1;
        // Above 1 are the later ones.
        f64::from(runs.wrapping_mul(2654435769) % 9) / 9.0 + if runs > 500 { 2.0 } else { 0.0 }
    };
    let takes = |run: Run| {
        let (luck, slow) = if run.luck >= 2.0 { (run.luck - 2.0, 3) } else { (run.luck, 1) };
        MS * 2 * slow * (1 + (luck * 9.0).round() as u32)
    };
    let alone = vec![Bucket { rows: 1, bytes: 10 }];
    let (services, buckets) = (Arc::default(), Arc::from([]));
    let model = [Imagined { class: shared(class), services, buckets, alone, takes: Box::new(takes) }];
    let arrivals = evenly(0, 5 * MS, 150 * MS, 20 * SECOND);
    let fates = simulation::simulate(lanes(1, 0), &model, &arrivals, &mut luck).fates;
    let (mut answered, mut late) = (0, 0);
    for fate in &fates {
        answered += usize::from(matches!(fate, Fate::Answered { .. }));
        late += usize::from(matches!(fate, Fate::Expired { .. }));
    }
    // Those that waited when runs became slower could not know.
    assert!(answered > 950 && late * 30 < answered, "{answered} answered, {late} late");
}

#[test]
fn rows_run_together_only_where_that_takes_less_time_for_each() {
    // Alone a row takes 10 ms; the price of each beside others is what differs.
    for (each, batches) in [(4, true), (8, true), (12, false), (20, false)] {
        let takes = move |rows: u32| if rows == 1 { 10 * MS } else { MS * each * rows };
        let model = imagined(Class { queue_limit: 999, ..class(1, 5, MS) }, 32, 10 * MS, Duration::ZERO);
        // Nobody knows yet what more than one row takes.
        model.services.reset(1, takes(1));
        let takes = Box::new(move |run: Run| takes(run.rows as u32));
        let models = [Imagined { services: Arc::default(), takes, ..model }];
        let arrivals = evenly(0, 2 * MS, 900 * MS, 20 * SECOND);
        let fates = simulate(lanes(1, 0), &models, &arrivals);
        let answered = latencies(&arrivals, &fates, 0).len();
        // What the best size could do; trying the others every few seconds takes some of it.
        let most = 20 * 1000 / each.min(10) as usize;
        assert!(answered * 100 >= most * 92, "{answered} of {most} at {each} ms");
        // Some of those that came in time were answered after it.
        let most_alone = 20_900 / 10;
        assert_eq!(answered > most_alone, batches, "{answered} at {each} ms");
    }
}

#[test]
fn a_share_is_given_to_who_has_work_and_what_it_leaves_goes_to_others() {
    let model = |number, share| Class { share, queue_limit: 999, ..class(number, 5, MS) };
    for (share, least) in [(0.0, 0), (0.5, 450)] {
        let models = [
            imagined(model(1, 0.0), 1, 10 * MS, Duration::ZERO),
            imagined(model(2, share), 1, 10 * MS, Duration::ZERO),
        ];
        // The first floods one lane; the second comes later and wants just half of it.
        let flood = evenly(0, 2 * MS, 500 * MS, 10 * SECOND);
        let other = evenly(1, 20 * MS, 60 * MS, 10 * SECOND);
        let arrivals = merged(&[flood, other]);
        let fates = simulate(lanes(1, 0), &models, &arrivals);
        let answered = [0, 1].map(|model| latencies(&arrivals, &fates, model).len());
        assert!(answered[1] >= least, "{answered:?} with a share of {share}");
        assert!(answered[0] + answered[1] >= 980, "{answered:?}: no lane is idle while something waits");
    }
}

#[test]
fn a_share_is_given_to_who_comes_while_another_floods_too() {
    let model = |number, share| Class { share, queue_limit: 999, ..class(number, 5, MS) };
    let models = [(1, 0.0), (2, 0.5)]
        .map(|(number, share)| imagined(model(number, share), 1, 10 * MS, Duration::ZERO));
    let flood = evenly(0, 2 * MS, 900 * MS, 10 * SECOND);
    let late: Vec<Arrival> = evenly(1, 20 * MS, 60 * MS, 10 * SECOND);
    let late: Vec<Arrival> = late.into_iter().filter(|arrival| arrival.at >= 5 * SECOND).collect();
    let arrivals = merged(&[flood, late]);
    let fates = simulate(lanes(1, 0), &models, &arrivals);
    let answered = latencies(&arrivals, &fates, 1).len();
    assert!(answered >= 220, "{answered} of 250");
}

#[test]
fn a_model_whose_run_once_took_very_long_is_not_refused_for_ever() {
    let models = [
        imagined(Class { queue_limit: 999, ..class(1, 5, MS) }, 1, 10 * MS, Duration::ZERO),
        imagined(Class { queue_limit: 999, ..class(2, 5, MS) }, 1, 10 * MS, Duration::ZERO),
    ];
    models[1].services.reset(1, 30 * SECOND);
    let busy = evenly(0, 11 * MS, SECOND, 20 * SECOND);
    let other = evenly(1, 500 * MS, SECOND, 20 * SECOND);
    let arrivals = merged(&[busy, other]);
    let fates = simulate(lanes(1, 0), &models, &arrivals);
    let late: Vec<_> = arrivals.iter().zip(&fates).filter(|(arrival, _)| arrival.model == 1).collect();
    let answered = late.iter().filter(|(_, fate)| matches!(fate, Fate::Answered { .. })).count();
    assert!(answered >= 5, "{answered} of {}", late.len());
}

#[test]
fn batches_carry_what_runs_one_by_one_cannot() {
    let of = |most| [imagined(Class { queue_limit: 999, ..class(1, 5, MS) }, most, 10 * MS, MS / 10)];
    let arrivals = evenly(0, MS, 200 * MS, 5 * SECOND);
    let [apart, together] = [1, 32].map(|most| {
        let fates = simulate(lanes(1, 0), &of(most), &arrivals);
        latencies(&arrivals, &fates, 0).len()
    });
    assert!(apart < 520 && together > 4900, "{apart} one by one, {together} of 5000 in batches");
}

#[test]
fn after_an_overload_the_next_request_finds_an_idle_server() {
    let model = [imagined(Class { queue_limit: 64, ..class(1, 5, MS) }, 1, 10 * MS, Duration::ZERO)];
    let mut arrivals = evenly(0, MS, SECOND, 10 * SECOND);
    arrivals.push(Arrival { at: 12 * SECOND, model: 0, rows: 1, timeout: SECOND });
    let fates = simulate(lanes(1, 0), &model, &arrivals);
    assert!(matches!(fates.last(), Some(Fate::Answered { begun, .. }) if *begun == 12 * SECOND));
}

#[test]
fn a_burst_of_the_reserves_size_loses_no_request() {
    let model = |_| [imagined(Class { queue_limit: 6, ..class(1, 5, MS) }, 1, 100 * MS, Duration::ZERO)];
    // Eight at once: two lanes, six places, or with the reserve four lanes.
    let burst: Vec<Arrival> =
        (0..8).map(|at| Arrival { at: MS * at, model: 0, rows: 1, timeout: 250 * MS }).collect();
    let [without, with] = [0, 2].map(|reserve| {
        let fates = simulate(lanes(2, reserve), &model(reserve), &burst);
        latencies(&burst, &fates, 0).len()
    });
    assert_eq!((without, with), (4, 8));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_comes_each_request_has_one_fate_and_nothing_overlaps_or_starves(
        requests in proptest::collection::vec((0u64..40, 0usize..3, 1usize..5, 20u64..400), 1..120),
        steady in 1usize..4,
        burst in 0usize..3,
        max_delay in 0u32..30,
    ) {
        let model = |number, priority, share, most, ms| {
            let class = Class { share, max_delay: MS * max_delay, queue_limit: 20, ..class(number, priority, MS) };
            imagined(class, most, MS * ms, MS)
        };
        let models = [model(1, 9, 0.0, 8, 3), model(2, 0, 0.0, 4, 10), model(3, 5, 0.3, 8, 1)];
        let mut at = Duration::ZERO;
        let arrivals: Vec<Arrival> = requests.into_iter().map(|(after, model, rows, timeout)| {
            at += MS * (after as u32 / 4);
            Arrival { at, model, rows, timeout: MS * timeout as u32 }
        }).collect();
        let fates = simulate(lanes(steady, burst), &models, &arrivals);
        prop_assert_eq!(fates.len(), arrivals.len());
        let mut runs: Vec<(usize, Duration, Duration)> = vec![];
        for (arrival, fate) in arrivals.iter().zip(&fates) {
            if let Fate::Answered { begun, done, lane, together } = fate {
                prop_assert!(*begun >= arrival.at && *done - arrival.at <= arrival.timeout, "{arrival:?} {fate:?}");
                prop_assert!(*together <= 8 && *lane < steady + burst);
                runs.push((*lane, *begun, *done));
            }
        }
        runs.sort_unstable();
        runs.dedup();
        for pair in runs.windows(2) {
            let ((lane, _, done), (next, begun, _)) = (pair[0], pair[1]);
            prop_assert!(lane != next || begun >= done, "two runs in one lane: {pair:?}");
        }
        // Work conservation: who waited did so while every steady lane was busy.
        for (arrival, fate) in arrivals.iter().zip(&fates) {
            let Fate::Answered { begun, .. } = fate else { continue };
            for lane in (0..steady).filter(|_| *begun > arrival.at) {
                let busy = runs.iter().any(|(at, from, to)| {
                    *at == lane && *from <= arrival.at && arrival.at < *to
                });
                let expired = fates.iter().any(|fate| matches!(fate, Fate::Expired { begun: true }));
                prop_assert!(busy || expired, "{arrival:?} waited beside the idle lane {lane}");
            }
        }
    }
}

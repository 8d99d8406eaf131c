//! `simulate`: arrivals, recorded or drawn, played against a configuration.

mod figures;
mod report;
mod subject;
mod synthetic;
mod times;
mod trace;

use super::random::Random;
use super::{Usage, start};
use crate::cli::{Named, Simulate};
use crate::config::Config;
use crate::schedule::LaneSize;
use crate::schedule::simulation::{Arrival, Imagined, simulate};
use anyhow::{bail, ensure};
use figures::Figures;
use plimsoll_engine::device::Opened;
use plimsoll_engine::slab::Layout;
use report::Report;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use subject::Subject;
use times::Times;
use trace::Line;

/// More requests than this are not drawn.
const MOST: f64 = 1e7;

pub(super) fn run(arguments: &Simulate) -> anyhow::Result<()> {
    let config = start::configuration(arguments.place.config.as_deref(), &arguments.flags())?;
    let device = start::device(&config)?;
    // Before anything is loaded: what the process holds then is a line under the ceiling.
    let lines = start::lines(&config, device.clone(), start::available_bytes(&device))?;
    let layout = lines.layout()?;
    let requests = requests(arguments)?;
    let models = models(&requests, arguments)?;
    let lanes = lanes(&layout);
    let largest = lanes.iter().map(|lane| lane.bytes).max().unwrap_or(0);
    let load =
        |(name, rows): (&String, &BTreeSet<usize>)| Subject::load(name, rows, &config, &device, largest);
    let subjects = models.iter().map(load).collect::<anyhow::Result<Vec<_>>>()?;
    let times = subjects
        .iter()
        .map(|subject| times(subject, arguments, &device, &lanes))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let steady = lines.lanes;
    let imagined: Vec<Imagined> = subjects
        .iter()
        .zip(&times)
        .enumerate()
        .map(|(number, (subject, times))| subject.imagined(number, &config, times, steady))
        .collect();
    let arrivals = arrivals(&requests, &subjects, arguments, &config);
    let mut luck = Random::new(arguments.seed);
    let played = simulate(lanes.clone(), &imagined, &arrivals, &mut || luck.unit());
    let figures = Figures::of(subjects.len(), &lanes, &arrivals, &played, arguments.overhead);
    let fixed = lines.fixed;
    let report = Report {
        arguments,
        device: &device,
        fixed,
        layout: &layout,
        subjects: &subjects,
        times: &times,
        figures,
    };
    let mut out = std::io::stdout().lock();
    match arguments.json {
        true => writeln!(out, "{}", report.document())?,
        false => report.text(&mut out)?,
    }
    Ok(())
}

/// The requests of the trace, or those that are drawn.
fn requests(arguments: &Simulate) -> anyhow::Result<Vec<Line>> {
    let requests = match &arguments.trace {
        Some(file) => trace::read(file)?,
        None => {
            let seconds = arguments.seconds.as_secs_f64();
            let rate = |Named { value, .. }: &Named<f64>| synthetic::Rate {
                per_second: *value,
                wave: arguments.wave,
            };
            let expected: f64 = arguments.rates.iter().map(|named| rate(named).expected(seconds)).sum();
            if expected > MOST {
                bail!(Usage(format!(
                    "{expected:.0} requests: {MOST:.0} at most are drawn; lower --rate or --seconds"
                )));
            }
            let Simulate { rates, seconds, arrivals, wave, seed, .. } = arguments;
            synthetic::requests(rates, *seconds, *arrivals, *wave, *seed)
        }
    };
    ensure!(!requests.is_empty(), Usage("no request comes: there is nothing to simulate".into()));
    Ok(requests)
}

/// The models that requests come for, in name order, each with the rows that they bring.
///
/// # Errors
/// Something is said of a model that no request comes for.
fn models(requests: &[Line], arguments: &Simulate) -> anyhow::Result<BTreeMap<String, BTreeSet<usize>>> {
    let mut models: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for request in requests {
        let rows = rows(request, arguments);
        match models.get_mut(&request.model) {
            Some(all) => drop(all.insert(rows)),
            None => drop(models.insert(request.model.clone(), BTreeSet::from([rows]))),
        }
    }
    let named = arguments.rows.iter().map(|named| &named.model);
    let mut named = named.chain(arguments.services.iter().map(|named| &named.model));
    match named.find(|model| !models.contains_key(*model)) {
        Some(model) => {
            let names: Vec<&str> = models.keys().map(String::as_str).collect();
            bail!(Usage(format!(
                "no request comes for model `{model}`; there are some for {}",
                names.join(", ")
            )))
        }
        None => Ok(models),
    }
}

fn rows(request: &Line, arguments: &Simulate) -> usize {
    let said = || arguments.rows.iter().find(|named| named.model == request.model).map(|named| named.value);
    request.rows.or_else(said).unwrap_or(1)
}

/// The lanes as the server numbers them.
fn lanes(layout: &Layout) -> Vec<LaneSize> {
    let steady = layout.steady().iter().map(|lane| LaneSize { bytes: lane.bytes, burst: false });
    steady.chain(layout.burst().iter().map(|lane| LaneSize { bytes: lane.bytes, burst: true })).collect()
}

/// What runs take: as the arguments say, else as is measured with one lane busy, with all steady lanes, and with as many
/// more as there are in the reserve, twice the steady ones at most.
fn times(
    subject: &Subject,
    arguments: &Simulate,
    device: &Opened,
    lanes: &[LaneSize],
) -> anyhow::Result<Times> {
    if let Some(said) = arguments.services.iter().find(|named| named.model == subject.name) {
        return Ok(Times::Given(said.value.clone()));
    }
    let steady = lanes.iter().filter(|lane| !lane.burst).count();
    let busy: Vec<usize> = BTreeSet::from([1, steady, lanes.len().min(2 * steady)]).into_iter().collect();
    eprintln!(
        "measuring {}: {} times {:.2?}; --measure makes that shorter or longer",
        subject.name,
        subject.buckets().count() * busy.len(),
        arguments.measure
    );
    let watched = std::io::stderr().is_terminal();
    let tell = |rows: usize, busy: usize| {
        if watched {
            eprintln!("measuring {}: {rows} rows a run, {busy} lanes busy", subject.name);
        }
    };
    subject.measure(device, &busy, arguments.measure, tell)
}

fn arrivals(requests: &[Line], subjects: &[Subject], arguments: &Simulate, config: &Config) -> Vec<Arrival> {
    let models: BTreeMap<&str, (usize, _)> = subjects
        .iter()
        .enumerate()
        .map(|(at, subject)| (subject.name.as_str(), (at, subject.timeout(config))))
        .collect();
    let arrival = |request: &Line| {
        let (model, most) = *models.get(request.model.as_str())?;
        let timeout = request.timeout.or(arguments.timeout).map_or(most, |timeout| timeout.min(most));
        Some(Arrival { at: request.at, model, rows: rows(request, arguments), timeout })
    };
    requests.iter().filter_map(arrival).collect()
}

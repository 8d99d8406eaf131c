//! `simulate`: what comes, what runs take, and the forms in which that is written.

use super::Place;
use super::values::{count, seconds};
use crate::config::{self, Flags, Kind};
use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// `simulate`.
#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// Arrivals to replay: CSV with the columns at_ms, model, rows and timeout_ms, of which the last two may be left
    /// away. `log.arrivals` has a server record one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rates", "wave"], required_unless_present = "rates")]
    pub(crate) trace: Option<PathBuf>,
    /// Requests a second for a model, instead of a trace; once for each model
    #[arg(long = "rate", value_name = "MODEL=PER_SECOND")]
    pub(crate) rates: Vec<Named<f64>>,
    /// How long requests come
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// How they come: at random, or at even distances
    #[arg(long, value_name = "HOW", default_value = "poisson")]
    pub(crate) arrivals: Distances,
    /// The rates swing between theirs and FACTOR times that, once every PERIOD; such as 3:10s
    #[arg(long, value_name = "FACTOR:PERIOD")]
    pub(crate) wave: Option<Wave>,
    /// For everything that is drawn: the same seed gives the same figures for the same service times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Rows of each request of a model, where the trace does not say [default: 1]; once for each model
    #[arg(long = "rows", value_name = "MODEL=N")]
    pub(crate) rows: Vec<Named<usize>>,
    /// How long a request may take, where the trace does not say [default: the model's own]; never more than that
    #[arg(long, value_name = "DURATION", value_parser = config::values::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// What runs of a model take however many lanes are busy, instead of measuring it here: milliseconds by rows, such
    /// as detector=1:12.5,8:60; once for each model
    #[arg(long = "service", value_name = "MODEL=ROWS:MS,…")]
    pub(crate) services: Vec<Named<Service>>,
    /// How long each run is measured, for each number of busy lanes
    #[arg(long, value_name = "SECONDS", default_value = "0.3", value_parser = seconds)]
    pub(crate) measure: Duration,
    /// What a request takes beside waiting and running: HTTP, and handing it to a lane and back
    #[arg(long, value_name = "DURATION", default_value = "150us", value_parser = config::values::parse_duration)]
    pub(crate) overhead: Duration,
    /// Bytes that the whole process may hold on the device [default: `memory.ceiling`]
    #[arg(long, value_name = "SIZE", value_parser = config::values::parse_size)]
    pub(crate) ceiling: Option<ByteSize>,
    /// What computes [default: `device.kind`, else auto]
    #[arg(long, value_name = "KIND")]
    pub(crate) device: Option<Kind>,
    /// Configuration and models.
    #[command(flatten)]
    pub(crate) place: Place,
    /// Print what was measured of each run as well; the JSON document has it always
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// How far apart requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distances {
    /// At random, each as likely at one moment as at the next
    Poisson,
    /// At even distances
    Even,
}

/// `FACTOR:PERIOD`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wave {
    /// How many times as high the rate is at the crest, 1 to 1000.
    pub(crate) factor: f64,
    /// From one crest to the next, above zero.
    pub(crate) period: Duration,
}

/// Something of a model, `MODEL=…`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named<T> {
    /// The model.
    pub(crate) model: String,
    /// What is said of it.
    pub(crate) value: T,
}

/// `ROWS:MS,…`: what runs take, fewest rows first, one at least.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Service(pub(crate) Vec<(usize, Duration)>);

impl Simulate {
    /// What these arguments override in the configuration.
    pub(crate) fn flags(&self) -> Flags {
        Flags { ceiling: self.ceiling, device: self.device, ..self.place.flags() }
    }
}

fn named<T>(text: &str, example: &str, read: impl Fn(&str) -> Option<T>) -> Result<Named<T>, String> {
    let parts = text.split_once('=').filter(|(model, _)| !model.is_empty());
    let read = parts.and_then(|(model, value)| Some(Named { model: model.into(), value: read(value)? }));
    read.ok_or_else(|| format!("expected {example}, got `{text}`"))
}

impl FromStr for Named<f64> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = |text: &str| text.parse::<f64>().ok().filter(|rate| (0.001..=1e6).contains(rate));
        named(text, "MODEL=PER_SECOND with 0.001 to 1000000 requests a second, such as detector=20", rate)
    }
}

impl FromStr for Named<usize> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(text, "MODEL=N with a whole number from 1 to 65536, such as detector=4", |rows| {
            count(rows).ok()
        })
    }
}

impl FromStr for Named<Service> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let point = |text: &str| {
            let (rows, ms) = text.split_once(':')?;
            let ms: f64 = ms.parse().ok().filter(|ms| (0.001..=1e6).contains(ms))?;
            Some((count(rows).ok()?, Duration::from_secs_f64(ms / 1e3)))
        };
        let service = |text: &str| {
            let mut points: Vec<_> = text.split(',').map(point).collect::<Option<_>>()?;
            points.sort_unstable();
            let twice = points.windows(2).any(|pair| matches!(pair, [one, next] if one.0 == next.0));
            (!twice).then_some(Service(points))
        };
        named(text, "MODEL=ROWS:MS,… with each number of rows once, such as detector=1:12.5,8:60", service)
    }
}

impl FromStr for Wave {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wave = || {
            let (factor, period) = text.split_once(':')?;
            let factor = factor.parse().ok().filter(|factor| (1.0..=1000.0).contains(factor))?;
            let period = config::values::parse_duration(period).ok().filter(|period| !period.is_zero())?;
            Some(Wave { factor, period })
        };
        wave().ok_or_else(|| {
            format!("expected FACTOR:PERIOD with a factor from 1 to 1000, such as 3:10s, got `{text}`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_said_of_models_is_read() {
        let read = |text: &str| text.parse::<Named<Service>>().unwrap().value.0;
        assert_eq!(read("a=8:60,1:12.5"), [(1, 25 * MS / 2), (8, 60 * MS)]);
        let rate: Named<f64> = "a.b=0.5".parse().unwrap();
        assert_eq!(rate, Named { model: "a.b".into(), value: 0.5 });
        assert_eq!("3:10s".parse(), Ok(Wave { factor: 3.0, period: 10_000 * MS }));
    }

    #[test]
    fn what_is_wrong_is_told_with_what_came() {
        for text in ["a", "=1", "a=", "a=x", "a=-1", "a=inf", "a=0"] {
            let error = text.parse::<Named<f64>>().unwrap_err();
            assert!(
                error.contains("such as detector=20") && error.ends_with(&format!("got `{text}`")),
                "{error}"
            );
        }
        for text in ["a=1", "a=0:1", "a=1:0", "a=1:2,1:3", "a=1:2,"] {
            assert!(text.parse::<Named<Service>>().is_err(), "{text}");
        }
        for text in ["3", "0.5:1s", "3:0s", "3:x"] {
            assert!(text.parse::<Wave>().is_err(), "{text}");
        }
    }
}

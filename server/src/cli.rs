//! The command line: what can be asked, and what each argument must look like.

mod simulate;
mod values;

#[cfg(test)]
mod tests;

use crate::config::{self, Flags, Kind};
use crate::repository::Precision;
use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use values::{address, architecture, count, seconds};

pub(crate) use simulate::{Distances, Named, Service, Simulate, Wave};
pub(crate) use values::{InputFile, InputShape, ModelRef};

/// Serves ONNX models over HTTP; a model that does not fit under the ceiling you set is refused with the figures.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, arg_required_else_help = true)]
#[command(after_help = "\
Start with a folder of models, one NAME.onnx or NAME/model.onnx each:

    plimsoll serve --models ./models --ceiling 2GiB

Exit codes: 0 good, 1 failed, 2 bad usage or configuration.")]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What can be asked.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the models of a folder over HTTP
    #[command(after_help = "\
Every key of plimsoll.toml can also be set by an environment variable, for example
PLIMSOLL_MEMORY__CEILING=2GiB for `ceiling` in [memory]. Flags win over the environment, the
environment over the file.")]
    Serve(Start),
    /// Go through the whole start without listening: what fits under the ceiling and what is left
    Check(Check),
    /// Run a model once on given inputs, without a server
    #[command(after_help = "\
Example:

    plimsoll infer digits --input image=seven.npy --output-dir out

An input that is not given is filled with zeros of the shape that the model declares or model.toml prepares.")]
    Infer(Infer),
    /// Show what a model takes: weights, workspace, and each step of its plan
    #[command(after_help = "\
Examples:

    plimsoll plan detector --svg detector.svg
    plimsoll plan detector.onnx --shape images=1x3x320x320 --json

Sizes that the model leaves open are those of its first `prepare` in model.toml, else 1 for the first axis.")]
    Plan(Plan),
    /// Compare planned models with tract's own plan of them, run whole, on random inputs
    #[command(after_help = "\
Examples:

    plimsoll selftest                  every model of the repository
    plimsoll selftest detector.onnx --shape images=1x3x320x320 --threads 2

Floats a and b count as equal where |a - b| <= 1e-4 |b| + 1e-6 max(1, max|b|); the worst of a model is told as a
share of that bound. On a GPU |a - b| <= 1e-4 max|b| will do as well. Whole numbers and bools must be equal. The exit
code is 1 where a model differs or fails.")]
    Selftest(SelfTest),
    /// Measure latency and throughput of a model in this process, without HTTP
    #[command(after_help = "\
Examples:

    plimsoll bench digits --batch 8 --lanes 2
    plimsoll bench detector.onnx --shape images=1x3x320x320 --seconds 10 --json
    plimsoll bench digits --null --listen 127.0.0.1:8000")]
    Bench(Bench),
    /// Play arrivals against a configuration, without serving: latency, goodput, lanes and memory
    #[command(after_help = "\
Examples:

    plimsoll simulate --trace arrivals.csv
    plimsoll simulate --rate detector=20 --wave 3:10s --seconds 60
    plimsoll simulate --rate detector=20 --service detector=1:8,8:35

The scheduler is the server's own, on a clock that does not wait. What runs take is measured here first, by models that
are loaded without a ceiling, with as many lanes busy as the configuration can have busy at once; --service says it for
a device that is not at hand. How much workspace a run needs is read off its plan. Real latencies were higher than
simulated ones so far, see SPECIFICATION.md.")]
    Simulate(Simulate),
    /// Show the live memory map of a running server
    Memory(Memory),
    /// Ask a server whether it is ready: exit code 0 where it is, 1 with the reason where it is not
    #[command(after_help = "\
Examples:

    plimsoll health
    plimsoll health --url https://plimsoll.example:8000

Without --url the server is the one that `plimsoll serve` with the same configuration file and environment would be, asked
on the loopback where it listens everywhere. It has 2 s to answer. The certificate of an https server is not checked.")]
    Health(Health),
    /// CUDA binaries ahead of time
    #[command(subcommand)]
    Kernels(Kernels),
}

/// Where the configuration and the models are.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Configuration file [default: ./plimsoll.toml where it exists, else built-in defaults]
    #[arg(long, value_name = "FILE", env = config::FILE_VARIABLE)]
    pub(crate) config: Option<PathBuf>,
    /// Folder of models [default: `models.path`, else ./models]
    #[arg(long, value_name = "DIR")]
    pub(crate) models: Option<PathBuf>,
}

/// `serve`, and what `check` shares with it.
#[derive(Debug, Args)]
pub(crate) struct Start {
    /// Configuration and models.
    #[command(flatten)]
    pub(crate) place: Place,
    /// Address and port to listen on, such as 0.0.0.0:8000 [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Bytes that the whole process may hold on the device, such as 2GiB [default: 1GiB, or half of what is
    /// available where that is less]
    #[arg(long, value_name = "SIZE", value_parser = config::values::parse_size)]
    pub(crate) ceiling: Option<ByteSize>,
    /// What computes [default: auto]
    #[arg(long, value_name = "KIND")]
    pub(crate) device: Option<Kind>,
}

/// `check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// As for `serve`.
    #[command(flatten)]
    pub(crate) start: Start,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// `infer`.
#[derive(Debug, Args)]
pub(crate) struct Infer {
    /// Name of a model in the repository, or the path of an ONNX file
    #[arg(value_name = "MODEL")]
    pub(crate) model: ModelRef,
    /// Array for an input, from a NumPy file; once for each input
    #[arg(long = "input", value_name = "NAME=FILE.npy")]
    pub(crate) inputs: Vec<InputFile>,
    /// Folder to write each output to, as OUTPUT.npy; without it the outputs are printed
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// What computes [default: `device.kind`, else auto]
    #[arg(long, value_name = "KIND")]
    pub(crate) device: Option<Kind>,
    /// Configuration and models.
    #[command(flatten)]
    pub(crate) place: Place,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// `memory`.
#[derive(Debug, Args)]
pub(crate) struct Memory {
    /// The server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub(crate) url: http::Uri,
    /// Print the server's JSON and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// `health`.
#[derive(Debug, Args)]
pub(crate) struct Health {
    /// The server [default: what the configuration listens on]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<http::Uri>,
    /// Configuration file [default: ./plimsoll.toml where it exists, else built-in defaults]
    #[arg(long, value_name = "FILE", env = config::FILE_VARIABLE)]
    pub(crate) config: Option<PathBuf>,
}

/// `plan`.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Name of a model in the repository, or the path of an ONNX file
    #[arg(value_name = "MODEL")]
    pub(crate) model: ModelRef,
    /// Shape of an input, such as images=1x3x224x224
    #[arg(long = "shape", value_name = "NAME=AxBxC")]
    pub(crate) shapes: Vec<InputShape>,
    /// Rows: the size of the first axis where the model leaves it open
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) batch: Option<usize>,
    /// CPU threads of each run, which decide how much scratch steps need [default: `device.threads`, else 1]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) threads: Option<usize>,
    /// Number format to compute with [default: the model's own setting, else fp32]
    #[arg(long, value_name = "PRECISION")]
    pub(crate) precision: Option<Precision>,
    /// Also draw the workspace into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print the graph that is planned instead of the plan
    #[arg(long, conflicts_with = "json")]
    pub(crate) dump: bool,
    /// Print what was fused and what was not and why, instead of the plan
    #[arg(long, conflicts_with_all = ["json", "dump"])]
    pub(crate) explain: bool,
    /// What computes [default: `device.kind`, else auto]
    #[arg(long, value_name = "KIND")]
    pub(crate) device: Option<Kind>,
    /// Configuration and models.
    #[command(flatten)]
    pub(crate) place: Place,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// `selftest`.
#[derive(Debug, Args)]
pub(crate) struct SelfTest {
    /// Names of models in the repository, or paths of ONNX files [default: the whole repository]
    #[arg(value_name = "MODEL")]
    pub(crate) names: Vec<ModelRef>,
    /// Shape of an input; for a single model
    #[arg(long = "shape", value_name = "NAME=AxBxC")]
    pub(crate) shapes: Vec<InputShape>,
    /// Array for an input instead of random values, from a NumPy file; for a single model
    #[arg(long = "input", value_name = "NAME=FILE.npy")]
    pub(crate) inputs: Vec<InputFile>,
    /// Folder whose folders are cases: model.onnx, its inputs in order as inputs/0.npy and so on; the outputs are
    /// written beside them, as planned/0.npy and reference/0.npy
    #[arg(long, value_name = "DIR", conflicts_with_all = ["names", "shapes", "inputs"])]
    pub(crate) cases: Option<PathBuf>,
    /// CPU threads of each run [default: `device.threads`, else 1]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) threads: Option<usize>,
    /// What computes [default: `device.kind`, else auto]
    #[arg(long, value_name = "KIND")]
    pub(crate) device: Option<Kind>,
    /// Number format to compute with [default: the model's own setting, else fp32]
    #[arg(long, value_name = "PRECISION")]
    pub(crate) precision: Option<Precision>,
    /// Configuration and models.
    #[command(flatten)]
    pub(crate) place: Place,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// `kernels`.
#[derive(Debug, Subcommand)]
pub(crate) enum Kernels {
    /// Compile every kernel for some GPUs, on a machine with NVIDIA's run-time compiler (NVRTC); no GPU is needed
    #[command(after_help = "\
Example, for Jetson Orin and Thor:

    plimsoll kernels build --arch sm_87,sm_110 --out kernels

Where a server finds them: device.kernels in plimsoll.toml.")]
    Build(BuildKernels),
}

/// `kernels build`.
#[derive(Debug, Args)]
pub(crate) struct BuildKernels {
    /// Architectures, such as sm_87,sm_110
    #[arg(long = "arch", value_name = "sm_NN", value_delimiter = ',', required = true, value_parser = architecture)]
    pub(crate) architectures: Vec<u32>,
    /// Folder to write them to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Fail where the compiler had to spill registers to memory
    #[arg(long)]
    pub(crate) deny_spills: bool,
}

/// `bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Name of a model in the repository, or the path of an ONNX file
    #[arg(value_name = "MODEL")]
    pub(crate) model: ModelRef,
    /// Shape of an input, such as images=1x3x224x224; needed where the model leaves sizes open
    #[arg(long = "shape", value_name = "NAME=AxBxC")]
    pub(crate) shapes: Vec<InputShape>,
    /// Rows of each run: the size of the first axis where the model leaves it open [default: what its model.toml
    /// prepares, else 1]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) batch: Option<usize>,
    /// Runs at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    pub(crate) lanes: usize,
    /// CPU threads of each run [default: `device.threads`, else 1]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) threads: Option<usize>,
    /// What computes [default: `device.kind`, else auto]
    #[arg(long, value_name = "KIND")]
    pub(crate) device: Option<Kind>,
    /// Number format to compute with [default: the model's own setting, else fp32]
    #[arg(long, value_name = "PRECISION")]
    pub(crate) precision: Option<Precision>,
    /// How long to measure, after a warm-up
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Run tract's own plan of the model whole, to compare with
    #[arg(long)]
    pub(crate) reference: bool,
    /// Time runs as well whose inputs and outputs stay in the GPU's memory, as tools do that do not count copies
    #[arg(long, conflicts_with = "reference")]
    pub(crate) resident: bool,
    /// Time each step of the plan by itself as well, and print the slowest ten
    #[arg(long, conflicts_with = "reference")]
    pub(crate) steps: bool,
    /// Serve the model over HTTP until stopped, with runs that compute nothing: what a load generator then measures is
    /// the server alone
    #[arg(long, conflicts_with_all =
        ["shapes", "batch", "lanes", "precision", "seconds", "reference", "resident", "steps", "json"])]
    pub(crate) null: bool,
    /// With --null: address and port to listen on [default: `server.listen`, else 127.0.0.1:8000]
    #[arg(long, value_name = "ADDRESS", value_parser = address, requires = "null")]
    pub(crate) listen: Option<SocketAddr>,
    /// Configuration and models.
    #[command(flatten)]
    pub(crate) place: Place,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

impl Place {
    /// The folder of models as an override of the configuration.
    pub(crate) fn flags(&self) -> Flags {
        Flags { models: self.models.clone(), ..Flags::default() }
    }
}

impl Start {
    /// What these arguments override in the configuration.
    pub(crate) fn flags(&self) -> Flags {
        Flags { listen: self.listen, ceiling: self.ceiling, device: self.device, ..self.place.flags() }
    }
}

impl Infer {
    /// What these arguments override in the configuration.
    pub(crate) fn flags(&self) -> Flags {
        Flags { device: self.device, ..self.place.flags() }
    }
}

impl Plan {
    /// What these arguments override in the configuration.
    pub(crate) fn flags(&self) -> Flags {
        Flags { device: self.device, ..self.place.flags() }
    }
}

impl SelfTest {
    /// What these arguments override in the configuration.
    pub(crate) fn flags(&self) -> Flags {
        Flags { device: self.device, ..self.place.flags() }
    }
}

impl Bench {
    /// What these arguments override in the configuration.
    pub(crate) fn flags(&self) -> Flags {
        Flags { listen: self.listen, device: self.device, ..self.place.flags() }
    }
}

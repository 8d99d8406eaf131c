//! The commands, and how each ends: 0 good, 1 failed, 2 bad usage or configuration.

mod bench;
mod check;
mod client;
mod health;
mod infer;
mod kernels;
mod logging;
mod memory;
mod model;
mod noise;
mod npy;
mod plan;
mod random;
mod selftest;
mod serve;
mod simulate;
mod start;
mod timing;
mod warm;

use crate::cli::{Cli, Command, Kernels};
use crate::config::ConfigError;
#[cfg(test)]
pub(crate) use random::Random;
use std::io::ErrorKind;
use std::process::ExitCode;

/// Bad usage or configuration.
const USAGE: u8 = 2;

/// An error of usage that only shows once the configuration and the model are known.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// Runs what was asked for.
pub(crate) fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Infer(arguments) => infer::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Selftest(arguments) => selftest::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Memory(arguments) => memory::run(&arguments),
        Command::Health(arguments) => health::run(&arguments),
        Command::Kernels(Kernels::Build(arguments)) => kernels::build(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads the output has seen enough, as `head` does.
        Err(error)
            if error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("plimsoll: {error:#}");
            let usage = error.is::<ConfigError>() || error.is::<Usage>();
            if usage { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

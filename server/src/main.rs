//! Plimsoll: an edge inference server with a load line.
//!
//! Arguments → configuration → engine → scheduler → listen. The modules stand in that order.

/// Where memory comes from and goes to.
mod allocator;

/// What can be asked on the command line.
mod cli;

/// Arguments, file and environment to one checked configuration.
mod config;

/// What the system says of this process.
mod process;

/// What the process really holds, against the ceiling.
mod load_line;

/// Every metric once.
mod metrics;

/// Admission, queue and workers.
mod schedule;

/// The folder of models, and what of it is served.
mod repository;

/// The protocol over HTTP.
mod http;

/// What a service manager gives and is told.
mod systemd;

/// The end of the process.
mod shutdown;

/// A module a command.
mod command;

/// What comes from outside, mutated.
#[cfg(test)]
mod fuzz;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::give_back_at_once();
    command::run(cli::Cli::parse())
}

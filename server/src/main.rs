//! Plimsoll: an edge inference server with a load line.

mod config;
mod http;
mod repository;

fn main() {}

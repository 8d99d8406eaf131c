//! Admission, the queue and the workers: a request's way to a lane and back.
//!
//! Any model runs on any lane. A job is run by a worker, a thread that owns its lane for that long; only a run so
//! short that the hand-over would cost more is done by the thread that brings it, where a lane is idle.

mod bursts;
mod hall;
mod queue;
mod sync;
mod worker;

pub(crate) use queue::{Admission, Class, Priority};
pub(crate) use worker::{Failed, Scheduler};

#[cfg(test)]
mod tests;

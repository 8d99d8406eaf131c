//! Admission, the queue and the workers: a request's way to a lane and back.
//!
//! Each worker is a thread that owns its workspace; any model runs on any of them. The tasks of the HTTP side never
//! run a model: they hand a [`Job`] over and wait for its answer.

mod queue;
mod worker;

pub(crate) use queue::{Admission, Class, Priority};
pub(crate) use worker::{Failed, Scheduler};

#[cfg(test)]
mod tests;

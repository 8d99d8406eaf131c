//! Admission, the queues and the workers: a request's way to a lane and back.
//!
//! Any model runs on any lane. Requests that wait are run together where their shapes agree beyond the first axis. A job is
//! run by a worker, a thread that owns its lane for that long; only a run so short that the hand-over would cost more is
//! done by the thread that brings it, where a lane is idle.

mod class;
mod desk;
mod hall;
mod job;
mod recorder;
mod services;
pub(crate) mod simulation;
mod spell;
mod sync;
mod worker;

pub(crate) use class::{Admission, Class, Priority};
pub(crate) use desk::{Bucket, LaneSize, Pressure};
pub(crate) use job::{Asked, Failed, Look, Runs};
pub(crate) use recorder::{COLUMNS, Recorder};
pub(crate) use services::{Services, nanos};
pub(crate) use worker::{Begins, Scheduler};

#[cfg(test)]
mod tests;

//! The door: what an admin call must show.

/// The token of admin calls.
mod token;

/// Files that are read again when they change.
mod watched;

pub(crate) use token::{AdminToken, Verdict};
pub(crate) use watched::follow;

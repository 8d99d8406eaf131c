//! The door: who may connect, how long each step may take, and what an admin call must show.

/// Connections that are open, and which of them leaves when there are too many.
mod connections;

/// Open files.
mod descriptors;

/// A stream whose other end must keep moving.
mod paced;

/// TLS, with a certificate that can be replaced.
mod tls;

/// The token of admin calls.
mod token;

/// Requests that a connection has begun and finished.
mod underway;

/// Files that are read again when they change.
mod watched;

pub(crate) use connections::Connections;
pub(super) use connections::Place;
pub(crate) use descriptors::allow as allow_open_files;
pub(crate) use paced::Pace;
pub(super) use paced::Paced;
pub(crate) use tls::Tls;
pub(crate) use token::{AdminToken, Verdict};
pub(super) use underway::Underway;
pub(crate) use watched::follow;

//! The Open Inference Protocol v2 over HTTP: bytes on the wire → a typed request, and its answer back.

/// The protocol's bodies as types.
mod wire;

/// From what went wrong to what the client is told.
mod error;

/// The memory that bodies may take.
mod budget;

/// Buffers of bodies that are gone, for the next ones.
mod spare;

/// Reading a body within its limits.
mod body;

/// Who is let in.
mod door;

/// What every handler works with.
mod app;

/// What of a body no handler read.
mod left;

/// Around every request: its id, its log line, its end.
mod around;

/// Inference.
mod infer;

/// What there is: server, models, repository, statistics.
mod about;

/// The ledger as JSON.
mod memory;

/// The page for people.
mod page;

/// A request of our own.
mod rehearse;

/// Every route, once.
mod routes;

/// One connection.
mod connection;

/// The listener.
mod listen;

pub(crate) use app::App;
pub(crate) use budget::Budget;
pub(crate) use door::{AdminToken, Connections, Pace, Tls, allow_open_files, follow};
pub(crate) use listen::{Door, serve};
pub(crate) use memory::Memory;
pub(crate) use rehearse::rehearse;
pub(crate) use routes::front;
pub(crate) use wire::response::answer_json;

#[cfg(test)]
pub(crate) use wire::request::decode as decode_request;

#[cfg(test)]
mod tests;

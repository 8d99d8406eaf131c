//! The hall, and what it is made of.

#[path = "../../../server/src/schedule/bursts.rs"]
mod bursts;
#[path = "../../../server/src/schedule/hall.rs"]
mod hall;
#[path = "../../../server/src/schedule/queue.rs"]
mod queue;
#[path = "../../../server/src/schedule/sync.rs"]
mod sync;

pub(crate) use hall::{Entered, Hall, Needs, Turn};
pub(crate) use queue::{Class, Priority};

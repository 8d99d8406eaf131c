//! The hall, and what it is made of.

#[path = "../../../server/src/schedule/class.rs"]
mod class;
#[path = "../../../server/src/schedule/desk/mod.rs"]
mod desk;
#[path = "../../../server/src/schedule/hall.rs"]
mod hall;
#[path = "../../../server/src/schedule/services.rs"]
mod services;
#[path = "../../../server/src/schedule/spell.rs"]
mod spell;
#[path = "../../../server/src/schedule/sync.rs"]
mod sync;

pub(crate) use class::{Class, Priority};
pub(crate) use desk::{Bucket, Needs};
pub(crate) use hall::{Entered, Hall, Turn};
pub(crate) use services::Services;

//! The folder of models: what is there, in which versions, with which settings, and what of it is served.

mod constant;

mod found;

mod scan;

mod settings;

mod stats;

mod fitting;

mod meters;

mod idle;

mod loader;

mod batches;

mod served;

mod catalogue;

mod registry;

mod load;

mod replace;

mod watch;

#[cfg(test)]
mod tests;

pub(crate) use batches::sizes as batch_sizes;
pub(crate) use catalogue::{Availability, Indexed, NotServed};
pub(crate) use constant::{Constant, Values};
pub(crate) use fitting::narrowing;
pub(crate) use found::{Change, Fingerprint, Found, FoundVersion, changes};
pub(crate) use load::LoadFailed;
pub(crate) use registry::{Registry, Warm};
pub(crate) use scan::{scan, scan_one};
pub(crate) use served::{Defaults, Served, owner};
pub(crate) use settings::{ModelSettings, Precision};
pub(crate) use stats::{Spent, Stats};
pub(crate) use watch::watch;

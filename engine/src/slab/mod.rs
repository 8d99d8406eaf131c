//! The ceiling and the account of every byte under it. Arithmetic only: no pointer is held here.

/// Free bytes, and where the next ones go.
mod extents;

/// Moves that bring free bytes together.
mod compact;

/// The division into weights, lanes and reserve.
mod regions;

/// A refusal, and what would help.
mod refusal;

/// Who holds which extent, who moves and who leaves.
mod holdings;

/// The lines under the ceiling, and who holds how many bytes of host memory.
mod ledger;

/// What happened lately.
mod events;

/// When device memory may be allocated.
mod phase;

/// What is in use.
mod used;

pub use compact::{Move, compact};
pub use events::{Event, Events, What};
pub use extents::{Extent, Extents, Misplaced};
pub use holdings::{
    Agreement, CannotMove, Fit, HeldExtent, Holding, InUse, Moving, Placement, Region, Slab, Snapshot, Terms,
};
pub use ledger::{Account, Fixed, Held, Kind, Ledger, Reservation};
pub use phase::{AfterStart, Phases};
pub use refusal::{Bound, DoesNotFit, Remedy, Unloading};
pub use regions::{LaneSizes, LanesDoNotFit, Layout};
pub use used::Use;

//! The ceiling and the account of every byte under it. Arithmetic only: no pointer is held here.

mod ledger;

pub use ledger::{Account, DoesNotFit, Fixed, Held, Kind, Ledger, Reservation};

//! What is in use.

/// Bytes in use at one moment, and the most that were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// In use, in bytes.
    pub used_bytes: u64,
    /// The most that were in use at once, in bytes.
    pub peak_bytes: u64,
}

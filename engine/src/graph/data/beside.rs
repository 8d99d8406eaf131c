//! Constants side by side along their last axis: as one operand of one product instead of several of several.

use super::Data;
use std::io;

/// One of them.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its elements.
    pub data: Data,
    /// Bytes of one of its rows, of which all parts have as many.
    pub row: usize,
}

/// Reads bytes of rows that are made of a row of each part, from `offset` on, as many as `to` has.
pub(super) fn read(parts: &[Part], offset: usize, to: &mut [u8]) -> io::Result<()> {
    let row: usize = parts.iter().map(|part| part.row).sum();
    if row == 0 || to.is_empty() {
        return Ok(());
    }
    let (first, end) = (offset / row, (offset + to.len()).div_ceil(row));
    let (mut left, mut rows) = (0, vec![]);
    for part in parts {
        // All rows of a part at once, so that a file is read in long pieces.
        rows.resize((end - first) * part.row, 0);
        part.data.read(first * part.row, &mut rows)?;
        for (at, bytes) in rows.chunks_exact(part.row.max(1)).enumerate() {
            // Where the row lies, and what of it was asked for.
            let start = (first + at) * row + left;
            let (from, until) = (start.max(offset), (start + part.row).min(offset + to.len()));
            if from < until {
                to[from - offset..until - offset].copy_from_slice(&bytes[from - start..until - start]);
            }
        }
        left += part.row;
    }
    Ok(())
}

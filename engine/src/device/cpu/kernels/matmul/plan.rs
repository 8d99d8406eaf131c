//! How a multiplication is cut into tasks, and what scratch it needs.

use super::steps::STEP;
use super::{MatMul, Panels};

/// Multiply-adds below which a task is not worth a thread: some microseconds.
const TASK: usize = 50_000;
/// Tasks for each thread, so that all end at about the same time.
const TASKS: usize = 4;
/// The elements of A that stay in the L2 cache next to a panel of B: 256 KiB.
const CACHED: usize = 64 << 10;
/// The elements of B beyond which it is better to read each panel once than to read each row once.
const BIG_B: usize = 128 << 10;
/// The most rows of a block.
pub(crate) const BLOCK: usize = 192;
/// With fewer rows than this a row-major B is multiplied where it lies: packing it would take as long.
const FEW_ROWS: usize = 32;

/// A task's share: so many rows and so many panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) rows: usize,
    pub(crate) panels: usize,
}

/// How to cut `items` outputs of `rows` × `n` elements, each the sum of `k` products, into tasks; the columns are in
/// so many panels.
pub(crate) fn split(items: usize, rows: usize, k: usize, n: usize, panels: usize, threads: usize) -> Split {
    let k = k.max(1);
    // Blocks of about the same size, in multiples of most tile heights.
    let most = (CACHED / k.min(STEP)).clamp(48, BLOCK) / 24 * 24;
    let block = rows.div_ceil(rows.div_ceil(most).max(1)).next_multiple_of(12).min(most);
    let whole = Split { rows: block, panels };
    if threads <= 1 {
        return whole;
    }
    let work = items.saturating_mul(rows).saturating_mul(n).saturating_mul(k);
    let wanted = (work / TASK).clamp(1, TASKS * threads);
    let blocks = items * rows.div_ceil(block);
    if blocks >= wanted {
        return whole;
    }
    if rows < 48 || k * n > BIG_B {
        return Split { panels: panels.div_ceil(wanted.div_ceil(blocks)), ..whole };
    }
    let parts = wanted.div_ceil(items);
    Split { rows: rows.div_ceil(parts).next_multiple_of(12).min(block), ..whole }
}

/// Where the kernel finds B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BMode {
    /// Packed by the caller.
    Given,
    /// Where it lies, but for a last panel that is not full.
    InPlace,
    /// All of it is packed first.
    PackAll,
    /// Each worker packs the matrix of the batch item that it is at.
    PackItem,
}

/// What `scratch_len` and `run` agree on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) panels: Panels,
    pub(super) split: Split,
    pub(super) b: BMode,
    /// Elements of each worker's scratch: packed rows of A, then a block of C, then packed B.
    pub(super) a_len: usize,
    pub(super) c_len: usize,
    pub(super) worker: usize,
    /// Elements of scratch for all.
    pub(super) shared: usize,
}

impl MatMul {
    pub(super) fn plan(&self, packed: bool, threads: usize) -> Plan {
        let threads = threads.max(1);
        let panels = Panels::new(self.k, self.n);
        let mut split = split(self.items(), self.m, self.k, self.n, panels.count(), threads);
        let b = match packed {
            true => BMode::Given,
            false if self.b_strides.1 == 1 && self.m < FEW_ROWS && self.k > 0 => BMode::InPlace,
            false if self.distinct_b() <= threads => BMode::PackAll,
            false => BMode::PackItem,
        };
        if b == BMode::PackItem {
            // There are more items than threads, and no other worker could use what one has packed.
            split.panels = panels.count();
            split.rows = split.rows.max(48);
        }
        let (pack_a, pack_c) = (self.a_strides.1 != 1 && self.k > 1, self.c_strides.1 != 1 && self.n > 1);
        if pack_a || pack_c {
            split.rows = split.rows.min(48);
        }
        let rows = split.rows.min(self.m);
        let a_len = if pack_a { rows * self.k } else { 0 };
        let c_len = if pack_c { rows * self.n } else { 0 };
        let b_len = match b {
            BMode::Given | BMode::PackAll => 0,
            BMode::InPlace => panels.len() - panels.start(panels.count().saturating_sub(1)),
            BMode::PackItem => panels.len(),
        };
        let shared = if b == BMode::PackAll { self.distinct_b() * panels.len() } else { 0 };
        Plan { panels, split, b, a_len, c_len, worker: a_len + c_len + b_len, shared }
    }
}

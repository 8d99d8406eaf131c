//! How attention is cut into tasks, and what scratch it needs.

use super::super::matmul::Panels;
use super::super::walk;
use super::scores::{From, Mask};
use super::{Attention, Dims};

/// Keys of a block: their values, sixteen columns at a time, stay in the L1 cache while the rows meet them.
const BLOCK_KEYS: usize = 384;
/// The most rows of queries, or of keys, that a block takes together: a multiple of most tile heights.
pub(super) const BLOCK_ROWS: usize = 48;
/// Scores of a block beyond which it has half as many rows, so that they stay in the L1 cache.
const BLOCK_SCORES: usize = 5 << 10;
/// The fewest rows of a task that shares an item with others.
const TASK_ROWS: usize = 24;
/// With fewer rows than this values are multiplied where they lie: packing them would take as long.
const FEW_ROWS: usize = 32;
/// With no more rows than this not even keys are packed: they are the rows, and queries the columns.
const FEW_QUERIES: usize = 8;
/// Elements of a mask that are computed together: few, so that the scores stay in the L1 cache.
const MASK: usize = 1 << 10;
/// Multiply-adds below which a task is not worth a thread: some microseconds.
const TASK: usize = 50_000;

/// What `scratch_len` and `run` agree on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Items of a task, whose rows are all its own; or one item, of whose rows it has so many.
    pub(super) items: usize,
    pub(super) rows: usize,
    /// Rows of queries that meet a block of keys together.
    pub(super) block: usize,
    /// Whether keys and values are read where they lie, but for a last panel of values that is not full.
    pub(super) keys_in_place: bool,
    pub(super) values_in_place: bool,
    /// Elements of packed keys and values: of all items, where several tasks share them, and of one.
    pub(super) shared: usize,
    pub(super) item: usize,
    /// Elements of each worker's scratch, in their order: a block of packed keys and values, scores, a mask,
    /// queries, what is remembered of rows, and output.
    pub(super) packed: usize,
    pub(super) scores: usize,
    pub(super) mask: usize,
    /// Rows whose mask is computed together.
    pub(super) mask_rows: usize,
    pub(super) q: usize,
    pub(super) memory: usize,
    pub(super) y: usize,
    pub(super) worker: usize,
}

impl Plan {
    pub(super) fn new(op: &Attention, threads: usize) -> Plan {
        let Dims { m, n, depth, columns, q, k, v, y } = op.dims;
        let items = walk::count(&op.items);
        let work = (m * n * (depth + columns)).max(1);
        let parts = parts(items, m, if items * work < 2 * TASK { 1 } else { threads });
        let rows = m.div_ceil(parts).next_multiple_of(12).min(m);
        let line = |len: usize| len.next_multiple_of(16);
        let large = op.stride * BLOCK_ROWS > BLOCK_SCORES;
        let block = rows.min(if large { BLOCK_ROWS / 2 } else { BLOCK_ROWS });
        let mut plan = Plan {
            items: if rows < m { 1 } else { TASK.div_ceil(work).min(items).max(1) },
            rows,
            block,
            keys_in_place: m <= FEW_QUERIES && k.1 == 1,
            values_in_place: m < FEW_ROWS && v.1 == 1,
            shared: 0,
            item: 0,
            packed: 0,
            scores: block * op.stride,
            mask_rows: block,
            mask: 0,
            q: if q.1 != 1 || op.change.scale != 1.0 { line(block * depth) } else { 0 },
            memory: line(2 * rows),
            y: if y.1 != 1 && columns > 1 { line(rows * columns) } else { 0 },
            worker: 0,
        };
        let in_place = |mask: &&Mask| matches!(mask.from, From::Place(..) | From::Bytes(..));
        if let Some(mask) = op.change.mask().filter(|mask| !in_place(mask)) {
            if mask.varies {
                plan.mask_rows = (MASK / op.stride).clamp(1, block);
            }
            plan.mask = op.stride * if mask.varies { plan.mask_rows } else { 1 };
        }
        if plan.keys_in_place {
            let queries = Panels::new(depth, m);
            plan.q = queries.len() + BLOCK_ROWS * queries.width(0) * queries.lanes;
        }
        if rows < m {
            plan.item = plan.packed_len(op, n);
            plan.shared = line(plan.item * items);
        } else {
            plan.packed = line(plan.packed_len(op, op.keys));
        }
        plan.worker = plan.packed + plan.scores + plan.mask + plan.q + plan.memory + plan.y;
        plan
    }

    /// Elements that so many keys take when they are packed.
    pub(super) fn keys_len(&self, op: &Attention, keys: usize) -> usize {
        if self.keys_in_place { 0 } else { Panels::new(op.dims.depth, keys).len() }
    }

    /// Elements that so many keys and their values take when they are packed.
    pub(super) fn packed_len(&self, op: &Attention, keys: usize) -> usize {
        let values = Panels::new(keys, op.dims.columns);
        let none = self.values_in_place && is_full(&values, values.count() - 1);
        self.keys_len(op, keys) + if none { 0 } else { values.len() }
    }
}

/// Whether a panel has no padding, so that it may be read where it lies.
pub(super) fn is_full(panels: &Panels, panel: usize) -> bool {
    panels.columns(panel) == panels.width(panel) * panels.lanes
}

/// Into blocks of how many keys the keys are cut, all but the last, and how far apart rows of their scores lie.
pub(super) fn block_keys(n: usize) -> (usize, usize) {
    let blocks = n.div_ceil(BLOCK_KEYS).max(1);
    let keys = n.div_ceil(blocks).next_multiple_of(16);
    (keys.min(n), keys)
}

/// Into how many parts the rows of each item are cut, so that all threads have something to do to the end.
fn parts(items: usize, m: usize, threads: usize) -> usize {
    let rounds = |parts: usize| (items * parts).div_ceil(threads) as f64 / parts as f64;
    let enough = 1.1 * items as f64 / threads as f64;
    let most = (m / TASK_ROWS).clamp(1, 4 * threads);
    let mut best = 1;
    for parts in 2..=most {
        if rounds(best) <= enough {
            break;
        }
        if rounds(parts) < rounds(best) {
            best = parts;
        }
    }
    best
}

//! The tasks of attention: some items, or some rows of one, each with blocks of keys one after the other.

use super::super::matmul::Panels;
use super::super::pointwise::OPERANDS;
use super::super::walk::{self, Cursor};
use super::plan::{Plan, is_full};
use super::{Attention, Strides};
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;
use std::ops::Range;
use std::slice;

/// Attention under way, as all its threads see it. Lengths have been checked.
pub(super) struct Run<'a> {
    pub(super) op: &'a Attention,
    pub(super) plan: &'a Plan,
    pub(super) q: Source<'a, f32>,
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) others: [*const u8; OPERANDS],
    y: *mut f32,
    scratch: *mut f32,
}

// SAFETY: threads write different rows of the output and different parts of the scratch; the rest is only read.
unsafe impl Sync for Run<'_> {}

/// What a worker has at hand for an item, or for some rows of one.
pub(super) struct Task {
    /// Where the item begins in each tensor.
    pub(super) at: Strides,
    pub(super) rows: Range<usize>,
    /// The parts of the worker's scratch.
    pub(super) scores: *mut f32,
    pub(super) mask: *mut f32,
    pub(super) q: *mut f32,
    pub(super) most: *mut f32,
    pub(super) sum: *mut f32,
    /// Where the output of the first row is made, and the distance of rows.
    pub(super) y: *mut f32,
    pub(super) y_stride: usize,
}

/// Some keys and their values, as far as they are packed.
pub(super) struct Keys<'a> {
    pub(super) range: Range<usize>,
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
}

impl<'a> Run<'a> {
    pub(super) fn new(
        op: &'a Attention,
        plan: &'a Plan,
        [q, k, v]: [Source<'a, f32>; 3],
        others: [*const u8; OPERANDS],
        y: Target<'a, f32>,
        scratch: &'a mut [f32],
    ) -> Run<'a> {
        let (k, v) = (k.as_slice(), v.as_slice());
        Run { op, plan, q, k, v, others, y: y.as_ptr(), scratch: scratch.as_mut_ptr() }
    }

    pub(super) fn all(&self, threads: &Threads) {
        let (m, items) = (self.op.dims.m, walk::count(&self.op.items));
        if self.plan.shared > 0 {
            let blocks = self.blocks();
            threads.for_each(items * blocks, &|task| {
                let at = Cursor::new(&self.op.items, task / blocks).at;
                // SAFETY: each task fills another part.
                let to = unsafe { self.shared(task / blocks, task % blocks) };
                self.pack(&at, self.keys(task % blocks), to);
            });
            let parts = m.div_ceil(self.plan.rows);
            return threads.for_each_worker(items * parts, &|task, worker| {
                let first = task % parts * self.plan.rows;
                self.item(task / parts, first..(first + self.plan.rows).min(m), worker);
            });
        }
        threads.for_each_worker(items.div_ceil(self.plan.items), &|task, worker| {
            let first = task * self.plan.items;
            (first..(first + self.plan.items).min(items)).for_each(|item| self.item(item, 0..m, worker));
        });
    }

    fn blocks(&self) -> usize {
        self.op.dims.n.div_ceil(self.op.keys)
    }

    /// The keys of a block.
    fn keys(&self, block: usize) -> Range<usize> {
        block * self.op.keys..((block + 1) * self.op.keys).min(self.op.dims.n)
    }

    /// Where tasks share the packed keys and values of a block.
    ///
    /// # Safety
    /// Nobody else writes there while the slice is held.
    #[allow(clippy::mut_from_ref)]
    unsafe fn shared(&self, item: usize, block: usize) -> &mut [f32] {
        let at = item * self.plan.item + block * self.plan.packed_len(self.op, self.op.keys);
        let len = self.plan.packed_len(self.op, self.keys(block).len());
        // SAFETY: the shared part has room for all blocks of all items.
        unsafe { slice::from_raw_parts_mut(self.scratch.add(at), len) }
    }

    /// Packs some keys and their values, as far as they are not read where they lie.
    fn pack(&self, at: &Strides, keys: Range<usize>, to: &mut [f32]) {
        let dims = &self.op.dims;
        let (k, v) = to.split_at_mut(self.plan.keys_len(self.op, keys.len()));
        if !k.is_empty() {
            let panels = Panels::new(dims.depth, keys.len());
            let from = &self.k[at[1] + keys.start * dims.k.0..];
            for panel in 0..panels.count() {
                panels.pack_strided(panel, &mut k[panels.range(panel)], from, (dims.k.1, dims.k.0));
            }
        }
        let panels = Panels::new(keys.len(), dims.columns);
        let from = &self.v[at[2] + keys.start * dims.v.0..];
        let packed = |panel: &usize| !(self.plan.values_in_place && is_full(&panels, *panel));
        for panel in (0..panels.count()).filter(packed) {
            panels.pack_strided(panel, &mut v[panels.range(panel)], from, dims.v);
        }
    }

    fn item(&self, item: usize, rows: Range<usize>, worker: usize) {
        let (plan, dims) = (self.plan, &self.op.dims);
        let at = Cursor::new(&self.op.items, item).at;
        // SAFETY: `run` has checked that there are as many parts as workers; the output is as large as was checked.
        let (packed, task) = unsafe {
            let packed = self.scratch.add(plan.shared + worker * plan.worker);
            let scores = packed.add(plan.packed);
            let mask = scores.add(plan.scores);
            let q = mask.add(plan.mask);
            let most = q.add(plan.q);
            let (y, y_stride) = match plan.y {
                0 => (self.y.add(at[3] + rows.start * dims.y.0), dims.y.0),
                _ => (most.add(plan.memory), dims.columns),
            };
            let sum = most.add(rows.len());
            (packed, Task { at, rows, scores, mask, q, most, sum, y, y_stride })
        };
        let last = self.blocks() - 1;
        for block in 0..=last {
            let range = self.keys(block);
            // SAFETY: nobody writes the shared part any more; a worker's own part is its own.
            let to = unsafe {
                match plan.shared {
                    0 => slice::from_raw_parts_mut(packed, plan.packed_len(self.op, range.len())),
                    _ => self.shared(item, block),
                }
            };
            if plan.shared == 0 {
                self.pack(&task.at, range.clone(), to);
            }
            let (k, v) = to.split_at(plan.keys_len(self.op, range.len()));
            self.block(&task, &Keys { range, k, v }, block == last);
        }
        if plan.y > 0 {
            self.scatter(&task);
        }
    }

    /// From the worker's scratch to an output whose rows have gaps.
    fn scatter(&self, task: &Task) {
        let y = self.op.dims.y;
        for row in 0..task.rows.len() {
            for column in 0..self.op.dims.columns {
                let at = task.at[3] + (task.rows.start + row) * y.0 + column * y.1;
                // SAFETY: an element of this task in the worker's scratch, and its place in the output.
                unsafe { *self.y.add(at) = *task.y.add(row * task.y_stride + column) };
            }
        }
    }
}

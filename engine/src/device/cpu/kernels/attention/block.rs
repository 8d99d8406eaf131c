//! Rows of queries and a block of keys: scores, their softmax, and what it makes of the values.

use super::super::matmul::Panels;
use super::super::pointwise::OPERANDS;
use super::plan::BLOCK_ROWS;
use super::product::{Lines, product, scaled};
use super::rows::{Finish, Rows, Step};
use super::run::{Keys, Run, Task};
use super::scores::{From, Mask, Then};
use std::ops::Range;
use std::{ptr, slice};

impl Run<'_> {
    /// All rows of a task meet some keys.
    pub(super) fn block(&self, task: &Task, keys: &Keys<'_>, last: bool) {
        let dims = &self.op.dims;
        let values = Panels::new(keys.range.len(), dims.columns);
        let place = self.plan.values_in_place.then(|| {
            let at = task.at[2] + keys.range.start * dims.v.0;
            (&self.v[at..], dims.v.0)
        });
        let first = keys.range.start == 0;
        // Where all keys are at hand, the shorter of a row's weights and its output is divided by their sum.
        let divides = first && last && keys.range.len() <= dims.columns;
        for from in (0..task.rows.len()).step_by(self.plan.block) {
            let rows = (task.rows.len() - from).min(self.plan.block);
            // SAFETY: all parts of the task's scratch are as large as the plan says, and operands as was checked.
            unsafe {
                self.scores(task, keys, task.rows.start + from, rows);
                self.softmax(task, &keys.range, from, rows, divides);
                let (y, stride) = (task.y.add(from * task.y_stride), task.y_stride);
                let weights = Lines { first: task.scores, stride: self.op.stride, rows };
                product(&values, keys.v, place, weights, (y, stride), !first);
                if last && !divides {
                    let sum = task.sum.add(from).cast_const();
                    Finish { y, stride, rows, columns: dims.columns, sum, zeroes: self.op.zeroes }.run();
                }
            }
        }
    }

    /// Scores of the task's rows from `from` on become weights.
    ///
    /// # Safety
    /// As for `scores`.
    unsafe fn softmax(&self, task: &Task, keys: &Range<usize>, from: usize, rows: usize, divides: bool) {
        let op = self.op;
        let step = match op.change.then {
            Then::Add(_) => Step::Add,
            Then::Select { other, kept, mask: Mask { from: From::Bytes(..), .. } } => {
                Step::Bytes { other, kept }
            }
            Then::Select { other, kept, .. } => Step::Select { other, kept },
            Then::Nothing | Then::Chain(_) => Step::Nothing,
        };
        for first_row in (0..rows).step_by(self.plan.mask_rows) {
            let rows = (rows - first_row).min(self.plan.mask_rows);
            let at = from + first_row;
            // SAFETY: the caller's promise.
            unsafe {
                let (mask, mask_stride) = self.mask(task, keys, at, rows);
                Rows {
                    step,
                    scores: task.scores.add(first_row * op.stride),
                    stride: op.stride,
                    rows,
                    keys: keys.len(),
                    mask,
                    mask_stride,
                    most: task.most.add(at),
                    sum: task.sum.add(at),
                    first: keys.start == 0,
                    divides,
                    zeroes: op.zeroes,
                    y: task.y.add(at * task.y_stride),
                    y_stride: task.y_stride,
                    columns: op.dims.columns,
                }
                .run();
            }
        }
    }

    /// The scores of some rows and keys, multiplied by the factor.
    ///
    /// # Safety
    /// The task's scratch is nobody else's, and rows and keys are some of those that there are.
    unsafe fn scores(&self, task: &Task, keys: &Keys<'_>, row: usize, rows: usize) {
        let (op, dims) = (self.op, &self.op.dims);
        // SAFETY: the caller's promise.
        unsafe {
            if self.plan.keys_in_place {
                self.few_scores(task, &keys.range);
            } else {
                let mut q =
                    Lines { first: self.q.as_ptr().add(task.at[0] + row * dims.q.0), stride: dims.q.0, rows };
                if self.plan.q > 0 {
                    q = scaled(q, dims.q.1, dims.depth, op.change.scale, task.q);
                }
                let panels = Panels::new(dims.depth, keys.range.len());
                product(&panels, keys.k, None, q, (task.scores, op.stride), false);
            }
            if let Then::Chain(chain) = &op.change.then {
                let scores = task.scores;
                let mut first = [scores.cast_const().cast(); OPERANDS];
                let others = self.others(task, row, keys.range.start);
                first[1..].copy_from_slice(&others[..OPERANDS - 1]);
                chain.run(&first[..=op.operands.len()], scores, op.stride, rows, keys.range.len());
            }
        }
    }

    /// The scores of few queries: keys are the rows, where they lie, and the result is transposed.
    ///
    /// # Safety
    /// As for `scores`.
    unsafe fn few_scores(&self, task: &Task, keys: &Range<usize>) {
        let (op, dims) = (self.op, &self.op.dims);
        let panels = Panels::new(dims.depth, dims.m);
        let width = panels.width(0) * panels.lanes;
        // SAFETY: the caller's promise; the plan has room for packed queries and a block of scores after them.
        unsafe {
            let q = slice::from_raw_parts_mut(task.q, panels.len());
            let from = &self.q.as_slice()[task.at[0]..];
            panels.pack_strided(0, q, from, (dims.q.1, dims.q.0));
            q.iter_mut().for_each(|x| *x *= op.change.scale);
            let block = task.q.add(panels.len());
            for from in keys.clone().step_by(BLOCK_ROWS) {
                let rows = (keys.end - from).min(BLOCK_ROWS);
                let first = self.k[task.at[1] + from * dims.k.0..].as_ptr();
                product(&panels, q, None, Lines { first, stride: dims.k.0, rows }, (block, width), false);
                for query in 0..dims.m {
                    let to = task.scores.add(query * op.stride + from - keys.start);
                    (0..rows).for_each(|key| *to.add(key) = *block.add(key * width + query));
                }
            }
        }
    }

    /// The chain's operands from some row and key on.
    fn others(&self, task: &Task, row: usize, key: usize) -> [*const u8; OPERANDS] {
        let mut first = self.others;
        for (t, part) in self.op.operands.iter().enumerate() {
            let at = task.at[4 + t] + row * part.row_stride + key * part.col_stride;
            first[t] = first[t].wrapping_add(at * part.load.size());
        }
        first
    }

    /// The mask of the task's rows from `from` on and some keys, and the distance of its rows.
    ///
    /// # Safety
    /// As for `scores`.
    unsafe fn mask(&self, task: &Task, keys: &Range<usize>, from: usize, rows: usize) -> (*const u8, usize) {
        let Some(mask) = self.op.change.mask() else { return (ptr::null(), 0) };
        let others = self.others(task, task.rows.start + from, keys.start);
        let (stride, rows) = if mask.varies { (self.op.stride, rows) } else { (0, 1) };
        // A mask that is the same for all rows is there from the first on.
        let missing = mask.varies || from == 0;
        // SAFETY: the caller's promise.
        unsafe {
            match &mask.from {
                From::Place(at, part) | From::Bytes(at, part) => return (others[*at], part.row_stride),
                From::Copy(at, part) if missing => {
                    part.copy(others[*at], task.mask, stride, rows, keys.len());
                }
                From::Chain(chain) if missing => {
                    chain.run(&others[..self.op.operands.len()], task.mask, stride, rows, keys.len());
                }
                From::Copy(..) | From::Chain(_) => {}
            }
        }
        (task.mask.cast_const().cast(), stride)
    }
}

//! The tasks of a multiplication: blocks of rows times panels of columns.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;

use super::plan::{BLOCK, BMode, Plan};
use super::{Batch, Epilogue, MAX_ROWS, MatMul, Panel, Step, steps};
use crate::device::cpu::threads::Threads;

/// A multiplication under way, as all its threads see it. Lengths have been checked.
pub(super) struct Run<'a> {
    op: &'a MatMul,
    plan: &'a Plan,
    a: &'a [f32],
    plain: &'a [f32],
    packed: &'a [f32],
    epilogue: &'a Epilogue<'a>,
    c: *mut f32,
    c_len: usize,
    /// `plan.worker` elements for each worker.
    scratch: *mut f32,
    /// Whether a block of rows of C is a slice without elements of other tasks.
    apart: bool,
}

// SAFETY: threads write different elements of C and use different workers' scratch; the rest is only read.
unsafe impl Sync for Run<'_> {}

/// A task: some rows and panels of an item of the batch.
struct Task {
    item: usize,
    rows: Range<usize>,
    panels: Range<usize>,
}

/// Where a task writes C: first element of the task's first row (in column 0) and the row stride.
#[derive(Clone, Copy)]
struct Target {
    at: *mut f32,
    stride: usize,
}

impl<'a> Run<'a> {
    #[expect(clippy::too_many_arguments, reason = "called once, and each is a slice of another kind")]
    pub(super) fn new(
        op: &'a MatMul,
        plan: &'a Plan,
        a: &'a [f32],
        plain: &'a [f32],
        packed: &'a [f32],
        epilogue: &'a Epilogue,
        c: &'a mut [f32],
        scratch: &'a mut [f32],
    ) -> Run<'a> {
        let block = (op.m - 1) * op.c_strides.0 + op.n;
        let apart = plan.split.panels >= plan.panels.count()
            && op.batch.iter().all(|dim| dim.count == 1 || dim.c >= block)
            && op.c_strides.0 >= op.n;
        let (c_len, c, scratch) = (c.len(), c.as_mut_ptr(), scratch.as_mut_ptr());
        Run { op, plan, a, plain, packed, epilogue, c, c_len, scratch, apart }
    }

    pub(super) fn all(&self, threads: &Threads) {
        let (split, count) = (self.plan.split, self.plan.panels.count());
        let (blocks, parts) = (self.op.m.div_ceil(split.rows), count.div_ceil(split.panels));
        let items = self.op.items();
        let task = |item: usize, block: usize, part: usize, worker| {
            let rows = block * split.rows..((block + 1) * split.rows).min(self.op.m);
            let panels = part * split.panels..((part + 1) * split.panels).min(count);
            self.task(&Task { item, rows, panels }, worker);
        };
        if self.plan.b == BMode::PackItem {
            return threads.for_each_worker(items, &|item, worker| {
                self.pack_item(item, worker);
                (0..blocks).for_each(|block| task(item, block, 0, worker));
            });
        }
        // Neighbours in time share the panels of B, which are more than the rows of A.
        threads.for_each_worker(items * blocks * parts, &|index, worker| {
            task(index / (blocks * parts), index % blocks, index / blocks % parts, worker)
        });
    }

    fn task(&self, task: &Task, worker: usize) {
        let position = self.op.position(task.item);
        let offset = |stride: fn(&Batch) -> usize| -> usize {
            position.iter().zip(&self.op.batch).map(|(at, dim)| at * stride(dim)).sum()
        };
        let mut table = [const { MaybeUninit::uninit() }; BLOCK + MAX_ROWS];
        self.fill_table(&mut table, task, offset(|dim| dim.a), worker);
        let c_at = offset(|dim| dim.c) + task.rows.start * self.op.c_strides.0;
        let target = if self.plan.c_len > 0 {
            // SAFETY: the worker's scratch begins with `a_len` elements and `c_len` more.
            Target { at: unsafe { self.worker(worker).add(self.plan.a_len) }, stride: self.op.n }
        } else {
            // SAFETY: `c_at` is the offset of an element of C.
            Target { at: unsafe { self.c.add(c_at) }, stride: self.op.c_strides.0 }
        };
        // In place, the last panel would be packed again in each step; there are few rows then.
        let rows = if self.plan.b == BMode::InPlace { 1 } else { task.rows.len() };
        for step in steps(rows, 1, self.op.k) {
            for panel in task.panels.clone() {
                self.panel(task, panel, step, table.as_ptr().cast(), target, worker);
            }
        }
        let columns = self.columns(task);
        let rows = (task.item * self.op.m + task.rows.start, task.rows.len());
        // SAFETY: the elements are this task's, and if `apart`, or in a block of its own, so are those in between.
        unsafe {
            let at = target.at.add(columns.start);
            let apart = self.apart || self.plan.c_len > 0;
            self.epilogue.pass(at, target.stride, rows, (columns.start, columns.len()), apart);
        }
        if self.plan.c_len > 0 {
            self.scatter(task, target, columns, c_at);
        }
    }

    fn panel(
        &self,
        task: &Task,
        panel: usize,
        step: Step,
        table: *const *const f32,
        c: Target,
        worker: usize,
    ) {
        let (op, plan, panels) = (self.op, self.plan, &self.plan.panels);
        let (offset, index) = op.b_item(task.item);
        let (width, column, cols) = (panels.width(panel), panels.column(panel), panels.columns(panel));
        let mut b_stride = width * panels.lanes;
        let b = match plan.b {
            BMode::Given | BMode::PackAll => {
                self.packed[index * panels.len() + panels.start(panel)..].as_ptr()
            }
            // SAFETY: of the worker's scratch this is the part for B, which `pack_item` has filled.
            BMode::PackItem => unsafe { self.worker_b(worker).add(panels.start(panel)) },
            BMode::InPlace if cols == b_stride => {
                b_stride = op.b_strides.0;
                self.plain[offset + column..].as_ptr()
            }
            BMode::InPlace => {
                // SAFETY: the part for B has room for the last panel, and no other panel is partly filled.
                let out = unsafe { slice::from_raw_parts_mut(self.worker_b(worker), b_stride * op.k) };
                op.pack_one(panels, panel, &self.plain[offset..], out);
                out.as_ptr()
            }
        };
        let first = task.item * op.m + task.rows.start;
        let (residual, residual_stride) = self.epilogue.residual_at(first, column);
        // SAFETY: the table holds the rows of the block and `MAX_ROWS` more; B has `k` rows of the panel's width; the
        // rows and columns of C are this task's; bias and residual have been checked.
        unsafe {
            Panel {
                rows: task.rows.len(),
                table,
                table_stride: 0,
                taps: 1,
                run: op.k,
                a_offset: 0,
                b,
                b_stride,
                vectors: width,
                ahead: if plan.b == BMode::InPlace { 0 } else { op.k * b_stride },
                c: c.at.add(column),
                c_stride: c.stride,
                cols,
                bias: self.epilogue.bias_at(column),
                clamp: self.epilogue.clamp,
                add: false,
                residual,
                residual_stride,
            }
            .step(step)
            .run();
        }
    }

    /// Pointers to the task's rows of A, which are packed first if they have gaps.
    fn fill_table(&self, table: &mut [MaybeUninit<*const f32>], task: &Task, offset: usize, worker: usize) {
        let (row_stride, col_stride) = self.op.a_strides;
        let (mut base, mut stride) = (offset + task.rows.start * row_stride, row_stride);
        let mut a = self.a.as_ptr();
        if self.plan.a_len > 0 {
            // SAFETY: the worker's scratch begins with `a_len` elements.
            let out = unsafe { slice::from_raw_parts_mut(self.worker(worker), self.plan.a_len) };
            for (row, out) in out.chunks_exact_mut(self.op.k).take(task.rows.len()).enumerate() {
                let from = &self.a[base + row * row_stride..];
                out.iter_mut().enumerate().for_each(|(at, to)| *to = from[at * col_stride]);
            }
            (a, base, stride) = (out.as_ptr(), 0, self.op.k);
        }
        if self.op.k == 0 {
            (base, stride) = (0, 0);
        }
        let last = task.rows.len() - 1;
        for (row, entry) in table.iter_mut().take(task.rows.len() + MAX_ROWS).enumerate() {
            // SAFETY: the offset of a row of A.
            entry.write(unsafe { a.add(base + row.min(last) * stride) });
        }
    }

    fn columns(&self, task: &Task) -> Range<usize> {
        let panels = &self.plan.panels;
        let last = task.panels.end - 1;
        panels.column(task.panels.start)..panels.column(last) + panels.columns(last)
    }

    /// From the worker's block to C where the columns of C have gaps.
    fn scatter(&self, task: &Task, from: Target, columns: Range<usize>, c_at: usize) {
        let (row_stride, col_stride) = self.op.c_strides;
        for row in 0..task.rows.len() {
            for column in columns.clone() {
                let at = c_at + row * row_stride + column * col_stride;
                debug_assert!(at < self.c_len);
                // SAFETY: an element of this task in the worker's block, and its place in C.
                unsafe { *self.c.add(at) = *from.at.add(row * from.stride + column) };
            }
        }
    }

    fn worker(&self, worker: usize) -> *mut f32 {
        // SAFETY: `run` has checked that there are as many parts as workers.
        unsafe { self.scratch.add(worker * self.plan.worker) }
    }

    fn worker_b(&self, worker: usize) -> *mut f32 {
        // SAFETY: the part for B follows those for A and C.
        unsafe { self.worker(worker).add(self.plan.a_len + self.plan.c_len) }
    }

    fn pack_item(&self, item: usize, worker: usize) {
        let (panels, (offset, _)) = (&self.plan.panels, self.op.b_item(item));
        // SAFETY: the part for B has room for all panels of a matrix.
        let out = unsafe { slice::from_raw_parts_mut(self.worker_b(worker), panels.len()) };
        (0..panels.count()).for_each(|panel| self.op.pack_panel(panels, panel, &self.plain[offset..], out));
    }
}

impl MatMul {
    /// Packs all matrices B, which are no more than there are threads.
    pub(super) fn pack_shared(&self, plan: &Plan, b: &[f32], out: &mut [f32], threads: &Threads) {
        struct Out(*mut f32);
        // SAFETY: the tasks write different parts.
        unsafe impl Sync for Out {}
        let (panels, out) = (&plan.panels, &Out(out.as_mut_ptr()));
        let count = panels.count();
        let items = self.items();
        let task = |task: usize| {
            let (item, panel) = (task / count, task % count);
            let (offset, index) = self.b_item(item);
            // A matrix that several items of the batch share is packed for the first of them.
            if (0..item).any(|earlier| self.b_item(earlier).1 == index) {
                return;
            }
            let (at, len) =
                (index * panels.len() + panels.start(panel), panels.width(panel) * panels.lanes * self.k);
            // SAFETY: this panel's part of the scratch, which has room for all.
            let out = unsafe { slice::from_raw_parts_mut({ out }.0.add(at), len) };
            self.pack_one(panels, panel, &b[offset..], out);
        };
        if self.k * self.n < 16 << 10 {
            return (0..items * count).for_each(task);
        }
        threads.for_each(items * count, &task);
    }
}

//! Convolution as a matrix multiplication whose rows of A are found through a table of pointers.
//!
//! For a block of output pixels the table holds, for each tap of the kernel, a pointer to the channels of the input
//! pixel it meets, or to zeros beyond the border. Where few channels make the taps short, a whole row of the kernel is
//! one tap, its pixels lying one after the other in the input. At the border they do not: the pixels there get a copy
//! of the row (`border`), or, where an image is narrow, all get copies of lines with a border of zeros (`lines`).

mod border;
mod lines;

use std::slice;

use super::super::matmul::{Epilogue, MAX_ROWS, Panel, Panels, Split, split, steps};
use super::Conv;
use crate::device::cpu::threads::Threads;

/// Up to so many channels a row of the kernel is one tap.
const ROW_CHANNELS: usize = 64;
/// Lines are copied up to so many pixels of a line of the output, or up to so many channels if there are others between
/// them.
const LINE_PIXELS: usize = 16;
const LINE_CHANNELS: usize = 16;

/// What a tap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taps {
    /// A pixel of the kernel.
    Pixels,
    /// A row of the kernel, in the input, or in a copy at the border.
    Rows,
    /// A row of the kernel, in a copy of the line.
    Lines,
}

/// What `scratch_len` and `run` agree on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    panels: Panels,
    split: Split,
    kind: Taps,
    taps: usize,
    /// Consecutive elements at a tap.
    run: usize,
    /// Elements of scratch for all: zeros that stand for pixels beyond the border.
    zeros: usize,
    /// Pointers in each worker's table, and elements of its copies.
    pointers: usize,
    copies: usize,
}

impl Plan {
    pub(super) fn scratch_len(&self, threads: usize) -> usize {
        self.zeros + self.worker() * threads.max(1)
    }

    /// Elements of a worker's scratch: the table, which may have to be moved up to an address fit for pointers, and
    /// the copies.
    fn worker(&self) -> usize {
        (self.pointers + 1) * size_of::<*const f32>().div_ceil(size_of::<f32>()) + self.copies
    }

    fn table_stride(&self) -> usize {
        self.split.rows + MAX_ROWS
    }
}

/// A convolution under way, as all its threads see it. Lengths have been checked.
struct Run<'a> {
    conv: &'a Conv,
    plan: &'a Plan,
    x: &'a [f32],
    packed: &'a [f32],
    epilogue: &'a Epilogue<'a>,
    zeros: &'a [f32],
    out: *mut f32,
    scratch: *mut f32,
}

// SAFETY: threads write different elements of the output and use different workers' scratch; the rest is only read.
unsafe impl Sync for Run<'_> {}

/// The pointers and copies that a worker writes for a block of pixels.
struct Table<'a> {
    pointers: &'a mut [*const f32],
    stride: usize,
    copies: &'a mut [f32],
    copied: usize,
    lines: lines::Lines,
}

/// Pixels of one line of the output: `len` from `ox` on, in the block from row `row` on.
#[derive(Clone, Copy)]
struct Segment {
    image: usize,
    oy: usize,
    ox: usize,
    len: usize,
    row: usize,
}

impl Conv {
    pub(super) fn indirect_plan(&self, threads: usize) -> Plan {
        let panels = self.panels();
        let k = self.k();
        let count = panels.count() * self.groups;
        let mut split = split(1, self.out_pixels(), k, self.out_c, count, threads);
        split.rows = split.rows.min(self.out_pixels().next_multiple_of(4)).max(1);
        let rows = self.groups == 1 && self.kernel_w > 1 && self.dilation_w == 1 && self.in_c <= ROW_CHANNELS;
        let kind = match rows {
            true if self.out_w <= LINE_PIXELS => Taps::Lines,
            true if self.x_pixel_stride == self.in_c => Taps::Rows,
            true if self.in_c <= LINE_CHANNELS => Taps::Lines,
            _ => Taps::Pixels,
        };
        let (taps, run) = match kind {
            Taps::Pixels => (self.taps(), self.in_c / self.groups.max(1)),
            Taps::Rows | Taps::Lines => (self.kernel_h, self.kernel_w * self.in_c),
        };
        let copies = match kind {
            Taps::Pixels => 0,
            Taps::Rows => self.border_len(split.rows),
            Taps::Lines => self.lines_len(split.rows),
        };
        let pointers = taps * (split.rows + MAX_ROWS);
        let zeros = run.max(self.in_c);
        Plan { panels, split, kind, taps, run, zeros, pointers, copies }
    }

    pub(super) fn indirect(
        &self,
        x: &[f32],
        packed: &[f32],
        epilogue: &Epilogue,
        out: &mut [f32],
        scratch: &mut [f32],
        threads: &Threads,
    ) {
        let plan = self.indirect_plan(threads.count());
        let needed = plan.scratch_len(threads.count());
        assert!(scratch.len() >= needed, "a scratch of {} elements, not {needed}", scratch.len());
        let (zeros, workers) = scratch.split_at_mut(plan.zeros);
        zeros.fill(0.0);
        let (scratch, out) = (workers.as_mut_ptr(), out.as_mut_ptr());
        let run = Run { conv: self, plan: &plan, x, packed, epilogue, zeros, out, scratch };
        let blocks = self.out_pixels().div_ceil(plan.split.rows);
        let parts = (plan.panels.count() * self.groups).div_ceil(plan.split.panels);
        threads
            .for_each_worker(blocks * parts, &|task, worker| run.task(task % blocks, task / blocks, worker));
    }
}

impl Run<'_> {
    fn task(&self, block: usize, part: usize, worker: usize) {
        let (conv, plan) = (self.conv, self.plan);
        let first = block * plan.split.rows;
        let rows = plan.split.rows.min(conv.out_pixels() - first);
        let mut table = self.table(worker);
        self.fill(&mut table, first, rows);
        let count = plan.panels.count();
        let panels = part * plan.split.panels..((part + 1) * plan.split.panels).min(count * conv.groups);
        let (group_in, group_out) = (conv.in_c / conv.groups, conv.out_c / conv.groups);
        // SAFETY: a pixel of the output.
        let out = unsafe { self.out.add(first * conv.out_pixel_stride) };
        let steps = steps(rows, plan.taps, plan.run);
        for (step, at) in steps.flat_map(|step| panels.clone().map(move |at| (step, at))) {
            let (group, panel) = (at / count, at % count);
            let (width, columns) = (plan.panels.width(panel), plan.panels.columns(panel));
            let column = group * group_out + plan.panels.column(panel);
            let (residual, residual_stride) = self.epilogue.residual_at(first, column);
            let b = &self.packed[group * plan.panels.len() + plan.panels.start(panel)..];
            // SAFETY: the table holds valid pointers for all taps and rows and for `MAX_ROWS` more; zeros and pixels
            // have the channels of all groups; B has a row for each tap and channel; the output is this task's.
            unsafe {
                Panel {
                    rows,
                    table: table.pointers.as_ptr(),
                    table_stride: table.stride,
                    taps: plan.taps,
                    run: plan.run,
                    a_offset: group * group_in,
                    b: b.as_ptr(),
                    b_stride: width * plan.panels.lanes,
                    vectors: width,
                    ahead: plan.taps * plan.run * width * plan.panels.lanes,
                    c: out.add(column),
                    c_stride: conv.out_pixel_stride,
                    cols: columns,
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
        let column = |at: usize| at / count * group_out + plan.panels.column(at % count);
        let last = panels.end - 1;
        let start = column(panels.start);
        let columns = column(last) + plan.panels.columns(last % count) - start;
        // SAFETY: the elements are this task's; so are all between them if it has all columns.
        unsafe {
            let apart = panels.len() == count * conv.groups;
            self.epilogue.pass(out.add(start), conv.out_pixel_stride, (first, rows), (start, columns), apart);
        }
    }

    fn table(&self, worker: usize) -> Table<'_> {
        // SAFETY: the scratch has a part for each worker, which is used by one task at a time. Any pointer is a valid
        // value for memory that holds floats, and these are written before they are read.
        unsafe {
            let part =
                slice::from_raw_parts_mut(self.scratch.add(worker * self.plan.worker()), self.plan.worker());
            let (part, copies) = part.split_at_mut(part.len() - self.plan.copies);
            let (_, pointers, _) = part.align_to_mut::<*const f32>();
            let pointers = &mut pointers[..self.plan.pointers];
            Table { pointers, stride: self.plan.table_stride(), copies, copied: 0, lines: lines::Lines::NONE }
        }
    }

    /// Pointers for the block of `rows` pixels from `first` on.
    fn fill(&self, table: &mut Table, first: usize, rows: usize) {
        let conv = self.conv;
        let mut row = 0;
        while row < rows {
            let (line, ox) = ((first + row) / conv.out_w, (first + row) % conv.out_w);
            let len = (conv.out_w - ox).min(rows - row);
            let segment = Segment { image: line / conv.out_h, oy: line % conv.out_h, ox, len, row };
            match self.plan.kind {
                Taps::Pixels => self.fill_pixels(table, &segment),
                Taps::Rows => self.fill_rows(table, &segment),
                Taps::Lines => self.fill_lines(table, &segment),
            }
            row += len;
        }
        for tap in table.pointers.chunks_exact_mut(table.stride) {
            let last = tap[rows - 1];
            tap[rows..][..MAX_ROWS].fill(last);
        }
    }

    /// The line of the input that a row of the kernel meets, counted over all images.
    fn input_line(&self, segment: &Segment, ky: usize) -> Option<usize> {
        let conv = self.conv;
        let y = (segment.oy * conv.stride_h + ky * conv.dilation_h).checked_sub(conv.pad_top);
        y.filter(|&y| y < conv.in_h).map(|y| segment.image * conv.in_h + y)
    }

    fn fill_pixels(&self, table: &mut Table, segment: &Segment) {
        let conv = self.conv;
        for tap in 0..self.plan.taps {
            let (ky, shift) = (tap / conv.kernel_w, tap % conv.kernel_w * conv.dilation_w);
            let entries = &mut table.pointers[tap * table.stride + segment.row..][..segment.len];
            let Some(line) = self.input_line(segment, ky) else {
                entries.fill(self.zeros.as_ptr());
                continue;
            };
            // The pixels of the line at which the tap is inside: pad_left <= ox * stride_w + shift < in_w + pad_left.
            let beyond = (conv.in_w + conv.pad_left).saturating_sub(shift).div_ceil(conv.stride_w);
            let (low, high) =
                segment.part(conv.pad_left.saturating_sub(shift).div_ceil(conv.stride_w), beyond);
            entries[..low].fill(self.zeros.as_ptr());
            self.fill_within(&mut entries[low..high], line, segment.ox + low, shift);
            entries[high..].fill(self.zeros.as_ptr());
        }
    }

    /// Pointers for pixels from `ox` on whose tap `shift` pixels from the first is inside the line.
    fn fill_within(&self, entries: &mut [*const f32], line: usize, ox: usize, shift: usize) {
        let conv = self.conv;
        if entries.is_empty() {
            return;
        }
        let at = line * conv.in_w + ox * conv.stride_w + shift - conv.pad_left;
        fill_steps(entries, &self.x[at * conv.x_pixel_stride..], conv.stride_w * conv.x_pixel_stride);
    }
}

impl Segment {
    /// Of the pixels of a line from `low` to before `high` those in the segment, counted from its start.
    fn part(&self, low: usize, high: usize) -> (usize, usize) {
        let low = low.clamp(self.ox, self.ox + self.len) - self.ox;
        (low, (high.max(self.ox) - self.ox).clamp(low, self.len))
    }
}

/// Pointers `step` elements apart.
fn fill_steps(entries: &mut [*const f32], from: &[f32], step: usize) {
    let from = from.as_ptr();
    for (at, entry) in entries.iter_mut().enumerate() {
        *entry = from.wrapping_add(at * step);
    }
}

//! Transposed convolution, by gathering: the pixels of a line of the output that lie `stride_w` apart meet the same
//! taps of the kernel, so that they are a convolution of their own whose input pixels are neighbours.

use std::slice;

use super::super::matmul::{Epilogue, MAX_ROWS, Panel, Panels};
use super::image_len;
use crate::device::cpu::threads::Threads;

/// Multiply-adds below which a task is not worth a thread.
const TASK: usize = 50_000;
/// Tasks for each thread.
const TASKS: usize = 4;
/// The most pixels that are computed at a time.
const BLOCK: usize = 96;

/// A transposed convolution: input pixel (y, x) adds to the output pixels (y * stride_h + ky * dilation_h - pad_top,
/// x * stride_w + kx * dilation_w - pad_left). Fields as in `Conv`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvTranspose {
    pub(crate) batch: usize,
    pub(crate) in_h: usize,
    pub(crate) in_w: usize,
    pub(crate) in_c: usize,
    pub(crate) out_h: usize,
    pub(crate) out_w: usize,
    pub(crate) out_c: usize,
    pub(crate) kernel_h: usize,
    pub(crate) kernel_w: usize,
    pub(crate) stride_h: usize,
    pub(crate) stride_w: usize,
    pub(crate) dilation_h: usize,
    pub(crate) dilation_w: usize,
    pub(crate) pad_top: usize,
    pub(crate) pad_left: usize,
    pub(crate) groups: usize,
    pub(crate) x_pixel_stride: usize,
    pub(crate) out_pixel_stride: usize,
}

/// A transposed convolution under way. Lengths have been checked.
struct Run<'a> {
    conv: &'a ConvTranspose,
    x: &'a [f32],
    packed: &'a [f32],
    epilogue: &'a Epilogue<'a>,
    zeros: &'a [f32],
    out: *mut f32,
    scratch: *mut f32,
}

// SAFETY: threads write different lines of the output and use different workers' scratch; the rest is only read.
unsafe impl Sync for Run<'_> {}

/// The kernel's taps along one axis which an output's phase meets: from the first on, `count` of them, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taps {
    first: usize,
    step: usize,
    count: usize,
}

impl Taps {
    /// For outputs at `phase` modulo the stride, padding included: the taps k with (phase - k * dilation) a multiple
    /// of the stride.
    fn new(phase: usize, stride: usize, dilation: usize, kernel: usize) -> Taps {
        let meets = |k: &usize| (k * dilation) % stride == phase % stride;
        let mut all = (0..kernel).filter(meets);
        let first = all.next().unwrap_or(0);
        let step = all.next().map_or(1, |second| second - first);
        Taps { first, step, count: (0..kernel).filter(meets).count() }
    }

    fn at(self, index: usize) -> usize {
        self.first + index * self.step
    }
}

impl ConvTranspose {
    /// The elements that `pack` writes.
    pub(crate) fn packed_len(&self) -> usize {
        self.groups * self.group_len()
    }

    /// Lays constant weights `[in_c][kernel_h][kernel_w][out_c / groups]` out for this machine: for each group and each
    /// phase of the output (by rows, then by columns) the panels (`Panels`) of a matrix whose rows are the phase's taps
    /// times in_c / groups and whose columns are the group's channels.
    pub(crate) fn pack(&self, weights: &[f32], out: &mut [f32]) {
        let columns = self.out_c / self.groups.max(1);
        let group_in = self.in_c / self.groups.max(1);
        let needed = self.in_c * self.kernel_h * self.kernel_w * columns;
        assert!(weights.len() >= needed, "{} of {needed} weights", weights.len());
        assert!(out.len() >= self.packed_len(), "packed weights: {} of {}", out.len(), self.packed_len());
        for group in 0..self.groups {
            for (phase_y, phase_x) in self.phases() {
                let (rows, cols) = (self.rows(phase_y), self.columns(phase_x));
                let panels = self.panels(rows, cols);
                let at = group * self.group_len() + self.phase_start(phase_y, phase_x);
                panels.pack_all(&mut out[at..][..panels.len()], |k, column, row| {
                    let (tap, channel) = (k / group_in, group * group_in + k % group_in);
                    let (ky, kx) = (rows.at(tap / cols.count), cols.at(tap % cols.count));
                    let at = ((channel * self.kernel_h + ky) * self.kernel_w + kx) * columns + column;
                    row.copy_from_slice(&weights[at..][..row.len()]);
                });
            }
        }
    }

    /// The elements of scratch that `run` needs with so many threads.
    pub(crate) fn scratch_len(&self, threads: usize) -> usize {
        self.in_c + self.worker_len() * threads.max(1)
    }

    /// As `Conv::run`.
    pub(crate) fn run(
        &self,
        x: &[f32],
        packed: &[f32],
        epilogue: &Epilogue,
        out: &mut [f32],
        scratch: &mut [f32],
        threads: &Threads,
    ) {
        let lines = self.batch * self.out_h;
        if lines * self.out_w * self.out_c == 0 {
            return;
        }
        self.check(x.len(), packed.len(), epilogue, out.len());
        let needed = self.scratch_len(threads.count());
        assert!(scratch.len() >= needed, "a scratch of {} elements, not {needed}", scratch.len());
        let (zeros, workers) = scratch.split_at_mut(self.in_c);
        zeros.fill(0.0);
        let (out, scratch) = (out.as_mut_ptr(), workers.as_mut_ptr());
        let run = Run { conv: self, x, packed, epilogue, zeros, out, scratch };
        let taps = (self.kernel_h * self.kernel_w).div_ceil(self.stride_h * self.stride_w);
        let work = lines * self.out_w * self.out_c * taps * (self.in_c / self.groups);
        let step = lines.div_ceil((work / TASK).clamp(1, TASKS * threads.count()));
        threads.for_each_worker(lines.div_ceil(step), &|task, worker| {
            (task * step..((task + 1) * step).min(lines)).for_each(|line| run.line(line, worker));
        });
    }

    fn phases(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.stride_h).flat_map(|y| (0..self.stride_w).map(move |x| (y, x)))
    }

    fn rows(&self, phase: usize) -> Taps {
        Taps::new(phase, self.stride_h, self.dilation_h, self.kernel_h)
    }

    fn columns(&self, phase: usize) -> Taps {
        Taps::new(phase, self.stride_w, self.dilation_w, self.kernel_w)
    }

    fn panels(&self, rows: Taps, columns: Taps) -> Panels {
        let groups = self.groups.max(1);
        Panels::new(rows.count * columns.count * (self.in_c / groups), self.out_c / groups)
    }

    /// The elements of a group's packed weights.
    fn group_len(&self) -> usize {
        self.phases().map(|(y, x)| self.panels(self.rows(y), self.columns(x)).len()).sum()
    }

    /// Where a phase begins in a group's packed weights.
    fn phase_start(&self, phase_y: usize, phase_x: usize) -> usize {
        let before = self.phases().take_while(|&phase| phase != (phase_y, phase_x));
        before.map(|(y, x)| self.panels(self.rows(y), self.columns(x)).len()).sum()
    }

    fn worker_len(&self) -> usize {
        let pointers = self.kernel_h * self.kernel_w * (BLOCK + MAX_ROWS);
        (pointers + 1) * size_of::<*const f32>().div_ceil(size_of::<f32>())
    }

    fn check(&self, x: usize, packed: usize, epilogue: &Epilogue, out: usize) {
        let groups = self.groups;
        assert!(
            groups > 0 && self.in_c.is_multiple_of(groups) && self.out_c.is_multiple_of(groups),
            "groups"
        );
        assert!(
            self.stride_h > 0 && self.stride_w > 0 && self.dilation_h > 0 && self.dilation_w > 0,
            "strides"
        );
        let needed = image_len(self.batch * self.in_h * self.in_w, self.in_c, self.x_pixel_stride);
        assert!(x >= needed, "x has {x} of {needed} elements");
        let pixels = self.batch * self.out_h * self.out_w;
        let needed = image_len(pixels, self.out_c, self.out_pixel_stride);
        assert!(out >= needed, "out has {out} of {needed} elements");
        assert!(packed >= self.packed_len(), "packed weights: {packed} of {}", self.packed_len());
        epilogue.check(pixels, self.out_c);
    }
}

impl Run<'_> {
    /// A line of the output, counted over all images.
    fn line(&self, line: usize, worker: usize) {
        let conv = self.conv;
        let phase_y = (line % conv.out_h + conv.pad_top) % conv.stride_h;
        for first in 0..conv.stride_w.min(conv.out_w) {
            let phase_x = (first + conv.pad_left) % conv.stride_w;
            let start = conv.phase_start(phase_y, phase_x);
            for ox in (first..conv.out_w).step_by(conv.stride_w * BLOCK) {
                let pixels = (conv.out_w - ox).div_ceil(conv.stride_w).min(BLOCK);
                self.block(line, ox, pixels, (conv.rows(phase_y), conv.columns(phase_x)), start, worker);
            }
        }
        let first = line * conv.out_w;
        // SAFETY: the line is this task's, with all that lies between its pixels.
        unsafe {
            let out = self.out.add(first * conv.out_pixel_stride);
            self.epilogue.pass(out, conv.out_pixel_stride, (first, conv.out_w), (0, conv.out_c), true);
        }
    }

    /// `pixels` pixels of a line from `ox` on, `stride_w` apart, whose packed weights begin at `start` in each group.
    fn block(&self, line: usize, ox: usize, pixels: usize, taps: (Taps, Taps), start: usize, worker: usize) {
        let conv = self.conv;
        let (rows, columns) = taps;
        let stride = BLOCK + MAX_ROWS;
        // SAFETY: the scratch has a part for each worker, which is used by one task at a time. Any pointer is a valid
        // value for memory that holds floats, and these are written before they are read.
        let table = unsafe {
            let part = self.scratch.add(worker * conv.worker_len());
            slice::from_raw_parts_mut(part, conv.worker_len()).align_to_mut::<*const f32>().1
        };
        for tap in 0..rows.count * columns.count {
            let (ky, kx) = (rows.at(tap / columns.count), columns.at(tap % columns.count));
            let entries = &mut table[tap * stride..][..stride];
            for (at, entry) in entries[..pixels + MAX_ROWS].iter_mut().enumerate() {
                let ox = ox + at.min(pixels - 1) * conv.stride_w;
                *entry = self.input(line, ox, ky, kx);
            }
        }
        let panels = conv.panels(rows, columns);
        let first = line * conv.out_w + ox;
        let (group_in, group_out) = (conv.in_c / conv.groups, conv.out_c / conv.groups);
        for at in 0..conv.groups * panels.count() {
            let (group, panel) = (at / panels.count(), at % panels.count());
            let column = group * group_out + panels.column(panel);
            let (residual, residual_stride) = self.epilogue.residual_at(first, column);
            let b = &self.packed[group * conv.group_len() + start + panels.start(panel)..];
            // SAFETY: the table holds valid pointers for all taps and pixels and for `MAX_ROWS` more; zeros and
            // pixels have the channels of all groups; the output is this task's.
            unsafe {
                Panel {
                    rows: pixels,
                    table: table.as_ptr(),
                    table_stride: stride,
                    taps: rows.count * columns.count,
                    run: group_in,
                    a_offset: group * group_in,
                    b: b.as_ptr(),
                    b_stride: panels.width(panel) * panels.lanes,
                    vectors: panels.width(panel),
                    ahead: 0,
                    c: self.out.add(first * conv.out_pixel_stride + column),
                    c_stride: conv.stride_w * conv.out_pixel_stride,
                    cols: panels.columns(panel),
                    bias: self.epilogue.bias_at(column),
                    clamp: self.epilogue.clamp,
                    add: false,
                    residual,
                    residual_stride: conv.stride_w * residual_stride,
                }
                .run();
            }
        }
    }

    /// The input pixel that a tap brings to an output pixel, or zeros.
    fn input(&self, line: usize, ox: usize, ky: usize, kx: usize) -> *const f32 {
        let conv = self.conv;
        let (image, oy) = (line / conv.out_h, line % conv.out_h);
        let y = (oy + conv.pad_top).checked_sub(ky * conv.dilation_h).map(|y| y / conv.stride_h);
        let x = (ox + conv.pad_left).checked_sub(kx * conv.dilation_w).map(|x| x / conv.stride_w);
        match (y, x) {
            (Some(y), Some(x)) if y < conv.in_h && x < conv.in_w => {
                self.x[((image * conv.in_h + y) * conv.in_w + x) * conv.x_pixel_stride..].as_ptr()
            }
            _ => self.zeros.as_ptr(),
        }
    }
}

//! Convolution of each channel by itself, vectorised over channels.
//!
//! For the usual kernels four pixels of a line are computed at a time: each input vector is loaded once for all of the
//! pixels that it reaches, and so is each weight. At the border the columns that are outside are read from zeros. Any
//! other kernel is computed pixel by pixel.

mod tile;

use std::ptr;

use rten_simd::ops::BitOps;
use rten_simd::{Isa, SimdOp};

use super::super::matmul::Epilogue;
use super::Conv;
use crate::device::cpu::threads::Threads;

/// Multiply-adds below which a task is not worth a thread. Loads bound this kernel, so that they are slower than in
/// a matrix multiplication.
const TASK: usize = 25_000;
/// Tasks for each thread.
const TASKS: usize = 4;
/// The elements of output after which the epilogue sees them: they are in the L2 cache, inputs being there too.
const BLOCK: usize = 16 << 10;
/// Pixels at a time, and the most columns that they reach and rows of a kernel.
const PIXELS: usize = 4;
const COLUMNS: usize = 11;
const ROWS: usize = 7;

/// A convolution under way. Lengths have been checked.
struct Run<'a> {
    conv: &'a Conv,
    x: &'a [f32],
    packed: &'a [f32],
    epilogue: &'a Epilogue<'a>,
    zeros: &'a [f32],
    out: *mut f32,
}

// SAFETY: threads write different lines of the output; the rest is only read.
unsafe impl Sync for Run<'_> {}

impl Conv {
    pub(super) fn depthwise(
        &self,
        x: &[f32],
        packed: &[f32],
        epilogue: &Epilogue,
        out: &mut [f32],
        scratch: &mut [f32],
        threads: &Threads,
    ) {
        let zeros = &mut scratch[..self.in_c];
        zeros.fill(0.0);
        let run = Run { conv: self, x, packed, epilogue, zeros, out: out.as_mut_ptr() };
        let (lines, size) = (self.batch * self.out_h, self.out_w * self.out_c);
        let tasks = match threads.count() {
            1 => 1,
            count => (lines * size * self.taps() / TASK).clamp(1, TASKS * count),
        };
        let step = lines.div_ceil(tasks).min((BLOCK / size).max(1));
        threads.for_each(lines.div_ceil(step), &|task| {
            let first = task * step;
            Lines { run: &run, first, count: step.min(lines - first) }.dispatch();
        });
    }
}

/// Some lines of the output, counted over all images.
struct Lines<'a> {
    run: &'a Run<'a>,
    first: usize,
    count: usize,
}

impl SimdOp for Lines<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let (run, conv) = (self.run, self.run.conv);
        let usual = conv.dilation_w == 1 && conv.kernel_h <= ROWS && conv.out_w >= PIXELS;
        let kernel = if usual { (conv.kernel_w, conv.stride_w) } else { (0, 0) };
        for line in (self.first..self.first + self.count).map(|line| run.line(line)) {
            match kernel {
                (3, 1) => run.pixels::<I, 3, 1>(isa, &line),
                (3, 2) => run.pixels::<I, 3, 2>(isa, &line),
                (5, 1) => run.pixels::<I, 5, 1>(isa, &line),
                (5, 2) => run.pixels::<I, 5, 2>(isa, &line),
                (7, 1) => run.pixels::<I, 7, 1>(isa, &line),
                _ => run.single_pixels(isa, &line),
            }
        }
        let (first, rows) = (self.first * conv.out_w, self.count * conv.out_w);
        // SAFETY: these lines are this task's, with all that lies between their pixels.
        unsafe {
            let out = run.out.add(first * conv.out_pixel_stride);
            run.epilogue.pass(out, conv.out_pixel_stride, (first, rows), (0, conv.out_c), true);
        }
    }
}

/// A line of the output, and the part of the kernel's rows that is inside the input.
struct Line {
    /// The first pixel's number.
    pixel: usize,
    /// The first row of the kernel that is inside, and how many are.
    top: usize,
    rows: usize,
    /// The pixel of the input at the start of the line under that row, and the pixels from one such line to the next.
    input: usize,
    step: usize,
}

/// Pointers to the input of four pixels, by row and column.
type Columns = [[*const f32; COLUMNS]; ROWS];

impl Run<'_> {
    fn line(&self, line: usize) -> Line {
        let conv = self.conv;
        let (image, y) = (line / conv.out_h, line % conv.out_h * conv.stride_h);
        let (top, rows) = inside(y, conv.pad_top, conv.dilation_h, conv.kernel_h, conv.in_h);
        let first = if rows > 0 { y + top * conv.dilation_h - conv.pad_top } else { 0 };
        let input = (image * conv.in_h + first) * conv.in_w;
        Line { pixel: line * conv.out_w, top, rows, input, step: conv.dilation_h * conv.in_w }
    }

    /// A line with a kernel KW wide and stride SX.
    #[inline(always)]
    fn pixels<I: Isa, const KW: usize, const SX: usize>(&self, isa: I, line: &Line) {
        let conv = self.conv;
        let reach = (PIXELS - 1) * SX + KW;
        let mut table = [[ptr::null(); COLUMNS]; ROWS];
        let mut next = 0;
        while next < conv.out_w {
            // The last pixels are computed with some before them, again if need be.
            let ox = next.min(conv.out_w - PIXELS);
            next = ox + PIXELS;
            let start = ox * SX;
            let border = start < conv.pad_left || start + reach > conv.in_w + conv.pad_left;
            for (row, entries) in table.iter_mut().enumerate().take(if border { line.rows } else { 0 }) {
                for (column, entry) in entries.iter_mut().enumerate().take(reach) {
                    *entry = match (start + column).checked_sub(conv.pad_left).filter(|&x| x < conv.in_w) {
                        Some(x) => {
                            self.x[(line.input + row * line.step + x) * conv.x_pixel_stride..].as_ptr()
                        }
                        None => self.zeros.as_ptr(),
                    };
                }
            }
            // SAFETY: all columns of the four pixels are inside, or the table is filled for all rows.
            unsafe {
                if border {
                    self.channels::<I, KW, SX, true>(isa, line, ox, ptr::null(), &table);
                } else {
                    let x = &self.x[(line.input + start - conv.pad_left) * conv.x_pixel_stride..];
                    self.channels::<I, KW, SX, false>(isa, line, ox, x.as_ptr(), &table);
                }
            }
        }
    }

    /// All channels of four pixels from `ox` on. `BORDER`: the input is found through the table, not from `x` on.
    #[inline(always)]
    unsafe fn channels<I: Isa, const KW: usize, const SX: usize, const BORDER: bool>(
        &self,
        isa: I,
        line: &Line,
        ox: usize,
        x: *const f32,
        table: &Columns,
    ) {
        let (lanes, channels) = (isa.f32().len(), self.conv.out_c);
        let mut channel = 0;
        // SAFETY: as the caller promises. Loads go beyond the channels of a pixel only where they are masked.
        unsafe {
            while channel + 2 * lanes <= channels {
                self.tile::<I, KW, SX, 2, BORDER, false>(isa, line, ox, x, table, channel);
                channel += 2 * lanes;
            }
            while channel + lanes <= channels {
                self.tile::<I, KW, SX, 1, BORDER, false>(isa, line, ox, x, table, channel);
                channel += lanes;
            }
            if channel < channels {
                self.tile::<I, KW, SX, 1, BORDER, true>(isa, line, ox, x, table, channel);
            }
        }
    }

    /// A line pixel by pixel.
    #[inline(always)]
    fn single_pixels<I: Isa>(&self, isa: I, line: &Line) {
        let (conv, lanes) = (self.conv, isa.f32().len());
        for ox in 0..conv.out_w {
            let start = ox * conv.stride_w;
            let (left, taps) = inside(start, conv.pad_left, conv.dilation_w, conv.kernel_w, conv.in_w);
            let taps = if line.rows > 0 { taps } else { 0 };
            let column = if taps > 0 { start + left * conv.dilation_w - conv.pad_left } else { 0 };
            let mut channel = 0;
            // SAFETY: the part of the kernel that is inside. Loads go beyond the channels of a pixel only where they
            // are masked.
            unsafe {
                while channel + 4 * lanes <= conv.out_c {
                    self.single::<I, 4, false>(isa, line, ox, (left, taps), column, channel);
                    channel += 4 * lanes;
                }
                while channel + lanes <= conv.out_c {
                    self.single::<I, 1, false>(isa, line, ox, (left, taps), column, channel);
                    channel += lanes;
                }
                if channel < conv.out_c {
                    self.single::<I, 1, true>(isa, line, ox, (left, taps), column, channel);
                }
            }
        }
    }
}

/// The first tap of a row or column of a kernel that is inside the input, and how many are, for the output whose
/// first tap is at `at - pad`.
fn inside(at: usize, pad: usize, dilation: usize, kernel: usize, size: usize) -> (usize, usize) {
    let first = pad.saturating_sub(at).div_ceil(dilation).min(kernel);
    let end = (size + pad).saturating_sub(at).div_ceil(dilation).clamp(first, kernel);
    (first, end - first)
}

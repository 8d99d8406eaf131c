//! Rows of the kernel as taps, in copies of the input's lines which have a border of zeros.

use super::super::Conv;
use super::{Run, Segment, Table, fill_steps};

/// The lines of an image that have been copied for the block at hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    image: usize,
    /// The first line, how many there are, and where in the copies they begin.
    first: usize,
    count: usize,
    at: usize,
}

impl Lines {
    /// None of any image.
    pub(super) const NONE: Lines = Lines { image: usize::MAX, first: 0, count: 0, at: 0 };
}

impl Conv {
    /// The pixels of a line's copy: all that the kernel meets.
    fn line_pixels(&self) -> usize {
        self.out_w.saturating_sub(1) * self.stride_w + self.kernel_w
    }

    /// The elements of the copies for a block of `rows` pixels.
    pub(super) fn lines_len(&self, rows: usize) -> usize {
        let lines = (rows.div_ceil(self.out_w.max(1)) + 1).min(self.batch * self.out_h);
        let images = (lines.div_ceil(self.out_h.max(1)) + 1).min(self.batch);
        let needed = lines * self.stride_h + images * ((self.kernel_h - 1) * self.dilation_h + 1);
        needed.min(images * self.in_h) * self.line_pixels() * self.in_c
    }
}

impl Run<'_> {
    pub(super) fn fill_lines(&self, table: &mut Table, segment: &Segment) {
        let conv = self.conv;
        let len = conv.line_pixels() * conv.in_c;
        let start = segment.oy * conv.stride_h;
        if table.lines.image != segment.image {
            let first = start.saturating_sub(conv.pad_top);
            table.lines = Lines { image: segment.image, first, count: 0, at: table.copied };
        }
        let end =
            (start + (conv.kernel_h - 1) * conv.dilation_h + 1).saturating_sub(conv.pad_top).min(conv.in_h);
        while table.lines.first + table.lines.count < end {
            let y = table.lines.first + table.lines.count;
            self.copy_line(&mut table.copies[table.copied..][..len], segment.image * conv.in_h + y);
            table.copied += len;
            table.lines.count += 1;
        }
        for tap in 0..self.plan.taps {
            let entries = &mut table.pointers[tap * table.stride + segment.row..][..segment.len];
            match self.input_line(segment, tap) {
                Some(line) => {
                    let line = line - segment.image * conv.in_h - table.lines.first;
                    let from = table.lines.at + line * len + segment.ox * conv.stride_w * conv.in_c;
                    fill_steps(entries, &table.copies[from..], conv.stride_w * conv.in_c);
                }
                None => entries.fill(self.zeros.as_ptr()),
            }
        }
    }

    fn copy_line(&self, copy: &mut [f32], line: usize) {
        let conv = self.conv;
        let left = conv.pad_left.min(conv.line_pixels());
        let inside = conv.in_w.min(conv.line_pixels() - left);
        let (before, rest) = copy.split_at_mut(left * conv.in_c);
        let (within, after) = rest.split_at_mut(inside * conv.in_c);
        before.fill(0.0);
        after.fill(0.0);
        let from = &self.x[line * conv.in_w * conv.x_pixel_stride..];
        if conv.x_pixel_stride == conv.in_c {
            return within.copy_from_slice(&from[..inside * conv.in_c]);
        }
        for (to, from) in within.chunks_exact_mut(conv.in_c).zip(from.chunks(conv.x_pixel_stride)) {
            to.copy_from_slice(&from[..conv.in_c]);
        }
    }
}

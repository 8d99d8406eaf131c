//! Rows of the kernel as taps: they lie in the input, but where they cross its border on the left or on the right.

use super::super::Conv;
use super::{Run, Segment, Table};

impl Conv {
    /// The pixels of a line, from the first to before the last, at which no row of the kernel crosses the border.
    fn inside(&self) -> (usize, usize) {
        let low = self.pad_left.div_ceil(self.stride_w);
        let room = (self.in_w + self.pad_left).checked_sub(self.kernel_w);
        (low, room.map_or(0, |room| room / self.stride_w + 1))
    }

    /// The elements of the copies for a block of `rows` pixels.
    pub(super) fn border_len(&self, rows: usize) -> usize {
        let (low, high) = self.inside();
        let crossing = self.out_w - high.min(self.out_w).saturating_sub(low.min(self.out_w));
        let lines = rows / self.out_w.max(1) + 2;
        rows.min(lines * crossing) * self.k()
    }
}

impl Run<'_> {
    pub(super) fn fill_rows(&self, table: &mut Table, segment: &Segment) {
        let (low, high) = self.conv.inside();
        let (low, high) = segment.part(low, high);
        for tap in 0..self.plan.taps {
            let entries = &mut table.pointers[tap * table.stride + segment.row..][..segment.len];
            let Some(line) = self.input_line(segment, tap) else {
                entries.fill(self.zeros.as_ptr());
                continue;
            };
            self.fill_within(&mut entries[low..high], line, segment.ox + low, 0);
            for at in (0..low).chain(high..segment.len) {
                let copy = &mut table.copies[table.copied..][..self.plan.run];
                table.copied += self.plan.run;
                self.copy_row(copy, line, segment.ox + at);
                entries[at] = copy.as_ptr();
            }
        }
    }

    /// A row of the kernel's input at output column `ox`, with zeros beyond the border.
    fn copy_row(&self, copy: &mut [f32], line: usize, ox: usize) {
        let conv = self.conv;
        let left = conv.pad_left.saturating_sub(ox * conv.stride_w).min(conv.kernel_w);
        let start = (ox * conv.stride_w + left).saturating_sub(conv.pad_left);
        let inside = conv.in_w.saturating_sub(start).min(conv.kernel_w - left);
        copy.fill(0.0);
        if inside > 0 {
            let from = &self.x[(line * conv.in_w + start) * conv.in_c..][..inside * conv.in_c];
            copy[left * conv.in_c..][..from.len()].copy_from_slice(from);
        }
    }
}

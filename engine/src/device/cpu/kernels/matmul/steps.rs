//! How K is divided, so that a panel's part of B stays in the L1 cache while all rows of a block meet it.

use std::ptr;

use super::Panel;

/// The elements of K in a step: 24 KiB of a panel of 16 columns.
pub(super) const STEP: usize = 384;
/// With no more rows than this, each part of B is used once or twice only.
const FEW_ROWS: usize = 12;

/// A part of K: some taps, and of each some of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    tap: usize,
    taps: usize,
    start: usize,
    run: usize,
    first: bool,
    last: bool,
}

/// The parts of a sum over `taps` taps of `run` elements each, for a block of `rows` rows: whole taps if they are
/// short, else parts of one tap at a time.
pub(crate) fn steps(rows: usize, taps: usize, run: usize) -> impl Iterator<Item = Step> {
    let whole = rows <= FEW_ROWS || taps * run <= STEP + STEP / 2;
    let (tap_parts, run_parts) = match (whole, run <= STEP) {
        (true, _) => (1, 1),
        (false, true) => (taps.div_ceil(STEP / run), 1),
        (false, false) => (taps, run.div_ceil(STEP)),
    };
    // Equal parts, of a multiple of four elements for the sake of the tile's unrolled loop.
    let (taps_each, run_each) = (taps.div_ceil(tap_parts), run.div_ceil(run_parts).next_multiple_of(4));
    let (tap_parts, run_parts) = (taps.div_ceil(taps_each), run.div_ceil(run_each.max(1)).max(1));
    let parts = tap_parts * run_parts;
    (0..parts).map(move |part| {
        let (tap, start) = (part / run_parts * taps_each, part % run_parts * run_each);
        let (taps, run) = (taps_each.min(taps - tap), run_each.min(run - start));
        Step { tap, taps, start, run, first: part == 0, last: part + 1 == parts }
    })
}

impl Panel {
    /// The part of this computation, which is for all of K, that a step does.
    pub(crate) fn step(mut self, step: Step) -> Panel {
        let at = step.tap * self.run + step.start;
        self.b = self.b.wrapping_add(at * self.b_stride);
        self.table = self.table.wrapping_add(step.tap * self.table_stride);
        self.a_offset += step.start;
        (self.taps, self.run, self.add) = (step.taps, step.run, !step.first);
        if !step.first {
            self.bias = ptr::null();
        }
        if !step.last {
            (self.residual, self.clamp) = (ptr::null(), None);
        }
        self
    }
}

//! Compaction: which extents to move, and where to, so that the free bytes come together. A plan only; who has the
//! bytes carries it out.

mod exchange;

use super::extents::{Extent, Extents, rounded};
use exchange::exchange;
use std::ops::Range;

/// One step of a compaction: the bytes of `from` go to `to`.
///
/// In the order of the list no step overwrites an extent that has not moved yet. `from` and `to` of one step may
/// overlap, as in `memmove`; a device whose copies may not overlap goes in pieces of the distance between the two,
/// from the end towards which the extent moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where the bytes lie.
    pub from: Extent,
    /// Where they go; as long as `from`.
    pub to: Extent,
}

/// Moves after which an extent of `wanted_bytes` can be placed; empty where it can be placed already. Few bytes are
/// moved rather than many.
///
/// `free` are the free bytes, `movable` the placed extents that may move; what is neither stays where it is.
///
/// Between two extents that stay, and within a chunk, every fit that the free bytes allow is found. Where bytes
/// must go from one such stretch to another first, the search is over single moves and bounded: exact for about a
/// dozen extents, a best effort beyond. `None`: no such moves, or none found.
pub fn compact(free: &Extents, movable: &[Extent], wanted_bytes: u64) -> Option<Vec<Move>> {
    let wanted = rounded(wanted_bytes, free.alignment())?;
    if free.largest_free() >= wanted {
        return Some(vec![]);
    }
    if free.free_bytes() < wanted {
        return None;
    }
    let mut board = Board { free: free.clone(), movable: movable.to_vec(), moves: vec![] };
    if board.open_cheapest(wanted).is_none() {
        board.exchange(wanted)?;
        if board.free.largest_free() < wanted {
            board.open_cheapest(wanted)?;
        }
    }
    Some(board.moves)
}

/// The extents in the course of the moves planned so far.
struct Board {
    free: Extents,
    movable: Vec<Extent>,
    moves: Vec<Move>,
}

/// A stretch without an extent that stays: all free bytes in it can be brought together.
struct Run {
    whole: Extent,
    /// Indices into `Board::movable`, by offset.
    items: Vec<usize>,
}

/// Consecutive items of a run with the free bytes around them.
struct Window {
    items: Range<usize>,
    start_bytes: u64,
    end_bytes: u64,
    item_bytes: u64,
}

impl Window {
    fn span_bytes(&self) -> u64 {
        self.end_bytes - self.start_bytes
    }

    fn gap_bytes(&self) -> u64 {
        self.span_bytes() - self.item_bytes
    }
}

/// A way to open a window, and the cost that ways are compared by.
struct Opening {
    run: usize,
    window: Window,
    evacuates: bool,
}

impl Board {
    /// Opens an extent of `wanted` bytes with the fewest bytes moved: a window's items leave for free extents
    /// elsewhere, or they slide together. `None`, and nothing is planned, where neither can be.
    fn open_cheapest(&mut self, wanted: u64) -> Option<()> {
        let runs = self.runs();
        let mut openings = vec![];
        for (run, at) in runs.iter().zip(0..) {
            let evacuated = self.windows(run, wanted, Window::span_bytes);
            openings.extend(evacuated.map(|window| Opening { run: at, window, evacuates: true }));
            let slid = self.windows(run, wanted, Window::gap_bytes);
            openings.extend(slid.map(|window| Opening { run: at, window, evacuates: false }));
        }
        openings.sort_by_key(|opening| (opening.window.item_bytes, opening.evacuates));
        openings.iter().find_map(|opening| {
            let run = runs.get(opening.run)?;
            match opening.evacuates {
                true => self.evacuate(run, &opening.window),
                false => self.slide(run, &opening.window),
            }
        })
    }

    /// For each first item the shortest window of which `measure` is at least `wanted`.
    fn windows(&self, run: &Run, wanted: u64, measure: fn(&Window) -> u64) -> impl Iterator<Item = Window> {
        (0..run.items.len()).filter_map(move |first| {
            let windows = (first + 1..=run.items.len()).map(|last| self.window(run, first..last));
            windows.into_iter().find(|window| measure(window) >= wanted)
        })
    }

    fn window(&self, run: &Run, items: Range<usize>) -> Window {
        let extent = |at: usize| run.items.get(at).and_then(|item| self.movable.get(*item));
        let before = items.start.checked_sub(1).and_then(extent);
        Window {
            start_bytes: before.map_or(run.whole.offset_bytes, Extent::end_bytes),
            end_bytes: extent(items.end).map_or(run.whole.end_bytes(), |after| after.offset_bytes),
            item_bytes: items.clone().filter_map(extent).map(|extent| extent.bytes).sum(),
            items,
        }
    }

    /// The window's items go down to its start, lowest first.
    fn slide(&mut self, run: &Run, window: &Window) -> Option<()> {
        let mut offset_bytes = window.start_bytes;
        for &item in run.items.get(window.items.clone())? {
            let from = *self.movable.get(item)?;
            self.shift(item, Extent { offset_bytes, ..from })?;
            offset_bytes += from.bytes;
        }
        Some(())
    }

    /// The window's items go to free extents outside it, the largest first.
    fn evacuate(&mut self, run: &Run, window: &Window) -> Option<()> {
        let mut outside = self.free.clone();
        let within =
            Extent { chunk: run.whole.chunk, offset_bytes: window.start_bytes, bytes: window.span_bytes() };
        for gap in self.free.iter_free().filter(|gap| gap.overlaps(&within)) {
            outside.claim(gap).ok()?;
        }
        let mut items = run.items.get(window.items.clone())?.to_vec();
        items.sort_by_key(|item| std::cmp::Reverse(self.movable.get(*item).map(|extent| extent.bytes)));
        let home = |item: &usize| outside.place(self.movable.get(*item)?.bytes);
        let homes: Vec<Extent> = items.iter().map(home).collect::<Option<_>>()?;
        items.into_iter().zip(homes).try_for_each(|(item, home)| self.shift(item, home))
    }

    /// Moves items from run to run until the free bytes of one suffice.
    fn exchange(&mut self, wanted: u64) -> Option<()> {
        let runs = self.runs();
        let mut items = vec![(0, 0); self.movable.len()];
        let mut free: Vec<u64> = vec![];
        for (run, at) in runs.iter().zip(0..) {
            let window = self.window(run, 0..run.items.len());
            free.push(window.gap_bytes());
            for &item in &run.items {
                *items.get_mut(item)? = (self.movable.get(item)?.bytes, at);
            }
        }
        for (item, to) in exchange(&items, &free, wanted)? {
            self.send(item, runs.get(to)?.whole)?;
        }
        Some(())
    }

    /// Moves an item into the stretch `whole`, whose free bytes suffice once they are brought together.
    fn send(&mut self, item: usize, whole: Extent) -> Option<()> {
        let from = *self.movable.get(item)?;
        let hole = self.hole(&whole, from.bytes).or_else(|| {
            let runs = self.runs();
            let run = runs.iter().find(|run| run.whole == whole)?;
            let cheapest =
                self.windows(run, from.bytes, Window::gap_bytes).min_by_key(|window| window.item_bytes)?;
            self.slide(run, &cheapest)?;
            self.hole(&whole, from.bytes)
        })?;
        self.shift(item, Extent { bytes: from.bytes, ..hole })
    }

    /// The smallest free extent within `whole` that is large enough.
    fn hole(&self, whole: &Extent, bytes: u64) -> Option<Extent> {
        let fitting = self.free.iter_free().filter(|hole| hole.bytes >= bytes && hole.overlaps(whole));
        fitting.min_by_key(|hole| hole.bytes)
    }

    /// Enters one move, refused where it would overwrite anything but the item itself.
    fn shift(&mut self, item: usize, to: Extent) -> Option<()> {
        let slot = self.movable.get_mut(item)?;
        let from = *slot;
        if from != to {
            self.free.free(from).ok()?;
            self.free.claim(to).ok()?;
            *slot = to;
            self.moves.push(Move { from, to });
        }
        Some(())
    }

    /// The stretches that free and movable extents tile, by chunk and offset. Moves do not change their number and
    /// bounds.
    fn runs(&self) -> Vec<Run> {
        let items = self.movable.iter().zip(0..).map(|(extent, item)| (*extent, Some(item)));
        let mut pieces: Vec<_> = items.chain(self.free.iter_free().map(|free| (free, None))).collect();
        pieces.sort();
        let mut runs: Vec<Run> = vec![];
        for (piece, item) in pieces {
            match runs.last_mut() {
                Some(run)
                    if run.whole.chunk == piece.chunk && run.whole.end_bytes() == piece.offset_bytes =>
                {
                    run.whole.bytes += piece.bytes;
                    run.items.extend(item);
                }
                _ => runs.push(Run { whole: piece, items: item.into_iter().collect() }),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests;

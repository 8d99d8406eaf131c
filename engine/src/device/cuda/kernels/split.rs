//! The axes of an operation that folds some of them, and how its results are given to threads.

use super::axes::{self, Axes, Axis, Divider, Loops};
use super::launch::{Unsupported, blocks};
use smallvec::SmallVec;

/// Threads of a block where several results share it, and of one that reads a long result.
const BLOCK: usize = 128;
const LONG: usize = 1024;
/// Threads that keep a large GPU busy; below it a result is given more of them.
const BUSY: usize = 64 << 10;
/// Blocks that a large GPU wants to have at least.
pub(super) const BLOCKS: usize = 132;
/// Threads that take results side by side, so that they read whole lines of memory; and the bytes of a piece
/// of a line that is read at least.
const WIDTH: usize = 32;
const SECTOR: usize = 32;

/// Axes of tensors, of which the first is folded.
#[derive(Clone, Debug)]
pub(super) struct Split<const N: usize> {
    /// The loops with a result for each position, the outermost first.
    pub(super) kept: Loops<N>,
    /// The loops that are folded.
    pub(super) folded: Loops<N>,
}

/// How a tensor must lie for packs of folded elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lies {
    /// The elements are neighbours.
    Along,
    /// They are, or they are one element.
    AlongOrStill,
    /// As it likes.
    Anyhow,
}

/// How the threads go about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Some threads a result, which keep its elements: so many packs each.
    Rows(usize),
    /// A block a result, which reads its elements as often as it needs them.
    Long,
    /// Results side by side.
    Columns,
}

/// The loops of a launch; `Fold` of the kernels' prelude.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold<const N: usize> {
    kept: Axes<N, 5>,
    folded: Axes<N, 4>,
    rows: u32,
    count: u32,
    lanes: u32,
    lanes_log2: u32,
    lane_len: u32,
    lane_strides: [u32; N],
    width: Divider,
    pieces: Divider,
}

/// One way of doing it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grouping<const N: usize> {
    pub(super) way: Way,
    /// Elements of a pack, 1 for single elements.
    pub(super) pack: usize,
    pub(super) fold: Fold<N>,
    pub(super) grid: u32,
    pub(super) block: u32,
}

impl<const N: usize> Split<N> {
    /// Folds `axes` of `shape`; strides in elements.
    pub(super) fn new(
        shape: &[usize],
        axes: &[usize],
        strides: [&[usize]; N],
    ) -> Result<Split<N>, Unsupported> {
        let of = |folded: bool| -> Loops<N> {
            let chosen: SmallVec<[usize; 6]> =
                (0..shape.len()).filter(|axis| axes.contains(axis) == folded).collect();
            let lens: SmallVec<[usize; 6]> = chosen.iter().map(|&axis| shape[axis]).collect();
            let strides: [SmallVec<[usize; 6]>; N] =
                strides.map(|tensor| chosen.iter().map(|&axis| tensor[axis]).collect());
            axes::collapse(&lens, std::array::from_fn(|t| &strides[t][..]), 0)
        };
        let split = Split { kept: of(false), folded: of(true) };
        let all: Loops<N> = split.kept.iter().chain(&split.folded).copied().collect();
        axes::check(&all)?;
        Ok(split)
    }

    /// How many results there are.
    pub(super) fn results(&self) -> usize {
        axes::count(&self.kept)
    }

    /// How many elements each is made of.
    pub(super) fn count(&self) -> usize {
        axes::count(&self.folded)
    }

    /// Whether neighbours in memory belong to different results.
    pub(super) fn across(&self) -> bool {
        let inner = |loops: &Loops<N>| loops.last().map_or(usize::MAX, |axis| axis.strides[0].max(1));
        inner(&self.kept) < inner(&self.folded)
    }

    /// Whether `pack` folded elements can be moved at once, if addresses allow it.
    pub(super) fn packs(&self, pack: usize, lies: [Lies; N]) -> bool {
        let [inner] = self.folded.as_slice() else { return false };
        let fits = |t: usize| {
            let stride = inner.strides[t];
            let apart = self.kept.iter().all(|axis| axis.strides[t].is_multiple_of(pack));
            match lies[t] {
                Lies::Anyhow => true,
                Lies::AlongOrStill if stride == 0 => true,
                _ => stride == 1 && apart,
            }
        };
        inner.len.is_multiple_of(pack) && (0..N).all(fits)
    }

    /// Whether `pack` results that are neighbours in the first tensors, as many as `moved`, can be moved at
    /// once, if addresses allow it; in the other tensors they are neighbours or one element.
    pub(super) fn packs_columns(&self, pack: usize, moved: usize) -> bool {
        let Some((lane, kept)) = self.kept.split_last() else { return false };
        let fits = |t: usize| match lane.strides[t] {
            1 => kept.iter().chain(&self.folded).all(|axis| axis.strides[t].is_multiple_of(pack)),
            0 => t >= moved,
            _ => false,
        };
        lane.len.is_multiple_of(pack) && (0..N).all(fits)
    }

    /// Some threads a result, each with at most `most` packs; or, where those are not enough, a block. Many
    /// results get
    /// `lanes` threads each if so few can do it.
    pub(super) fn rows(&self, pack: usize, most: usize, lanes: usize) -> Result<Grouping<N>, Unsupported> {
        let (results, packs) = (self.results(), self.count().div_ceil(pack).max(1));
        let (least, each) = (packs.div_ceil(most).next_power_of_two(), packs.next_power_of_two());
        // A pack a thread is the shortest way.
        let lanes = if results * 32 < BUSY { each.min(256) } else { each.min(lanes) }.max(least);
        // Many short results leave no thread of theirs idle.
        let idle = |lanes: usize| packs.div_ceil(lanes) * lanes - packs;
        let lanes = if results * 8 < BUSY || lanes > 32 {
            lanes
        } else {
            let fewer = std::iter::successors(Some(lanes), |lanes| Some(lanes / 2));
            let fewer = fewer.take_while(|&lanes| lanes >= least.max(1));
            fewer.min_by_key(|&lanes| idle(lanes)).unwrap_or(lanes)
        };
        let (way, lanes) =
            if lanes > LONG { (Way::Long, LONG) } else { (Way::Rows(packs.div_ceil(lanes)), lanes) };
        let block = if lanes > 32 { lanes } else { BLOCK };
        let fold = self.fold(&self.kept, lanes, Axis::ONCE, [1, 1])?;
        Ok(Grouping { way, pack, fold, grid: blocks(results, block / lanes), block: block as u32 })
    }

    /// Results side by side, `pack` of them a thread, elements of so many bytes; `height` threads below each
    /// other share the folded elements, or as many as pay. Where `wide`, blocks are not made narrow to have
    /// more of them.
    pub(super) fn columns(
        &self,
        pack: usize,
        bytes: usize,
        height: Option<usize>,
        wide: bool,
    ) -> Result<Grouping<N>, Unsupported> {
        let (lane, kept) = self.kept.split_last().map_or((Axis::ONCE, &[][..]), |(lane, kept)| (*lane, kept));
        let (packs, rows) = (lane.len.div_ceil(pack), axes::count(kept));
        // As wide as a warp, unless that leaves multiprocessors idle; but no narrower than memory is read.
        let wanted = if wide { 1 } else { BLOCKS.div_ceil(rows.max(1)) };
        let least = SECTOR.div_ceil(pack * bytes);
        let width = (packs / wanted).clamp(least, WIDTH).min(packs).max(1);
        let few = rows * packs.div_ceil(width) < 2 * BLOCKS;
        // Four loads a thread, as many as are under way at once.
        let most = if few { LONG } else { 2 * BLOCK };
        let height = height.unwrap_or(self.count().div_ceil(4)).clamp(1, most / width);
        let threads = (height * width).next_multiple_of(32).clamp(BLOCK / 2, most);
        // What the block has to spare goes sideways.
        let width = if few { width } else { (threads / height).min(packs).max(1) };
        let pieces = packs.div_ceil(width);
        let width = packs.div_ceil(pieces.max(1)).max(1);
        let fold = self.fold(kept, 1, lane, [width, pieces])?;
        Ok(Grouping { way: Way::Columns, pack, fold, grid: blocks(rows * pieces, 1), block: threads as u32 })
    }

    fn fold(
        &self,
        kept: &[Axis<N>],
        lanes: usize,
        lane: Axis<N>,
        [width, pieces]: [usize; 2],
    ) -> Result<Fold<N>, Unsupported> {
        Ok(Fold {
            kept: Axes::new(kept)?,
            folded: Axes::new(&self.folded)?,
            rows: axes::count(kept) as u32,
            count: self.count() as u32,
            lanes: lanes as u32,
            lanes_log2: lanes.ilog2(),
            lane_len: lane.len as u32,
            lane_strides: lane.strides.map(|stride| stride as u32),
            width: Divider::new(width),
            pieces: Divider::new(pieces),
        })
    }
}

impl<const N: usize> Grouping<N> {
    /// How many threads share a result.
    pub(super) fn threads_a_result(&self) -> usize {
        match self.way {
            Way::Columns => (self.block / self.fold.width.number()).max(1) as usize,
            _ => self.fold.lanes as usize * self.pack,
        }
    }

    /// The shared memory that columns need.
    pub(super) fn shared_bytes(&self) -> u32 {
        if self.way == Way::Columns { self.block * self.pack as u32 * 4 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(shape: &[usize], axes: &[usize]) -> Split<1> {
        let strides: Vec<usize> = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect();
        Split::new(shape, axes, [&strides]).unwrap()
    }

    #[test]
    fn few_results_get_a_thread_a_pack() {
        let Grouping { way, block, grid, .. } = split(&[128, 768], &[1]).rows(8, 4, 32).unwrap();
        assert_eq!((way, block, grid), (Way::Rows(1), 128, 128));
    }

    #[test]
    fn many_short_results_leave_few_threads_idle() {
        // 9 packs: four threads with three each, not sixteen of which seven have none.
        let Grouping { way, grid, .. } = split(&[100_352, 72], &[1]).rows(8, 4, 32).unwrap();
        assert_eq!((way, grid), (Way::Rows(3), 3136));
    }

    #[test]
    fn what_no_block_keeps_is_read_again() {
        assert_eq!(split(&[2, 40_000], &[1]).rows(4, 8, 32).unwrap().way, Way::Long);
    }

    #[test]
    fn packs_are_whole() {
        let lies = [Lies::Along];
        assert!(split(&[3, 64], &[1]).packs(8, lies));
        assert!(!split(&[3, 60], &[1]).packs(8, lies));
        assert!(!split(&[64, 3], &[0]).packs(8, lies));
        assert!(split(&[49, 64], &[0]).packs_columns(8, 1));
        assert!(!split(&[49, 60], &[0]).packs_columns(8, 1));
    }

    #[test]
    fn few_images_are_shared_by_more_blocks() {
        let Grouping { grid, block, .. } =
            split(&[1, 56, 56, 72], &[1, 2]).columns(8, 2, None, false).unwrap();
        assert_eq!((grid, block), (5, 1024));
        let wide = split(&[1, 56, 56, 72], &[1, 2]).columns(8, 2, None, true).unwrap();
        assert_eq!(wide.grid, 1);
    }
}

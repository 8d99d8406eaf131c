//! Local search: a block that ends above the live peak is lifted out with those it meets in time, and they are put
//! back in another order. Kept unless worse, so that the workspace never grows.
//!
//! TVM's hill climbing planner also moves what stands at the top, but lays the whole net out anew for each move; here
//! only the neighbourhood is, which is what lets a thousand buffers have thousands of moves.

use super::Block;
use super::greedy::Layout;

/// Work allowed for any net, in neighbours looked at, for all layouts together: small nets can be the most awkward.
const BASE_WORK: u64 = 2_000_000;
/// What each block adds to that.
const WORK_PER_BLOCK: u64 = 1_500;
/// The most work, however many blocks; 20 to 45 ms.
const MOST_WORK: u64 = 3_500_000;
/// Above this many pairs that meet, their lists would take more memory than a better layout is worth.
const MOST_PAIRS: usize = 2_000_000;

/// Lowers each layout towards `peak` until one meets it or the work is spent. Which of them can be lowered far is not
/// told by how low it is at first, so that each has the same share. `blocks` are sorted by their first step.
pub(super) fn repair(blocks: &[Block], layouts: &mut [Layout], peak: u64) {
    let Some(neighbours) = neighbours(blocks) else { return };
    let mut search =
        Search { blocks, neighbours, lifted: vec![false; blocks.len()], spans: Vec::new(), work: 0 };
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let allowed = MOST_WORK.min(BASE_WORK + WORK_PER_BLOCK * blocks.len() as u64);
    let rounds = layouts.len() as u64;
    for (round, layout) in (1..).zip(layouts) {
        while layout.top > peak && search.work < allowed / rounds * round {
            search.work += blocks.len() as u64;
            let too_high: Vec<usize> =
                (0..blocks.len()).filter(|&i| layout.at[i] + blocks[i].units > peak).collect();
            let Some(&chosen) = too_high.get(random.below(too_high.len())) else { return };
            let group = search.group(chosen, &mut random);
            search.attempt(layout, peak, &group, &mut random);
        }
        if layout.top <= peak {
            return;
        }
    }
}

struct Search<'a> {
    blocks: &'a [Block],
    neighbours: Vec<Vec<usize>>,
    /// Which blocks are out of the layout at the moment.
    lifted: Vec<bool>,
    /// Room for the neighbours' extents, kept to save allocations.
    spans: Vec<(u64, u64)>,
    work: u64,
}

impl Search<'_> {
    /// `chosen`, some or all of those it meets, and now and then some of those that one of these meets.
    fn group(&mut self, chosen: usize, random: &mut Random) -> Vec<usize> {
        let mut group = vec![chosen];
        self.lifted[chosen] = true;
        let dropped = random.below(7);
        self.extend(&mut group, chosen, dropped, random);
        if random.below(2) == 0 {
            let from = group[random.below(group.len())];
            self.extend(&mut group, from, 4, random);
        }
        group
    }

    /// Adds each neighbour of `from`, but for `dropped` of 8.
    fn extend(&mut self, group: &mut Vec<usize>, from: usize, dropped: usize, random: &mut Random) {
        self.work += self.neighbours[from].len() as u64;
        for &other in &self.neighbours[from] {
            if !self.lifted[other] && random.below(8) >= dropped {
                self.lifted[other] = true;
                group.push(other);
            }
        }
    }

    /// Puts the lifted `group` back in a new order, or as it was if that is worse.
    fn attempt(&mut self, layout: &mut Layout, peak: u64, group: &[usize], random: &mut Random) {
        let before = self.cost(layout, peak, group);
        let old: Vec<u64> = group.iter().map(|&i| layout.at[i]).collect();
        for i in self.order(layout, group, random) {
            layout.at[i] = self.lowest(layout, i);
            self.lifted[i] = false;
        }
        if self.cost(layout, peak, group) > before {
            for (&i, at) in group.iter().zip(old) {
                layout.at[i] = at;
            }
            return;
        }
        let ends = layout.at.iter().zip(self.blocks).map(|(at, block)| at + block.units);
        layout.top = ends.max().unwrap_or(0);
    }

    /// Height of the group, then the sum of what stands above the peak: the second tells which of two layouts of one
    /// height is nearer to a lower one. What lies under the peak is free.
    fn cost(&self, layout: &Layout, peak: u64, group: &[usize]) -> (u64, u128) {
        let above = group.iter().map(|&i| (layout.at[i] + self.blocks[i].units).saturating_sub(peak));
        above.fold((0, 0), |(highest, sum), above| (highest.max(above), sum + u128::from(above)))
    }

    /// By size, area, length or present offset, each blurred; half of the time the chosen block goes first.
    fn order(&self, layout: &Layout, group: &[usize], random: &mut Random) -> Vec<usize> {
        let by = random.below(4);
        let mut keyed: Vec<(u64, usize)> = group
            .iter()
            .map(|&i| {
                let units = self.blocks[i].units;
                let length = (self.blocks[i].last - self.blocks[i].first) as u64 + 1;
                let blur = 64 + random.below(64) as u64;
                // The lowest key goes first. Keys only set an order, so that a saturated one does no harm.
                let key = match by {
                    0 => u64::MAX - units.saturating_mul(blur),
                    1 => u64::MAX - units.saturating_mul(length).saturating_mul(blur),
                    2 => u64::MAX - length.saturating_mul(blur),
                    _ => layout.at[i].saturating_mul(blur).saturating_add(blur),
                };
                (key, i)
            })
            .collect();
        if random.below(2) == 0 {
            keyed[0].0 = 0;
        }
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, i)| i).collect()
    }

    /// The lowest offset at which block `i` meets none that is in the layout.
    fn lowest(&mut self, layout: &Layout, i: usize) -> u64 {
        let present = self.neighbours[i].iter().filter(|&&other| !self.lifted[other]);
        self.spans.clear();
        self.spans
            .extend(present.map(|&other| (layout.at[other], layout.at[other] + self.blocks[other].units)));
        self.spans.sort_unstable();
        // Sorting is what takes longest where many meet.
        let sorting = self.spans.len() * self.spans.len().max(1).ilog2() as usize / 4;
        self.work += (self.neighbours[i].len() + sorting) as u64;
        let mut low = 0;
        for &(at, end) in &self.spans {
            if at >= low + self.blocks[i].units {
                break;
            }
            low = low.max(end);
        }
        low
    }
}

/// For each block, those it meets in time; none if there are too many pairs.
fn neighbours(blocks: &[Block]) -> Option<Vec<Vec<usize>>> {
    let end = |block: &Block| blocks.partition_point(|other| other.first <= block.last);
    let pairs: usize = blocks.iter().enumerate().map(|(i, block)| end(block) - i - 1).sum();
    if pairs > MOST_PAIRS {
        return None;
    }
    let mut neighbours = vec![Vec::new(); blocks.len()];
    for (i, block) in blocks.iter().enumerate() {
        for j in i + 1..end(block) {
            neighbours[i].push(j);
            neighbours[j].push(i);
        }
    }
    Some(neighbours)
}

/// Marsaglia's xorshift: the search needs variety, not quality, and the same numbers each time.
struct Random(u64);

impl Random {
    /// A number below `limit`; 0 if that is 0.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The product's high half is spread evenly enough for any limit far below 2⁶⁴.
        ((u128::from(self.0) * limit as u128) >> 64) as usize
    }
}

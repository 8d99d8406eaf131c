//! First fit in several orders.

use super::Block;
use std::cmp::Reverse;

/// Where every block lies, in units.
#[derive(Default)]
pub(super) struct Layout {
    /// Each block's offset.
    pub(super) at: Vec<u64>,
    /// The end of the highest block.
    pub(super) top: u64,
}

/// The layouts that first fit makes, one per order, lowest first; no more orders are tried once one meets `peak`.
/// `blocks` are sorted by their first step, and `live` are the units alive at each one's.
pub(super) fn layouts(blocks: &[Block], live: &[u64], peak: u64) -> Vec<Layout> {
    let length = |i: usize| (blocks[i].last - blocks[i].first) as u128 + 1;
    let area = |i: usize| length(i) * u128::from(blocks[i].units);
    let widest: Vec<u64> = (0..blocks.len())
        .map(|i| {
            let end = blocks.partition_point(|block| block.first <= blocks[i].last);
            live[i..end].iter().copied().max().unwrap_or(0)
        })
        .collect();
    // By size is right most often. Where the live sum is near the peak there is no room for a mistake, so that the
    // blocks of those steps go first in the last two orders: greedy by breadth, with two ways to break ties.
    type Key<'a> = &'a dyn Fn(usize) -> (Reverse<u128>, Reverse<u128>);
    let keys: [Key; 5] = [
        &|i| (Reverse(blocks[i].units.into()), Reverse(length(i))),
        &|i| (Reverse(area(i)), Reverse(length(i))),
        &|i| (Reverse(length(i)), Reverse(blocks[i].units.into())),
        &|i| (Reverse(widest[i].into()), Reverse(blocks[i].units.into())),
        &|i| (Reverse(widest[i].into()), Reverse(length(i))),
    ];
    let mut layouts = Vec::new();
    for key in keys {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|&i| key(i));
        let layout = first_fit(blocks, &order);
        let done = layout.top <= peak;
        layouts.push(layout);
        if done {
            break;
        }
    }
    layouts.sort_by_key(|layout| layout.top);
    layouts
}

/// Puts each block, in this order, at the lowest offset where it meets none that is there already.
fn first_fit(blocks: &[Block], order: &[usize]) -> Layout {
    let mut layout = Layout { at: vec![0; blocks.len()], top: 0 };
    // Sorted by offset. A scan of all that are placed is quicker than lists of neighbours: it stops at the first gap.
    let mut placed: Vec<(u64, Block)> = Vec::with_capacity(blocks.len());
    for &i in order {
        let block = blocks[i];
        let mut low = 0;
        for (at, other) in &placed {
            if *at >= low + block.units {
                break;
            }
            if block.meets(other) {
                low = low.max(at + other.units);
            }
        }
        let position = placed.partition_point(|(at, _)| *at <= low);
        placed.insert(position, (low, block));
        layout.at[i] = low;
        layout.top = layout.top.max(low + block.units);
    }
    layout
}

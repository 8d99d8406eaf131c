//! Which extents go to which stretch, where no stretch alone has free bytes enough.
//!
//! Within a stretch all free bytes can be brought together, so only their sums matter: an extent can go wherever the
//! sum is as large as itself. What remains is a search (A*) over who is where.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

/// States looked at before the search gives up. A dozen extents in two stretches have half as many.
const STATES: usize = 8192;

/// Moves `(item, stretch)`, in order, after which one of the stretches has `wanted` bytes free. `items` are the bytes
/// of each and the stretch that it is in, `free` the free bytes of each stretch.
pub(super) fn exchange(items: &[(u64, usize)], free: &[u64], wanted: u64) -> Option<Vec<(usize, usize)>> {
    let mut whole = free.to_vec();
    for &(bytes, at) in items {
        *whole.get_mut(at)? += bytes;
    }
    let problem = Problem { items, whole, wanted };
    // First for few bytes moved; where that is lost in too many states, straight for the goal.
    problem.search(free, 1).or_else(|| problem.search(free, 1 << 20))
}

struct Problem<'a> {
    items: &'a [(u64, usize)],
    whole: Vec<u64>,
    wanted: u64,
}

#[derive(Clone)]
struct State {
    places: Vec<usize>,
    free: Vec<u64>,
    moved: u64,
    /// The state before, and the item that was moved from there to which stretch.
    step: Option<(usize, usize, usize)>,
}

impl Problem<'_> {
    /// A*: `weight` 1 finds few bytes moved, a larger one sees fewer states.
    fn search(&self, free: &[u64], weight: u64) -> Option<Vec<(usize, usize)>> {
        let places = self.items.iter().map(|(_, at)| *at).collect();
        let mut states = vec![State { places, free: free.to_vec(), moved: 0, step: None }];
        let mut seen = HashSet::new();
        let mut queue = BinaryHeap::from([Reverse((0, 0, 0))]);
        while let Some(Reverse((_, missing, at))) = queue.pop() {
            let state = states.get(at)?.clone();
            if missing == 0 && state.step.is_some() {
                return Some(path(&states, at));
            }
            for (item, to) in self.steps(&state) {
                let Some(next) = self.after(&state, at, item, to) else { continue };
                let Some(missing) = self.missing(&next.free) else { continue };
                if seen.insert(self.normal(&next.places)) {
                    let score = next.moved.saturating_add(missing.saturating_mul(weight));
                    queue.push(Reverse((score, missing, states.len())));
                    states.push(next);
                }
            }
            if states.len() > STATES {
                return None;
            }
        }
        None
    }

    /// Every move that the free bytes allow; of equal items in one stretch only the first goes.
    fn steps(&self, state: &State) -> Vec<(usize, usize)> {
        let mut steps = vec![];
        let mut tried = HashSet::new();
        for (item, (&(bytes, _), &from)) in self.items.iter().zip(&state.places).enumerate() {
            if tried.insert((bytes, from)) {
                let open = state.free.iter().zip(0..).filter(|(free, to)| **free >= bytes && *to != from);
                steps.extend(open.map(|(_, to)| (item, to)));
            }
        }
        steps
    }

    fn after(&self, state: &State, at: usize, item: usize, to: usize) -> Option<State> {
        let (bytes, _) = *self.items.get(item)?;
        let mut next = state.clone();
        let place = next.places.get_mut(item)?;
        *next.free.get_mut(*place)? += bytes;
        *next.free.get_mut(to)? -= bytes;
        *place = to;
        next.moved += bytes;
        next.step = Some((at, item, to));
        Some(next)
    }

    /// The fewest bytes that a stretch long enough still lacks; `None` where none is long enough.
    fn missing(&self, free: &[u64]) -> Option<u64> {
        let long_enough = free.iter().zip(&self.whole).filter(|(_, whole)| **whole >= self.wanted);
        long_enough.map(|(free, _)| self.wanted.saturating_sub(*free)).min()
    }

    /// One form for all states that differ only in which of several equal items is where.
    fn normal(&self, places: &[usize]) -> Vec<(u64, usize)> {
        let mut normal: Vec<_> =
            self.items.iter().zip(places).map(|((bytes, _), at)| (*bytes, *at)).collect();
        normal.sort_unstable();
        normal
    }
}

fn path(states: &[State], mut at: usize) -> Vec<(usize, usize)> {
    let mut path = vec![];
    while let Some((before, item, to)) = states.get(at).and_then(|state| state.step) {
        path.push((item, to));
        at = before;
    }
    path.reverse();
    path
}

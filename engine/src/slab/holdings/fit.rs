//! What has to happen before something fits: moves, evictions, or other figures.

use super::{Bound, DoesNotFit, Move, Remedy, State, Terms, Unloading};
use crate::slab::compact::compact;
use std::collections::BTreeMap;

/// What has to happen before a reservation is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Nothing.
    Free,
    /// These moves, in order.
    AfterMoves(Vec<Move>),
    /// These owners leave, least recently used first, then these moves in order.
    AfterEvicting {
        /// Whose holdings must all be dropped.
        owners: Vec<String>,
        /// Moves after that; often none.
        moves: Vec<Move>,
    },
    /// No moves and no evictions that are allowed suffice.
    Never(DoesNotFit),
}

/// All that one owner holds, taken together.
#[derive(Clone, Copy, Debug)]
struct Standing<'a> {
    owner: &'a str,
    bytes: u64,
    idle: bool,
    last_use: u64,
    first: u64,
    terms: Terms,
}

impl State {
    pub(super) fn plan_fit(&self, owner: &str, bytes: u64, priority: u8, ceiling: u64) -> Fit {
        match self.moves_without(&[], bytes) {
            Some(moves) if moves.is_empty() => return Fit::Free,
            Some(moves) => return Fit::AfterMoves(moves),
            None => {}
        }
        let mut may_leave: Vec<Standing> = self.others(owner);
        may_leave.retain(|other| other.idle && !other.terms.pinned && other.terms.priority <= priority);
        may_leave.sort_by_key(|other| (other.last_use, other.first));
        match self.leave_until_fit(&may_leave, bytes) {
            Some((owners, moves)) => {
                Fit::AfterEvicting { owners: owners.into_iter().map(String::from).collect(), moves }
            }
            None => Fit::Never(self.refusal(owner, bytes, ceiling)),
        }
    }

    /// The first of `may_leave` without whom `bytes` fit, less those who did not help.
    fn leave_until_fit<'a>(
        &self,
        may_leave: &[Standing<'a>],
        bytes: u64,
    ) -> Option<(Vec<&'a str>, Vec<Move>)> {
        let mut gone: Vec<&str> = vec![];
        let mut moves = may_leave.iter().find_map(|next| {
            gone.push(next.owner);
            self.moves_without(&gone, bytes)
        })?;
        // Who left in vain stays; of several, who was used last.
        for at in (0..gone.len()).rev() {
            let mut fewer = gone.clone();
            fewer.remove(at);
            if let Some(enough) = self.moves_without(&fewer, bytes) {
                (gone, moves) = (fewer, enough);
            }
        }
        Some((gone, moves))
    }

    /// The moves after which `bytes` fit once the owners in `gone` have left; `None` where there are none.
    pub(super) fn moves_without(&self, gone: &[&str], bytes: u64) -> Option<Vec<Move>> {
        let mut extents = self.extents.clone();
        let mut movable = vec![];
        for entry in self.entries.values() {
            if gone.contains(&entry.owner.as_str()) {
                entry.extents().try_for_each(|extent| extents.free(extent)).ok()?;
            } else if self.may_move(entry) {
                movable.push(entry.placement.extent);
            }
        }
        compact(&extents, &movable, bytes)
    }

    fn others(&self, asking: &str) -> Vec<Standing<'_>> {
        let mut standings: BTreeMap<&str, Standing> = BTreeMap::new();
        for (id, entry) in self.entries.iter().filter(|(_, entry)| entry.owner != asking) {
            let standing = standings.entry(&entry.owner).or_insert_with(|| Standing {
                owner: &entry.owner,
                bytes: 0,
                idle: true,
                last_use: 0,
                first: *id,
                terms: self.terms(&entry.owner),
            });
            standing.bytes += entry.placement.extent.bytes;
            standing.idle &= entry.is_idle();
            standing.last_use = standing.last_use.max(entry.last_use);
        }
        standings.into_values().collect()
    }

    /// The refusal where no free extent has `bytes`, with what would help.
    pub(super) fn refusal(&self, owner: &str, bytes: u64, ceiling: u64) -> DoesNotFit {
        let mut others = self.others(owner);
        others.sort_by_key(|other| std::cmp::Reverse(other.bytes));
        let free = self.extents.free_bytes();
        let largest_free = self.extents.largest_free();
        DoesNotFit {
            owner: owner.into(),
            needed: bytes,
            free,
            ceiling,
            bound: if free >= bytes { Bound::Pieces { largest_free } } else { Bound::Sum },
            remedies: self.remedies(&others, bytes),
            holders: others.iter().map(|other| (other.owner.to_string(), other.bytes)).collect(),
        }
    }

    /// What an operator could do: two single models of which either is enough, else several together. Unlike an
    /// eviction this names models that run or are pinned, after all that do not.
    fn remedies(&self, others: &[Standing], bytes: u64) -> Vec<Remedy> {
        if let Some(moves) = self.moves_without(&[], bytes) {
            return vec![Remedy::Compaction { moved_bytes: moves.iter().map(|step| step.from.bytes).sum() }];
        }
        let mut others = others.to_vec();
        others.sort_by_key(|other| (!other.idle, other.terms.pinned, other.bytes));
        let alone = others.iter().filter(|other| self.moves_without(&[other.owner], bytes).is_some());
        let alone: Vec<Remedy> = alone.take(2).map(|other| unload(&[*other])).collect();
        if !alone.is_empty() {
            return alone;
        }
        others.sort_by_key(|other| (!other.idle, other.terms.pinned, std::cmp::Reverse(other.bytes)));
        let Some((owners, _)) = self.leave_until_fit(&others, bytes) else {
            return vec![Remedy::OtherLines];
        };
        others.retain(|other| owners.contains(&other.owner));
        vec![unload(&others)]
    }
}

fn unload(standings: &[Standing]) -> Remedy {
    let unloading =
        |one: &Standing| Unloading { owner: one.owner.to_string(), bytes: one.bytes, idle_ms: None };
    Remedy::Unload(standings.iter().map(unloading).collect())
}

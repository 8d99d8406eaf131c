use super::*;
use crate::slab::{LaneSizes, Region, Use};
use proptest::prelude::*;
use std::sync::mpsc;
use std::time::Duration;

/// A slab with `weights` bytes for weights in one chunk, and a lane and a reserve behind them.
fn slab(weights: u64) -> Arc<Slab> {
    let lanes = LaneSizes { steady: 1, workspace_bytes: 50 };
    Slab::new(Layout::new(&[weights + 80], lanes, 30, 1).unwrap(), weights + 200)
}

fn now(slab: &Slab) -> Snapshot {
    slab.snapshot(Use::default(), Use::default())
}

/// The snapshot but for the high-water mark, which does not go back.
fn without_peak(slab: &Slab) -> Snapshot {
    let mut snapshot = now(slab);
    snapshot.weights.used.peak_bytes = 0;
    snapshot
}

fn at(offset_bytes: u64, bytes: u64) -> Extent {
    Extent { chunk: 0, offset_bytes, bytes }
}

fn used(holding: &Holding, counter: u64) {
    drop(holding.use_at(counter));
}

#[test]
fn a_refused_load_leaves_the_slab_as_it_was() {
    let slab = slab(100);
    let _kept = slab.reserve("segment", 80).unwrap();
    let before = now(&slab);
    let refusal = slab.reserve("detect", 21).unwrap_err();
    assert_eq!((refusal.needed, refusal.free, refusal.ceiling), (21, 20, 300));
    assert_eq!(
        refusal.to_string(),
        "`detect` needs 21 bytes, 20 bytes free under the ceiling of 300 bytes; fits after unloading `segment` (80 \
         bytes)"
    );
    assert!(slab.reserve("detect", u64::MAX).is_err());
    assert_eq!(now(&slab), before);
}

#[test]
fn a_snapshot_lists_regions_that_sum_to_the_slab_and_extents_with_their_owner() {
    let slab = slab(100);
    let detect = slab.reserve("detect", 40).unwrap();
    drop(slab.reserve("segment", 60).unwrap());
    used(&detect, 7);
    let lanes = Use { used_bytes: 50, peak_bytes: 50 };
    let snapshot = slab.snapshot(lanes, Use::default());
    let used = Use { used_bytes: 40, peak_bytes: 100 };
    assert_eq!(snapshot.weights, Region { bytes: 100, used });
    assert_eq!(snapshot.lanes, Region { bytes: 50, used: lanes });
    assert_eq!(snapshot.reserve.bytes, 30);
    assert_eq!(snapshot.slab_bytes, 180);
    let held: Vec<_> = snapshot
        .held
        .iter()
        .map(|held| (held.owner.as_str(), held.placement.extent, held.last_use))
        .collect();
    assert_eq!(held, [("detect", at(0, 40), 7)]);
}

#[test]
fn what_fits_needs_nothing_and_what_lies_apart_needs_moves() {
    let slab = slab(100);
    let hole = slab.reserve("a", 30).unwrap();
    let _b = slab.reserve("b", 40).unwrap();
    drop(hole);
    assert_eq!(slab.plan_fit("c", 30, 0), Fit::Free);
    assert_eq!(slab.plan_fit("c", 60, 0), Fit::AfterMoves(vec![Move { from: at(30, 40), to: at(0, 40) }]));
    let refusal = slab.reserve("c", 60).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "`c` needs 60 bytes, 60 bytes free under the ceiling of 300 bytes, of which 30 bytes in one piece; fits \
         after moving 40 bytes of idle weights together"
    );
}

#[test]
fn the_least_recently_used_leave_first_and_who_does_not_help_stays() {
    let slab = slab(100);
    let holdings = ["a", "b", "c", "d"].map(|owner| slab.reserve(owner, 25).unwrap());
    for (holding, counter) in holdings.iter().zip([30, 10, 20, 40]) {
        used(holding, counter);
    }
    let evicted = |bytes, priority| match slab.plan_fit("e", bytes, priority) {
        Fit::AfterEvicting { owners, .. } => owners,
        other => panic!("{other:?}"),
    };
    assert_eq!(evicted(25, 0), ["b"]);
    assert_eq!(evicted(50, 0), ["b", "c"]);
    let _b = slab.agree("b", Terms { pinned: true, ..Terms::default() }, 0);
    let _c = slab.agree("c", Terms { priority: 3, ..Terms::default() }, 0);
    assert_eq!(evicted(25, 0), ["a"]);
    assert_eq!(evicted(25, 3), ["c"]);
    drop(holdings);
    let _small = slab.reserve("small", 10).unwrap();
    let _large = slab.reserve("large", 90).unwrap();
    // The small one was loaded first, but the large one alone is enough.
    assert_eq!(evicted(85, 0), ["large"]);
}

#[test]
fn what_runs_is_neither_evicted_nor_moved() {
    let slab = slab(100);
    let hole = slab.reserve("a", 20).unwrap();
    let busy = slab.reserve("b", 60).unwrap();
    drop(hole);
    let running = busy.use_at(1);
    let Fit::Never(refusal) = slab.plan_fit("c", 40, 9) else { panic!("it runs") };
    assert_eq!(refusal.bound, Bound::Pieces { largest_free: 20 });
    let step = Move { from: at(20, 60), to: at(0, 60) };
    assert_eq!(slab.start_move(step).unwrap_err().reason, "it is in use or pinned");
    drop(running);
    assert_eq!(slab.plan_fit("c", 40, 9), Fit::AfterMoves(vec![step]));
}

#[test]
fn more_than_the_region_needs_other_lines() {
    let slab = slab(100);
    let _other = slab.reserve("other", 10).unwrap();
    let Fit::Never(refusal) = slab.plan_fit("a", 101, 9) else { panic!("too large") };
    assert_eq!(refusal.remedies, [Remedy::OtherLines]);
}

#[test]
fn the_latest_terms_count_as_long_as_they_live() {
    let slab = slab(100);
    let priority = |priority| Terms { priority, ..Terms::default() };
    let first = slab.agree("a", priority(1), 0);
    let failed = slab.agree("a", priority(2), 40);
    assert_eq!((slab.terms("a"), slab.before_bytes("a")), (priority(2), 40));
    drop(failed);
    assert_eq!((slab.terms("a"), slab.before_bytes("a")), (priority(1), 0), "it serves on as it was");
    let successor = slab.agree("a", priority(3), 40);
    drop(first);
    assert_eq!((slab.terms("a"), slab.before_bytes("a")), (priority(3), 0), "the predecessor is gone");
    drop(successor);
    assert_eq!(slab.terms("a"), Terms::default());
    assert!(slab.state().terms.is_empty());
}

#[test]
fn a_finished_move_is_seen_by_its_holder() {
    let slab = slab(100);
    let hole = slab.reserve("a", 10).unwrap();
    let holding = slab.reserve("b", 40).unwrap();
    drop(hole);
    let moving = slab.start_move(Move { from: at(10, 40), to: at(0, 40) }).unwrap();
    assert_eq!(now(&slab).weights.used.used_bytes, 50, "both ends are held");
    moving.finish();
    assert_eq!(holding.placement(), Placement { extent: at(0, 40), moves: 1 });
    assert_eq!(now(&slab).free_bytes, 60);
}

#[test]
fn a_move_that_is_not_finished_did_not_happen() {
    let slab = slab(100);
    let hole = slab.reserve("a", 10).unwrap();
    let _b = slab.reserve("b", 40).unwrap();
    drop(hole);
    let before = without_peak(&slab);
    drop(slab.start_move(Move { from: at(10, 40), to: at(0, 40) }).unwrap());
    assert_eq!(without_peak(&slab), before);
    for (from, to) in [(at(0, 40), at(10, 40)), (at(10, 40), at(0, 30)), (at(10, 40), at(70, 40))] {
        assert!(slab.start_move(Move { from, to }).is_err());
        assert_eq!(without_peak(&slab), before);
    }
}

#[test]
fn who_leaves_while_moving_goes_when_the_move_has_ended() {
    for finished in [true, false] {
        let slab = slab(100);
        let start = without_peak(&slab);
        let hole = slab.reserve("a", 50).unwrap();
        let holding = slab.reserve("b", 40).unwrap();
        drop(hole);
        let moving = slab.start_move(Move { from: at(50, 40), to: at(0, 40) }).unwrap();
        drop(holding);
        assert_eq!(now(&slab).free_bytes, 20, "the copy still writes there");
        match finished {
            true => moving.finish(),
            false => drop(moving),
        }
        assert_eq!(without_peak(&slab), start);
    }
}

#[test]
fn a_use_waits_for_the_end_of_a_move() {
    let slab = slab(100);
    let hole = slab.reserve("a", 10).unwrap();
    let holding = slab.reserve("b", 40).unwrap();
    drop(hole);
    let moving = slab.start_move(Move { from: at(10, 40), to: at(0, 40) }).unwrap();
    let (seen, sees) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| seen.send(holding.use_at(1).placement()));
        assert!(sees.recv_timeout(Duration::from_millis(50)).is_err());
        moving.finish();
        assert_eq!(sees.recv().unwrap(), Placement { extent: at(0, 40), moves: 1 });
    });
}

#[test]
fn events_are_kept_in_order() {
    let slab = slab(100);
    slab.record(What::Load, "detect", 40, 1);
    slab.record(What::Evict, "detect", 40, 2);
    let events: Vec<_> = slab.events().into_iter().map(|event| (event.sequence, event.what)).collect();
    assert_eq!(events, [(0, What::Load), (1, What::Evict)]);
}

/// A slab with simulated memory: each holding's bytes are marked, and checked wherever it has moved to.
struct World {
    slab: Arc<Slab>,
    memory: Vec<Vec<u8>>,
    held: Vec<(String, Holding, u8)>,
    agreed: Vec<Agreement>,
    mark: u8,
}

impl World {
    fn new(slab: Arc<Slab>) -> World {
        let memory = slab.layout().chunks().iter().map(|bytes| vec![0; *bytes as usize]).collect();
        World { slab, memory, held: vec![], agreed: vec![], mark: 0 }
    }

    fn bytes(&mut self, extent: Extent) -> &mut [u8] {
        &mut self.memory[extent.chunk as usize][extent.offset_bytes as usize..extent.end_bytes() as usize]
    }

    fn load(&mut self, owner: &str, bytes: u64) -> Result<(), DoesNotFit> {
        let holding = self.slab.reserve(owner, bytes)?;
        let extent = holding.placement().extent;
        let lanes = [self.slab.layout().steady(), self.slab.layout().burst()].concat();
        assert!(!lanes.iter().any(|lane| lane.overlaps(&extent)), "weights stay out of lanes and reserve");
        self.mark = self.mark % 250 + 1;
        let mark = self.mark;
        self.bytes(extent).fill(mark);
        self.held.push((owner.into(), holding, mark));
        Ok(())
    }

    fn carry_out(&mut self, moves: Vec<Move>) {
        for step in moves {
            let moving = self.slab.start_move(step).unwrap();
            let bytes = self.bytes(step.from).to_vec();
            self.bytes(step.to).copy_from_slice(&bytes);
            moving.finish();
        }
        self.check();
    }

    fn check(&mut self) {
        assert_eq!(self.slab.check(), Ok(()));
        for at in 0..self.held.len() {
            let (extent, mark) = (self.held[at].1.placement().extent, self.held[at].2);
            assert!(self.bytes(extent).iter().all(|byte| *byte == mark), "contents are kept");
        }
    }
}

fn chunks() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(40u64..200, 1..3)
}

/// Loads `(bytes, priority, pinned)` as owners `0`, `1`, …; drops those of `gaps`; uses the rest in the order of
/// their `uses`.
fn filled(chunks: &[u64], loads: &[(u64, u8, u8)], gaps: &[bool], uses: &[u64]) -> Option<World> {
    let lanes = LaneSizes { steady: 1, workspace_bytes: 16 };
    let layout = Layout::new(chunks, lanes, 8, 4).ok()?;
    let mut world = World::new(Slab::new(layout, 1000));
    for (at, &(bytes, priority, pinned)) in loads.iter().enumerate() {
        let terms = Terms { priority, pinned: pinned == 0, cap_bytes: None };
        world.agreed.push(world.slab.agree(&at.to_string(), terms, 0));
        let _full = world.load(&at.to_string(), bytes);
    }
    let mut gaps = gaps.iter().cycle();
    world.held.retain(|_| gaps.next() != Some(&true));
    for ((_, holding, _), counter) in world.held.iter().zip(uses) {
        used(holding, *counter);
    }
    Some(world)
}

proptest! {
    #[test]
    fn after_any_loads_and_unloads_the_account_is_whole_and_all_dropped_is_the_start(
        chunks in chunks(), steps in proptest::collection::vec((0u64..60, any::<bool>()), 1..60)
    ) {
        let Some(mut world) = filled(&chunks, &[], &[], &[]) else { return Ok(()) };
        let start = without_peak(&world.slab);
        for (bytes, unload) in steps {
            if unload && !world.held.is_empty() {
                world.held.swap_remove(bytes as usize % world.held.len());
            } else {
                let before = now(&world.slab);
                if world.load("m", bytes).is_err() {
                    prop_assert_eq!(now(&world.slab), before);
                }
            }
            world.check();
        }
        world.held.clear();
        prop_assert_eq!(without_peak(&world.slab), start);
    }

    #[test]
    fn a_plan_is_allowed_enough_and_no_more_than_needed(
        chunks in chunks(),
        loads in proptest::collection::vec((1u64..50, 0u8..3, 0u8..6), 0..10),
        gaps in proptest::collection::vec(any::<bool>(), 1..4),
        uses in proptest::collection::vec(0u64..50, 10),
        busy in proptest::collection::vec(0u8..5, 10),
        bytes in 1u64..150, priority in 0u8..3,
    ) {
        let Some(mut world) = filled(&chunks, &loads, &gaps, &uses) else { return Ok(()) };
        let held = std::mem::take(&mut world.held);
        let mut running = vec![];
        for ((_, holding, _), busy) in held.iter().zip(&busy) {
            if *busy == 0 {
                running.push(holding.use_at(50));
            }
        }
        let before = now(&world.slab);
        let fit = world.slab.plan_fit("new", bytes, priority);
        prop_assert_eq!(&now(&world.slab), &before, "a plan changes nothing");
        let may_leave = |owner: &str| {
            let one = before.held.iter().find(|held| held.owner == owner).unwrap();
            !one.in_use && !one.terms.pinned && one.terms.priority <= priority
        };
        drop(running);
        let standing = |owner: &str| before.held.iter().find(|held| held.owner == owner).unwrap().in_use;
        match fit {
            Fit::Free => {
                world.held = held;
                prop_assert!(world.load("new", bytes).is_ok());
            }
            Fit::AfterMoves(moves) => {
                for step in &moves {
                    let moved = before.held.iter().find(|held| held.placement.extent == step.from);
                    prop_assert!(moved.is_none_or(|moved| !moved.in_use && !moved.terms.pinned));
                }
                world.held = held;
                prop_assert!(world.slab.reserve("new", bytes).is_err());
                world.carry_out(moves);
                prop_assert!(world.load("new", bytes).is_ok());
            }
            Fit::AfterEvicting { owners, moves } => {
                prop_assert!(owners.iter().all(|owner| may_leave(owner)));
                // Whoever of the list comes back, it is no longer enough: nobody leaves in vain. The busy are so again.
                for kept in &owners {
                    let gone: Vec<&str> = owners.iter().filter(|one| *one != kept).map(String::as_str).collect();
                    let mut running = vec![];
                    for (owner, holding, _) in &held {
                        if standing(owner) {
                            running.push(holding.use_at(50));
                        }
                    }
                    prop_assert!(world.slab.state().moves_without(&gone, bytes).is_none());
                }
                world.held = held;
                world.held.retain(|(owner, ..)| !owners.contains(owner));
                world.carry_out(moves);
                prop_assert!(world.load("new", bytes).is_ok());
            }
            Fit::Never(refusal) => {
                let mut running = vec![];
                for (owner, holding, _) in &held {
                    if standing(owner) {
                        running.push(holding.use_at(50));
                    }
                }
                let all: Vec<&str> =
                    held.iter().map(|(owner, ..)| owner.as_str()).filter(|owner| may_leave(owner)).collect();
                prop_assert!(world.slab.state().moves_without(&all, bytes).is_none());
                // The remedies are true: with those unloaded it fits.
                for remedy in &refusal.remedies {
                    match remedy {
                        Remedy::Unload(all) => {
                            let all: Vec<&str> = all.iter().map(|one| one.owner.as_str()).collect();
                            prop_assert!(world.slab.state().moves_without(&all, bytes).is_some());
                        }
                        Remedy::OtherLines => {
                            let all: Vec<&str> = held.iter().map(|(owner, ..)| owner.as_str()).collect();
                            prop_assert!(world.slab.state().moves_without(&all, bytes).is_none());
                        }
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                drop(running);
                world.held = held;
            }
        }
        world.check();
    }
}

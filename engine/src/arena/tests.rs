use super::*;

const MIB: u64 = 1 << 20;

/// An arena under a ceiling of 16 MiB, with a lane and a reserve of 1 MiB each.
fn arena() -> Arc<Arena> {
    let fixed = Fixed { ceiling: 16 * MIB, headroom: 4 * MIB, ..Fixed::default() };
    let lines = Lines { fixed, reserve: MIB, lanes: 1, workspace: Some(MIB), threads: 1, ..Lines::default() };
    Arena::take(&lines, || 7).unwrap()
}

#[test]
fn what_is_allocated_after_the_start_is_counted() {
    let arena = arena();
    let before = arena.allocations();
    assert!(before.total > 0 && before.after_ready == 0);
    arena.ready();
    let heap = Arena::unlimited();
    // Other tests of this process allocate too.
    drop(heap.room("a", 100).unwrap());
    let after = arena.allocations();
    assert!(after.total > before.total && after.after_ready > 0);
    assert_eq!(heap.allocations().after_ready, 0, "its start is not over");
}

#[test]
fn a_cap_counts_the_slab_and_host_memory_together_and_refuses_with_the_figures() {
    let arena = arena();
    let agreed = arena.agree("a", Terms { cap_bytes: Some(3 * MIB), ..Terms::default() });
    let host = arena.reserve("a", Kind::Import, MIB).unwrap();
    let _weights = arena.room("a", MIB).unwrap();
    let before = (arena.snapshot(), arena.ledger().account());
    let expected = "`a` needs 1.5 MiB, 1.0 MiB free under its memory_limit of 3.0 MiB; fits with memory_limit of at \
                    least 4 MiB";
    let more = 3 * MIB / 2;
    assert_eq!(arena.room("a", more).err().unwrap().to_string(), expected);
    assert_eq!(arena.reserve("a", Kind::Host, more).unwrap_err().to_string(), expected);
    assert_eq!((arena.snapshot(), arena.ledger().account()), before, "a refusal changes nothing");
    assert!(arena.room("b", more).is_ok(), "others are not bound by it");
    drop(host);
    drop(arena.room("a", more).unwrap());
    drop(agreed);
    assert!(arena.room("a", 4 * MIB).is_ok(), "the terms have gone");
}

#[test]
fn what_a_predecessor_holds_does_not_count() {
    let arena = arena();
    let terms = Terms { cap_bytes: Some(2 * MIB), ..Terms::default() };
    let (old, old_weights) = (arena.agree("a", terms), arena.room("a", 2 * MIB).unwrap());
    let _new = arena.agree("a", terms);
    let _new_weights = arena.room("a", 2 * MIB).unwrap();
    assert!(arena.room("a", 64).is_err());
    drop((old, old_weights));
    assert!(arena.room("a", 64).is_err(), "nor does it make room when it goes");
}

#[test]
fn a_refusal_for_a_cap_moves_and_evicts_nobody() {
    let arena = arena();
    arena.set_evict(Box::new(|_| panic!("nobody leaves")));
    let _all = arena.room("other", 9 * MIB).unwrap();
    let _terms = arena.agree("a", Terms { cap_bytes: Some(MIB), ..Terms::default() });
    assert!(arena.room("a", 2 * MIB).is_err());
    let events: Vec<_> = arena.events().into_iter().map(|event| (event.what, event.owner)).collect();
    assert_eq!(events, [(What::Refuse, "a".into())]);
}

use super::*;

const MIB: u64 = 1 << 20;

/// An arena under a ceiling of 16 MiB, with a lane and a reserve of 1 MiB each.
fn arena() -> Arc<Arena> {
    let fixed = Fixed { ceiling: 16 * MIB, headroom: 4 * MIB, ..Fixed::default() };
    let lines = Lines { fixed, reserve: MIB, lanes: 1, workspace: Some(MIB), threads: 1 };
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

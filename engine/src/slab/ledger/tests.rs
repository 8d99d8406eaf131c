use super::*;
use proptest::prelude::*;

fn ledger(free: u64) -> Arc<Ledger> {
    Ledger::new(Fixed { ceiling: free + 60, driver: 10, process: 20, bodies: 5, headroom: free, slab: 25 })
}

#[test]
fn a_refused_reservation_leaves_the_ledger_as_it_was() {
    let ledger = ledger(100);
    let _kept = ledger.reserve("a", Kind::Import, 80).unwrap();
    let before = ledger.account();
    let refusal = ledger.reserve("b", Kind::Import, 21).unwrap_err();
    assert_eq!((refusal.needed, refusal.free, refusal.ceiling), (21, 20, 160));
    assert_eq!(ledger.account(), before);
}

#[test]
fn a_refusal_names_the_headroom() {
    const MIB: u64 = 1 << 20;
    let ledger = Ledger::new(Fixed { ceiling: 512 * MIB, headroom: 64 * MIB, ..Fixed::default() });
    let _segment = ledger.reserve("segment", Kind::Import, 30 * MIB).unwrap();
    let text = ledger.reserve("detect", Kind::Staging, 40 * MIB).unwrap_err().to_string();
    assert_eq!(
        text,
        "`detect` needs 40 MiB, 34 MiB of host memory free of the 64 MiB of memory.headroom; fits with \
         memory.headroom of at least 70 MiB"
    );
}

#[test]
fn lines_that_pass_the_ceiling_leave_nothing_for_the_slab() {
    let fixed = Fixed { ceiling: 10, process: 20, ..Fixed::default() };
    assert_eq!(fixed.for_slab(), 0);
    assert!(Ledger::new(fixed).reserve("a", Kind::Import, 1).is_err());
}

proptest! {
    #[test]
    fn the_sum_is_what_is_held_and_never_passes_the_ceiling(
        steps in proptest::collection::vec((0u64..60, any::<bool>()), 1..80)
    ) {
        let ledger = ledger(100);
        let mut kept = vec![];
        let mut peak = 0;
        for (bytes, release) in steps {
            if release && !kept.is_empty() {
                kept.remove(bytes as usize % kept.len());
            } else if let Ok(reservation) = ledger.reserve("m", Kind::Host, bytes) {
                kept.push(reservation);
            }
            let account = ledger.account();
            let sum: u64 = kept.iter().map(Reservation::bytes).sum();
            peak = peak.max(sum);
            prop_assert_eq!(account.held_bytes, sum);
            prop_assert_eq!(account.held.iter().map(|held| held.bytes).sum::<u64>(), sum);
            prop_assert_eq!(account.free_bytes, 100 - sum);
            prop_assert_eq!(account.peak_bytes, peak);
        }
        drop(kept);
        prop_assert_eq!(ledger.account().held_bytes, 0);
    }
}

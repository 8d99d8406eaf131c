use super::*;
use proptest::prelude::*;

fn at(chunk: u32, offset_bytes: u64, bytes: u64) -> Extent {
    Extent { chunk, offset_bytes, bytes }
}

#[test]
fn the_smallest_extent_that_is_large_enough_is_taken_and_of_equals_the_first() {
    let mut extents = Extents::new(&[100, 30, 30], 10);
    assert_eq!(extents.place(25), Some(at(1, 0, 30)));
    assert_eq!(extents.place(30), Some(at(2, 0, 30)));
    assert_eq!(extents.place(1), Some(at(0, 0, 10)));
    assert_eq!((extents.free_bytes(), extents.largest_free()), (90, 90));
}

#[test]
fn no_extent_straddles_two_chunks() {
    let mut extents = Extents::new(&[64, 64], 1);
    assert_eq!(extents.place(65), None);
    assert_eq!(extents.free_bytes(), 128);
}

#[test]
fn sizes_are_rounded_up_and_chunks_down() {
    let mut extents = Extents::new(&[1000], 256);
    assert_eq!(extents.chunks(), [768]);
    assert_eq!(extents.place(257), Some(at(0, 0, 512)));
    assert_eq!(extents.place(0), Some(at(0, 512, 256)));
    assert_eq!(extents.place(0), None);
    assert_eq!(extents.place(u64::MAX), None);
}

#[test]
fn what_is_freed_twice_or_never_placed_is_refused() {
    let mut extents = Extents::new(&[100, 100], 10);
    let extent = extents.place(50).unwrap();
    extents.free(extent).unwrap();
    let before = extents.clone();
    for wrong in [extent, at(0, 90, 20), at(2, 0, 10), at(0, 5, 10), at(0, 0, 0), at(1, u64::MAX, 10)] {
        assert_eq!(extents.free(wrong), Err(Misplaced::NotPlaced(wrong)));
        assert_eq!(extents, before);
    }
    let _rest = extents.place(100).unwrap();
    assert_eq!(extents.claim(at(0, 0, 10)), Err(Misplaced::NotFree(at(0, 0, 10))));
    assert_eq!(extents.claim(at(1, 95, 10)), Err(Misplaced::NotFree(at(1, 95, 10))));
}

proptest! {
    #[test]
    fn live_extents_never_overlap_and_all_freed_is_the_start(
        chunks in proptest::collection::vec(0u64..2000, 1..4),
        alignment in prop::sample::select(vec![1u64, 16, 48, 256]),
        steps in proptest::collection::vec((0u64..400, any::<bool>()), 1..100),
    ) {
        let mut extents = Extents::new(&chunks, alignment);
        let start = extents.clone();
        let mut live: Vec<Extent> = vec![];
        for (bytes, release) in steps {
            if release && !live.is_empty() {
                let extent = live.swap_remove(bytes as usize % live.len());
                extents.free(extent).unwrap();
            } else {
                let before = extents.clone();
                match extents.place(bytes) {
                    Some(extent) => {
                        prop_assert!(extent.bytes >= bytes && extent.bytes < bytes.max(1) + alignment);
                        live.push(extent);
                    }
                    None => {
                        prop_assert!(before.largest_free() < bytes.max(1).next_multiple_of(alignment));
                        prop_assert_eq!(&before, &extents);
                    }
                }
            }
            // Placed and free extents together tile the chunks: no overlap, no byte lost, and free neighbours merged.
            let mut all: Vec<(Extent, bool)> = live.iter().map(|extent| (*extent, false)).collect();
            all.extend(extents.iter_free().map(|extent| (extent, true)));
            all.sort();
            let (mut chunk, mut end, mut was_free) = (0u32, 0, false);
            for (extent, free) in all {
                prop_assert!(extent.offset_bytes % alignment == 0 && extent.bytes % alignment == 0);
                while chunk < extent.chunk {
                    prop_assert_eq!(end, extents.chunks()[chunk as usize]);
                    (chunk, end, was_free) = (chunk + 1, 0, false);
                }
                prop_assert_eq!(extent.offset_bytes, end);
                prop_assert!(!(free && was_free), "free neighbours are merged");
                (end, was_free) = (extent.end_bytes(), free);
            }
            let placed: u64 = live.iter().map(|extent| extent.bytes).sum();
            prop_assert_eq!(placed + extents.free_bytes(), extents.chunks().iter().sum::<u64>());
        }
        for extent in live {
            extents.free(extent).unwrap();
        }
        prop_assert_eq!(extents, start);
    }
}

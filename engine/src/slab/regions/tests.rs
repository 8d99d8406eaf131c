use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn layout(
    chunks: &[u64],
    steady: usize,
    workspace_bytes: u64,
    reserve: u64,
) -> Result<Layout, LanesDoNotFit> {
    Layout::new(chunks, LaneSizes { steady, workspace_bytes }, reserve, 1)
}

fn sizes(lanes: &[Extent]) -> Vec<u64> {
    lanes.iter().map(|lane| lane.bytes).collect()
}

#[test]
fn the_reserve_is_as_many_lanes_as_fit_and_one_takes_what_is_over() {
    let layout = layout(&[1000], 2, 100, 350).unwrap();
    assert_eq!(sizes(layout.steady()), [100, 100]);
    assert_eq!(sizes(layout.burst()), [150, 100, 100]);
    assert_eq!(layout.weights().largest_free(), 450);
}

#[test]
fn a_reserve_smaller_than_a_lane_is_one_smaller_lane() {
    assert_eq!(sizes(layout(&[1000], 2, 100, 30).unwrap().burst()), [30]);
    assert_eq!(sizes(layout(&[1000], 2, 100, 0).unwrap().burst()), Vec::<u64>::new());
    assert_eq!(sizes(layout(&[1000], 0, 100, 300).unwrap().burst()), [300]);
}

#[test]
fn a_large_reserve_beside_tiny_lanes_is_no_crowd_of_lanes() {
    let layout = layout(&[1 << 30], 1, 1, 1 << 29).unwrap();
    assert_eq!(layout.burst().len(), 64);
    assert_eq!(layout.reserve_bytes(), 1 << 29);
}

#[test]
fn lanes_take_the_short_chunk_and_leave_the_long_one_to_weights() {
    let layout = layout(&[1000, 250], 2, 100, 40).unwrap();
    assert!(layout.steady().iter().chain(layout.burst()).all(|lane| lane.chunk == 1));
    assert_eq!(layout.weights().largest_free(), 1000);
}

#[test]
fn a_slab_without_room_for_the_lanes_is_refused_with_the_figures() {
    let refusal = layout(&[512 * MIB, 64 * MIB], 3, 200 * MIB, 64 * MIB).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "3 lanes of 200 MiB and a reserve of 64 MiB do not fit in the slab of 576 MiB, whose largest chunk has 512 \
         MiB; lower lanes.steady, lanes.workspace or memory.reserve, or raise memory.ceiling"
    );
    assert!(layout(&[100], 1, u64::MAX, 0).is_err());
    assert!(layout(&[100], 1, 50, u64::MAX).is_err());
    assert!(layout(&[], 1, 1, 0).is_err());
    assert!(layout(&[u64::MAX, 1], 1, 1, 0).is_err());
}

proptest! {
    #[test]
    fn the_regions_sum_to_the_slab_and_weights_never_enter_lanes_or_reserve(
        chunks in proptest::collection::vec(0u64..5000, 1..4),
        steady in 1usize..5, workspace in 0u64..800, reserve in 0u64..3000,
        alignment in prop::sample::select(vec![1u64, 16, 256]),
        weights in proptest::collection::vec(0u64..900, 1..40),
    ) {
        let lanes = LaneSizes { steady, workspace_bytes: workspace };
        let Ok(layout) = Layout::new(&chunks, lanes, reserve, alignment) else {
            return Ok(());
        };
        prop_assert_eq!(layout.check(), Ok(()));
        prop_assert_eq!(layout.slab_bytes(), chunks.iter().sum::<u64>());
        prop_assert_eq!(layout.steady().len(), steady);
        prop_assert!(layout.steady().iter().all(|lane| lane.bytes >= workspace));
        prop_assert_eq!(layout.reserve_bytes(), reserve.next_multiple_of(alignment));
        let lane = workspace.max(1).next_multiple_of(alignment);
        prop_assert!(layout.burst().len() <= 1 || layout.burst().iter().all(|burst| burst.bytes >= lane));
        prop_assert_eq!(layout.burst().is_empty(), reserve == 0);
        let mut extents = layout.weights();
        for bytes in weights {
            if let Some(placed) = extents.place(bytes) {
                prop_assert!(!layout.steady().iter().chain(layout.burst()).any(|lane| lane.overlaps(&placed)));
            }
        }
    }

    #[test]
    fn in_one_chunk_lanes_are_refused_only_where_their_sum_does_not_fit(
        chunk in 0u64..5000, steady in 1usize..5, workspace in 1u64..800, reserve in 0u64..3000,
    ) {
        let fits = steady as u64 * workspace + reserve <= chunk;
        prop_assert_eq!(layout(&[chunk], steady, workspace, reserve).is_ok(), fits);
    }
}

use super::*;
use proptest::prelude::*;

const ALIGNMENT: u64 = 64;

fn buffer(bytes: u64, first_step: usize, last_step: usize) -> Buffer {
    Buffer { bytes, first_step, last_step }
}

/// Offsets of `buffers`, found to be right by comparing every two.
fn checked(buffers: &[Buffer], alignment: u64) -> Offsets {
    let offsets = assign(buffers, alignment);
    assert_eq!(offsets.offset_bytes.len(), buffers.len());
    let mut top = 0;
    for (i, (a, &a_at)) in buffers.iter().zip(&offsets.offset_bytes).enumerate() {
        assert_eq!(a_at % alignment, 0);
        top = top.max(a_at + a.bytes.next_multiple_of(alignment));
        for (b, &b_at) in buffers.iter().zip(&offsets.offset_bytes).skip(i + 1) {
            let meet = a.first_step <= b.last_step && b.first_step <= a.last_step;
            assert!(
                !meet || a_at + a.bytes <= b_at || b_at + b.bytes <= a_at,
                "{a:?} at {a_at}, {b:?} at {b_at}"
            );
        }
    }
    assert_eq!(offsets.workspace_bytes, top);
    assert!(offsets.workspace_bytes >= live_peak_bytes(buffers, alignment));
    offsets
}

fn ratio(buffers: &[Buffer]) -> f64 {
    checked(buffers, ALIGNMENT).workspace_bytes as f64 / live_peak_bytes(buffers, ALIGNMENT) as f64
}

#[test]
fn published_nets_need_no_more_than_their_live_peak() {
    for (name, buffers) in nets::all() {
        let ratio = ratio(&buffers);
        println!("{name}: {} buffers, {ratio:.4} of the live peak", buffers.len());
        // Nested skips leave greedy orders 9% above the peak, and what the search makes of it may change with it.
        let limit = if name == "UNet++" { 1.05 } else { 1.0 };
        assert!(ratio <= limit, "{name}");
    }
}

#[test]
fn irregular_wiring_comes_near() {
    // No net is wired at random; how far the search falls short here is a measure of it, and the worst is 1.09.
    let mut ratios = Vec::new();
    for steps in [100, 300, 1000] {
        for seed in 0..5 {
            let buffers = nets::random_wiring(steps, seed);
            ratios.push(ratio(&buffers));
            println!("{steps} steps, seed {seed}: {:.4}", ratios[ratios.len() - 1]);
        }
    }
    assert!(ratios.iter().all(|&ratio| ratio <= 1.1), "{ratios:?}");
    assert!(ratios.iter().sum::<f64>() / ratios.len() as f64 <= 1.02, "{ratios:?}");
}

#[test]
fn a_dense_thousand_ends() {
    // Lifetimes that span much of the plan make the most pairs that meet, which is the most work.
    let buffers: Vec<Buffer> = (0..1000)
        .map(|i| buffer(1 + (i as u64 * 7919) % 100_003, i * 37 % 600, i * 37 % 600 + i * 61 % 400))
        .collect();
    assert!(ratio(&buffers) <= 1.1);
}

#[test]
fn a_chain_needs_its_largest_neighbours() {
    let sizes = [5, 9, 2, 7, 7, 1, 8, 3];
    let chain: Vec<Buffer> = sizes.iter().enumerate().map(|(i, &size)| buffer(size * 64, i, i + 1)).collect();
    assert_eq!(checked(&chain, ALIGNMENT).workspace_bytes, 14 * 64);
    assert_eq!(peak_step(&chain, ALIGNMENT), Some(1));
}

#[test]
fn a_skip_keeps_its_place_below_what_passes() {
    // The residual lives from 0 to 3, two values pass it, the sum takes the place of the first.
    let block = [buffer(64, 0, 3), buffer(128, 1, 2), buffer(64, 2, 3), buffer(64, 3, 4)];
    let offsets = checked(&block, ALIGNMENT);
    assert_eq!(offsets.workspace_bytes, 256);
    assert_eq!(live_peak_bytes(&block, ALIGNMENT), 256);
    assert_eq!(peak_step(&block, ALIGNMENT), Some(2));
}

#[test]
fn nothing_and_zero_bytes_take_no_room() {
    assert_eq!(assign(&[], ALIGNMENT), Offsets { offset_bytes: vec![], workspace_bytes: 0 });
    assert_eq!(peak_step(&[], ALIGNMENT), None);
    let empty = [buffer(0, 0, 9), buffer(1, 3, 4), buffer(0, 3, 3)];
    let offsets = checked(&empty, ALIGNMENT);
    assert_eq!(offsets, Offsets { offset_bytes: vec![0, 0, 0], workspace_bytes: 64 });
    assert_eq!(peak_step(&empty[..1], ALIGNMENT), None);
}

#[test]
fn odd_arguments_have_a_meaning() {
    assert_eq!(assign(&[buffer(3, 0, 0), buffer(4, 0, 0)], 0).workspace_bytes, 7);
    assert_eq!(
        assign(&[buffer(3, 5, 2), buffer(4, 5, 5)], 1).workspace_bytes,
        7,
        "the last step is at least the first"
    );
    assert_eq!(assign(&[buffer(3, 0, usize::MAX), buffer(4, usize::MAX, usize::MAX)], 1).workspace_bytes, 7);
    assert_eq!(
        checked(&[buffer(100, 0, 0), buffer(100, 0, 0)], 96).workspace_bytes,
        384,
        "not a power of two"
    );
}

#[test]
fn the_same_buffers_get_the_same_offsets() {
    let buffers = nets::random_wiring(200, 3);
    assert_eq!(assign(&buffers, ALIGNMENT), assign(&buffers, ALIGNMENT));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn live_buffers_never_meet(
        parts in prop::collection::vec((0u64..5_000, 0usize..30, 0usize..12), 0..40),
        alignment in prop::sample::select(vec![1u64, 48, 64, 256, 4096]),
    ) {
        let buffers: Vec<Buffer> =
            parts.iter().map(|&(bytes, first, length)| buffer(bytes, first, first + length)).collect();
        let offsets = checked(&buffers, alignment);
        let sum: u64 = buffers.iter().map(|buffer| buffer.bytes.next_multiple_of(alignment)).sum();
        prop_assert!(offsets.workspace_bytes <= sum);
        let live_at = |step: usize| -> u64 {
            let live = buffers.iter().filter(|buffer| buffer.first_step <= step && step <= buffer.last_step);
            live.map(|buffer| buffer.bytes.next_multiple_of(alignment)).sum()
        };
        let peak = (0..42).map(live_at).max().unwrap();
        prop_assert_eq!(live_peak_bytes(&buffers, alignment), peak);
        prop_assert_eq!(peak_step(&buffers, alignment), (0..42).find(|&step| peak > 0 && live_at(step) == peak));
    }
}

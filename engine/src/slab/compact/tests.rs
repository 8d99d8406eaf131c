use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

fn at(chunk: u32, offset_bytes: u64, bytes: u64) -> Extent {
    Extent { chunk, offset_bytes, bytes }
}

/// `movable` and `fixed` claimed in chunks of these sizes.
fn board(chunks: &[u64], movable: &[Extent], fixed: &[Extent]) -> Extents {
    let mut free = Extents::new(chunks, 1);
    for extent in movable.iter().chain(fixed) {
        free.claim(*extent).unwrap();
    }
    free
}

fn moved_bytes(moves: &[Move]) -> u64 {
    moves.iter().map(|step| step.from.bytes).sum()
}

/// Carries the moves out on real bytes and checks that every extent keeps its contents.
fn execute(chunks: &[u64], free: &Extents, movable: &[Extent], fixed: &[Extent], moves: &[Move]) -> Extents {
    let mut memory: Vec<Vec<u8>> = chunks.iter().map(|bytes| vec![0; *bytes as usize]).collect();
    let range = |extent: &Extent| extent.offset_bytes as usize..extent.end_bytes() as usize;
    let content =
        |mark: usize, bytes: u64| (0..bytes).map(|i| (mark as u64 * 37 + i * 11 + 1) as u8).collect();
    let mut live: Vec<(Extent, Vec<u8>)> = vec![];
    for (mark, extent) in movable.iter().chain(fixed).enumerate() {
        let bytes: Vec<u8> = content(mark, extent.bytes);
        memory[extent.chunk as usize][range(extent)].copy_from_slice(&bytes);
        live.push((*extent, bytes));
    }
    let mut free = free.clone();
    for Move { from, to } in moves {
        assert_eq!(from.bytes, to.bytes);
        let moving = live.iter().position(|(extent, _)| extent == from).expect("what moves is there");
        assert!(moving < movable.len(), "what stays does not move");
        for (other, (extent, _)) in live.iter().enumerate() {
            assert!(other == moving || !extent.overlaps(to), "a move overwrites nothing");
        }
        let bytes = memory[from.chunk as usize][range(from)].to_vec();
        memory[to.chunk as usize][range(to)].copy_from_slice(&bytes);
        live[moving].0 = *to;
        free.free(*from).unwrap();
        free.claim(*to).unwrap();
    }
    for (extent, bytes) in &live {
        assert_eq!(&memory[extent.chunk as usize][range(extent)], &bytes[..], "contents are kept");
    }
    free
}

#[test]
fn what_fits_already_moves_nothing() {
    let movable = [at(0, 10, 10)];
    assert_eq!(compact(&board(&[100], &movable, &[]), &movable, 80), Some(vec![]));
}

#[test]
fn more_than_the_free_bytes_is_never_planned() {
    let movable = [at(0, 10, 10)];
    assert_eq!(compact(&board(&[100], &movable, &[]), &movable, 91), None);
    assert_eq!(compact(&board(&[100], &movable, &[]), &movable, u64::MAX), None);
}

#[test]
fn the_small_extent_between_two_holes_leaves_rather_than_the_large_ones() {
    // 50 | hole 20 | 5 | hole 20 | 50 | hole 5: the 5 goes to the hole at the end.
    let movable = [at(0, 0, 50), at(0, 70, 5), at(0, 95, 50)];
    let free = board(&[150], &movable, &[]);
    assert_eq!(compact(&free, &movable, 45), Some(vec![Move { from: at(0, 70, 5), to: at(0, 145, 5) }]));
}

#[test]
fn an_extent_that_stays_bounds_what_can_come_together() {
    // hole 10 | stays 10 | hole 10 | moves 10 | hole 10
    let (movable, fixed) = ([at(0, 30, 10)], [at(0, 10, 10)]);
    let free = board(&[50], &movable, &fixed);
    assert_eq!(
        compact(&free, &movable, 30).as_deref(),
        Some(&[Move { from: at(0, 30, 10), to: at(0, 0, 10) }][..])
    );
    assert_eq!(compact(&free, &[], 20), None);
}

#[test]
fn an_extent_goes_to_another_chunk_where_its_own_cannot_be_freed() {
    let movable = [at(0, 0, 30), at(0, 60, 20), at(1, 10, 20)];
    let free = board(&[100, 40], &movable, &[]);
    // Neither chunk has 70 free; with the 20 of the first in the second, the first has.
    let moves = compact(&free, &movable, 70).unwrap();
    let after = execute(&[100, 40], &free, &movable, &[], &moves);
    assert!(after.largest_free() >= 70, "{moves:?}");
}

#[test]
fn a_hundred_extents_in_three_chunks_are_planned_without_delay() {
    let chunks = [10_000, 10_000, 10_000];
    let movable: Vec<Extent> =
        (0..99).map(|i| at(i % 3, u64::from(i / 3) * 300, 100 + u64::from(i))).collect();
    let free = board(&chunks, &movable, &[]);
    let mut possible = 0;
    for wanted in (200..10_000).step_by(1400) {
        if let Some(moves) = compact(&free, &movable, wanted) {
            possible = wanted;
            assert!(execute(&chunks, &free, &movable, &[], &moves).largest_free() >= wanted);
        }
    }
    assert!(possible >= 7000, "{possible}");
}

/// Random extents in the chunks: gaps and lengths alternate; some stay.
fn boards(chunks: usize, items: usize) -> impl Strategy<Value = (Vec<u64>, Vec<Extent>, Vec<Extent>)> {
    let chunk = proptest::collection::vec((0u64..12, 1u64..16, 0u8..8), 0..=items);
    (proptest::collection::vec((chunk, 0u64..12), 1..=chunks)).prop_map(|chunks| {
        let (mut sizes, mut movable, mut fixed) = (vec![], vec![], vec![]);
        for ((extents, tail), chunk) in chunks.into_iter().zip(0u32..) {
            let mut end = 0;
            for (gap, bytes, stays) in extents {
                let list = if stays == 0 { &mut fixed } else { &mut movable };
                list.push(at(chunk, end + gap, bytes));
                end += gap + bytes;
            }
            sizes.push(end + tail);
        }
        (sizes, movable, fixed)
    })
}

/// Whether any order of single moves makes `wanted` bytes come together, by trying them all.
fn reachable(free: &Extents, movable: &[Extent], wanted: u64) -> bool {
    let board = Board { free: free.clone(), movable: movable.to_vec(), moves: vec![] };
    let runs = board.runs();
    let sums: Vec<u64> = runs.iter().map(|run| board.window(run, 0..run.items.len()).gap_bytes()).collect();
    let place = |item: usize| runs.iter().position(|run| run.items.contains(&item)).unwrap();
    let start: Vec<usize> = (0..movable.len()).map(place).collect();
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![(start, sums)];
    while let Some((places, sums)) = open.pop() {
        if sums.iter().any(|sum| *sum >= wanted) {
            return true;
        }
        for item in 0..places.len() {
            for to in 0..sums.len() {
                if to == places[item] || sums[to] < movable[item].bytes {
                    continue;
                }
                let (mut places, mut sums) = (places.clone(), sums.clone());
                sums[to] -= movable[item].bytes;
                sums[places[item]] += movable[item].bytes;
                places[item] = to;
                if seen.insert(places.clone()) {
                    open.push((places, sums));
                }
            }
        }
    }
    false
}

proptest! {
    #[test]
    fn in_one_chunk_where_all_may_move_every_fit_that_the_free_bytes_allow_is_made(
        (chunks, mut movable, fixed) in boards(1, 20), part in 0.0f64..=1.0
    ) {
        movable.extend(fixed);
        let free = board(&chunks, &movable, &[]);
        prop_assume!(free.free_bytes() > 0);
        for wanted in [((free.free_bytes() as f64 * part) as u64).max(1), free.free_bytes()] {
            let moves = compact(&free, &movable, wanted).unwrap();
            let after = execute(&chunks, &free, &movable, &[], &moves);
            prop_assert!(after.largest_free() >= wanted);
            prop_assert_eq!(after.free_bytes(), free.free_bytes());
        }
        prop_assert_eq!(compact(&free, &movable, free.free_bytes() + 1), None);
    }

    #[test]
    fn compaction_keeps_contents_and_finds_what_can_be_found(
        (chunks, movable, fixed) in boards(3, 3), part in 0.0f64..=1.0
    ) {
        let free = board(&chunks, &movable, &fixed);
        let wanted = ((free.free_bytes() as f64 * part) as u64).max(1);
        let moves = compact(&free, &movable, wanted);
        prop_assert_eq!(moves.is_some(), reachable(&free, &movable, wanted));
        if let Some(moves) = moves {
            let after = execute(&chunks, &free, &movable, &fixed, &moves);
            prop_assert!(after.largest_free() >= wanted);
            prop_assert!(moved_bytes(&moves) == 0 || free.largest_free() < wanted);
        }
    }

    #[test]
    fn within_a_run_no_more_is_moved_than_sliding_its_cheapest_window(
        (chunks, movable, fixed) in boards(1, 12), part in 0.0f64..=1.0
    ) {
        let free = board(&chunks, &movable, &fixed);
        let wanted = ((free.free_bytes() as f64 * part) as u64).max(1);
        if free.largest_free() >= wanted {
            return Ok(());
        }
        let before = Board { free: free.clone(), movable: movable.clone(), moves: vec![] };
        let runs = before.runs();
        let slid = runs.iter().flat_map(|run| before.windows(run, wanted, Window::gap_bytes));
        if let Some(cheapest) = slid.map(|window| window.item_bytes).min() {
            let moves = compact(&free, &movable, wanted).unwrap();
            prop_assert!(moved_bytes(&moves) <= cheapest);
        }
    }
}

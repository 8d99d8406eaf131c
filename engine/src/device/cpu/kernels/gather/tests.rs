use super::super::testing::{at, indices, layout, shape, threads};
use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn slices_are_those_of_the_indices(
        shape in shape(1..=4, prop_oneof![1..6usize, 10..40usize], 1500),
        index_shape in shape(0..=2, 0..5usize, 20),
        (axis, size, count, wide) in (0..4usize, 0..4u32, 1..3usize, any::<bool>()),
        (from, of, to) in (layout(), layout(), layout()),
        seed in any::<u64>(),
    ) {
        let (size, axis) = (1usize << size, axis % shape.len());
        let out = [&shape[..axis], &index_shape, &shape[axis + 1..]].concat();
        let (strides, index_strides, out_strides) =
            (from.strides(&shape), of.strides(&index_shape), to.strides(&out));
        let source = super::super::copy::tests::numbered(walk::span(&shape, &strides) * size);
        let len = shape[axis] as i64;
        let chosen: Vec<i64> = (0..walk::span(&index_shape, &index_strides) as u64)
            .map(|i| (seed.wrapping_mul(i * 2 + 1) >> 20) as i64 % (2 * len) - len).collect();
        let narrow: Vec<i32> = chosen.iter().map(|&index| index as i32).collect();
        let mut target = vec![0xAA; walk::span(&out, &out_strides) * size];
        let mut expected = target.clone();
        for index in indices(&out) {
            let within = &index[axis..axis + index_shape.len()];
            let position = chosen[at(within, &index_strides)].rem_euclid(len) as usize;
            let inner = &index[axis + index_shape.len()..];
            let from = at(&[&index[..axis], &[position], inner].concat(), &strides) * size;
            let to = at(&index, &out_strides) * size;
            expected[to..to + size].copy_from_slice(&source[from..from + size]);
        }
        let gather = Gather::new(size, &shape, &strides, axis, &index_shape, &index_strides, &out_strides);
        let chosen = if wide { Indices::I64(Source::from(&chosen[..])) } else { Indices::I32(Source::from(&narrow[..])) };
        gather.run(Source::from(&source[..]), chosen, Target::from(&mut target[..]), &threads(count)).unwrap();
        prop_assert!(target == expected);
    }
}

#[test]
fn an_index_out_of_range_is_named_and_nothing_is_written() {
    let gather = Gather::new(1, &[3, 2], &[2, 1], 0, &[4], &[1], &[2, 1]);
    let mut target = [9; 8];
    for (indices, index, position) in [([0, 1, 3, 7], 3, 2), ([-3, -4, 0, 0], -4, 1)] {
        let source = Source::from(&[1, 2, 3, 4, 5, 6][..]);
        let indices = Indices::I64(Source::from(&indices[..]));
        let error = gather.run(source, indices, Target::from(&mut target[..]), &threads(1)).unwrap_err();
        assert_eq!(error, OutOfRange { index, position, size: 3 });
        assert_eq!(target, [9; 8]);
    }
    assert_eq!(
        OutOfRange { index: -4, position: 1, size: 3 }.to_string(),
        "index -4 at position 1 is out of range for an axis of 3"
    );
}

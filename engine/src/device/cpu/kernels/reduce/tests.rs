use super::super::testing::{at, close, indices, layout, shape, threads, values};
use super::*;
use proptest::prelude::*;

const ALL: [ReduceOp; 7] = [
    ReduceOp::Sum,
    ReduceOp::Mean,
    ReduceOp::Max,
    ReduceOp::Min,
    ReduceOp::Product,
    ReduceOp::SumOfSquares,
    ReduceOp::MeanOfSquares,
];

fn reference(op: ReduceOp, x: &[f64]) -> f64 {
    let n = x.len() as f64;
    match op {
        ReduceOp::Sum => x.iter().sum(),
        ReduceOp::Mean => x.iter().sum::<f64>() / n,
        ReduceOp::Max => x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ReduceOp::Min => x.iter().copied().fold(f64::INFINITY, f64::min),
        ReduceOp::Product => x.iter().product(),
        ReduceOp::SumOfSquares => x.iter().map(|x| x * x).sum(),
        ReduceOp::MeanOfSquares => x.iter().map(|x| x * x).sum::<f64>() / n,
    }
}

proptest! {
    #[test]
    fn any_axes_of_any_layout_are_folded(
        shape in shape(1..=5, prop_oneof![Just(1usize), 0..7usize, 8..70usize], 600),
        (chosen, op) in (0..32u8, 0..7usize),
        (from, to) in (layout(), layout()),
        (seed, count) in (any::<u64>(), 1..3usize),
    ) {
        let op = ALL[op];
        let folded = |axis: &usize| chosen >> axis & 1 == 1;
        let axes: Vec<usize> = (0..shape.len()).filter(folded).collect();
        let kept: Vec<usize> = (0..shape.len()).map(|a| if folded(&a) { 1 } else { shape[a] }).collect();
        let (strides, out_strides) = (from.strides(&shape), to.strides(&kept));
        let mut x = values(walk::span(&shape, &strides), seed);
        if op == ReduceOp::Product {
            // Near 1, so that products are neither 0 nor infinite.
            x.iter_mut().for_each(|x| *x = 1.0 + *x / 100.0);
        }
        let mut out = vec![7.0; walk::span(&kept, &out_strides)];
        let reduce = Reduce::new(op, &shape, &axes, &strides, &out_strides);
        reduce.run(Source::from(&x[..]), Target::from(&mut out[..]), &threads(count));
        for index in indices(&kept) {
            let group: Vec<f64> = indices(&shape).iter()
                .filter(|other| (0..shape.len()).all(|a| folded(&a) || other[a] == index[a]))
                .map(|other| f64::from(x[at(other, &strides)])).collect();
            let expected = reference(op, &group);
            let actual = out[at(&index, &out_strides)];
            // Sums of numbers of both signs are compared with what they are made of.
            let scale = if matches!(op, ReduceOp::Sum) { 1.0 + group.len() as f64 / 10.0 } else { 2.0 };
            prop_assert!(close(actual, expected, 1e-5 * scale), "{op:?} {index:?}: {actual}, expected {expected}");
        }
    }

    #[test]
    fn the_first_or_last_extreme_is_found(
        shape in shape(1..=4, 1..9usize, 500),
        (axis, min, last) in (0..4usize, any::<bool>(), any::<bool>()),
        (from, to) in (layout(), layout()),
        (seed, count) in (any::<u64>(), 1..3usize),
    ) {
        let axis = axis % shape.len();
        let mut kept = shape.clone();
        kept[axis] = 1;
        let (strides, out_strides) = (from.strides(&shape), to.strides(&kept));
        // Few distinct values, so that equal ones are common.
        let x: Vec<f32> = values(walk::span(&shape, &strides), seed).into_iter().map(f32::round).collect();
        let mut out = vec![7; walk::span(&kept, &out_strides)];
        let reduce = ArgReduce::new(min, last, &shape, axis, &strides, &out_strides);
        reduce.run(Source::from(&x[..]), Target::from(&mut out[..]), &threads(count));
        for index in indices(&kept) {
            let line: Vec<f32> = (0..shape[axis]).map(|i| x[at(&index, &strides) + i * strides[axis]]).collect();
            let best = line.iter().copied().reduce(if min { f32::min } else { f32::max }).unwrap();
            let expected = if last { line.iter().rposition(|&x| x == best) } else { line.iter().position(|&x| x == best) };
            prop_assert_eq!(out[at(&index, &out_strides)], expected.unwrap() as i64);
        }
    }
}

#[test]
fn a_long_sum_keeps_its_accuracy() {
    let x: Vec<f32> = values(1 << 20, 1).into_iter().map(f32::abs).collect();
    for (shape, strides) in [(vec![1 << 20], vec![1]), (vec![1 << 18, 4], vec![4, 1])] {
        let width = shape[1..].iter().product::<usize>();
        let mut out = vec![0.0; width];
        let reduce = Reduce::new(ReduceOp::Mean, &shape, &[0], &strides, &[0, 1][..shape.len()]);
        reduce.run(Source::from(&x[..]), Target::from(&mut out[..]), &threads(1));
        for (i, &mean) in out.iter().enumerate() {
            let column = x.iter().skip(i).step_by(width).map(|&x| f64::from(x));
            let expected = column.sum::<f64>() / shape[0] as f64;
            assert!(close(mean, expected, 1e-6), "{mean}, expected {expected}");
        }
    }
}

#[test]
fn nan_is_the_extreme_wherever_it_stands() {
    for position in 0..40 {
        let mut x = [1.0; 40];
        x[position] = f32::NAN;
        let mut out = [0.0];
        Reduce::new(ReduceOp::Max, &[40], &[0], &[1], &[0]).run(
            Source::from(&x[..]),
            Target::from(&mut out[..]),
            &threads(1),
        );
        assert!(out[0].is_nan());
    }
}

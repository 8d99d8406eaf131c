use super::super::testing::{at, close, indices, layout, shape, threads, values};
use super::*;
use proptest::prelude::*;

fn reference(shape: &[usize], axis: usize, x: &[f32], strides: &[usize], log: bool) -> Vec<f64> {
    let line = |index: &[usize]| -> Vec<f64> {
        let base = at(index, strides) - index[axis] * strides[axis];
        (0..shape[axis]).map(|i| f64::from(x[base + i * strides[axis]])).collect()
    };
    let result = |index: &Vec<usize>| {
        let line = line(index);
        let most = line.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = line.iter().map(|x| (x - most).exp()).sum();
        let x = line[index[axis]] - most;
        if log { x - sum.ln() } else { x.exp() / sum }
    };
    indices(shape).iter().map(result).collect()
}

proptest! {
    #[test]
    fn every_axis_of_every_layout_adds_up(
        shape in shape(1..=5, prop_oneof![Just(1usize), 1..7usize, 8..90usize], 4000),
        axis in 0..5usize,
        (from, to) in (layout(), layout()),
        (seed, log, in_place, count) in (any::<u64>(), any::<bool>(), any::<bool>(), 1..3usize),
    ) {
        let axis = axis % shape.len();
        let strides = from.strides(&shape);
        let out_strides = if in_place { strides.clone() } else { to.strides(&shape) };
        let mut x = values(walk::span(&shape, &strides), seed);
        let expected = reference(&shape, axis, &x, &strides, log);
        let softmax = Softmax::new(&shape, axis, &strides, &out_strides, log);
        let mut out = vec![7.0; walk::span(&shape, &out_strides)];
        if in_place {
            let target = Target::from(&mut x[..]);
            // SAFETY: the kernel is told that source and target are one.
            softmax.run(unsafe { Source::new(target.as_ptr(), target.len()) }, target, &threads(count));
            out = x;
        } else {
            softmax.run(Source::from(&x[..]), Target::from(&mut out[..]), &threads(count));
        }
        for (index, expected) in indices(&shape).iter().zip(expected) {
            let actual = out[at(index, &out_strides)];
            prop_assert!(close(actual, expected, 1e-5), "{index:?}: {actual}, expected {expected}");
            if !log {
                prop_assert!((f64::from(actual) - expected).abs() <= 1e-5 * expected);
            }
        }
    }
}

#[test]
fn large_numbers_neither_overflow_nor_vanish() {
    let x = [1e4, 1e4 - 1.0, -1e4, f32::NEG_INFINITY];
    let mut out = [0.0; 4];
    let softmax = Softmax::new(&[4], 0, &[1], &[1], false);
    softmax.run(Source::from(&x[..]), Target::from(&mut out[..]), &threads(1));
    assert!((out[0] - 0.731_058_6).abs() < 1e-6 && out[2] == 0.0 && out[3] == 0.0, "{out:?}");
}

#[test]
fn a_shape_without_elements_is_done_at_once() {
    let softmax = Softmax::new(&[3, 0], 1, &[0, 1], &[0, 1], false);
    softmax.run(Source::from(&[][..]), Target::from(&mut [][..]), &threads(1));
}

//! Random layouts and plain references for the kernels' tests.

use crate::device::cpu::threads::Threads;
use proptest::prelude::*;

/// Threads of that count.
pub(crate) fn threads(count: usize) -> Threads {
    Threads::new(count).unwrap()
}

/// A shape of that many axes, each of a length from `lens`; at most `most` elements.
pub(crate) fn shape(
    rank: std::ops::RangeInclusive<usize>,
    len: impl Strategy<Value = usize> + 'static,
    most: usize,
) -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(len, rank).prop_map(move |mut shape| {
        // An axis of 0 makes the product 0, and the others must still be few: layouts span them.
        while shape.iter().map(|len| len.max(&1)).product::<usize>() > most {
            let largest = (0..shape.len()).max_by_key(|&axis| shape[axis]).unwrap();
            shape[largest] = shape[largest].div_ceil(2);
        }
        shape
    })
}

/// How to lay out a tensor: the order of its axes, and gaps after each of them.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    order: Vec<u8>,
    gaps: Vec<usize>,
}

/// Dense and permuted layouts, with and without gaps.
pub(crate) fn layout() -> impl Strategy<Value = Layout> {
    let order = prop_oneof![2 => Just((0..8).collect()), 3 => proptest::collection::vec(any::<u8>(), 8)];
    let gaps = prop_oneof![
        3 => Just(vec![0; 8]),
        1 => proptest::collection::vec(prop_oneof![3 => Just(0usize), 1 => 0..4usize], 8)
    ];
    (order, gaps).prop_map(|(order, gaps)| Layout { order, gaps })
}

impl Layout {
    /// Strides of that layout for a tensor whose elements are distinct.
    pub(crate) fn strides(&self, shape: &[usize]) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        axes.sort_by_key(|&axis| self.order[axis]);
        let mut strides = vec![0; shape.len()];
        let mut next = 1;
        for &axis in axes.iter().rev() {
            // Now and then not even the innermost axis is contiguous.
            if next == 1 && self.gaps[axis] == 3 {
                next = 2;
            }
            strides[axis] = next;
            next = next * shape[axis].max(1) + self.gaps[axis];
        }
        strides
    }
}

/// Every index of a shape, in logical order.
pub(crate) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &len in shape {
        all = all
            .into_iter()
            .flat_map(|index: Vec<usize>| (0..len).map(move |i| [&index[..], &[i]].concat()))
            .collect();
    }
    all
}

/// The offset of an index.
pub(crate) fn at(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, stride)| i * stride).sum()
}

/// So many elements from -4 to 4, the same for the same seed.
pub(crate) fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 21) as f32 - 4.0
        })
        .collect()
}

/// Whether two results are the same to `tolerance`, relative to the larger of 1 and the expected one.
pub(crate) fn close(actual: f32, expected: f64, tolerance: f64) -> bool {
    if expected.is_nan() || expected.is_infinite() {
        return actual.is_nan() && expected.is_nan() || f64::from(actual) == expected;
    }
    (f64::from(actual) - expected).abs() <= tolerance * expected.abs().max(1.0)
}

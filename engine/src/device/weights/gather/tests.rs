use super::*;
use crate::graph::ValueId;
use crate::plan::View;
use crate::tensor::DType;
use proptest::prelude::*;

/// The elements one by one, as the plan means them.
fn expected(bytes: &[u8], size: usize, constant: &Constant) -> Vec<u8> {
    let sizes: Vec<usize> = constant.order.iter().map(|&axis| constant.shape[axis]).collect();
    let mut out = vec![];
    for mut at in 0..sizes.iter().product::<usize>() {
        let mut from = constant.source.offset;
        for (place, &axis) in constant.order.iter().enumerate().rev() {
            from += at % sizes[place] * constant.source.strides[axis];
            at /= sizes[place];
        }
        out.extend(&bytes[from * size..(from + 1) * size]);
    }
    out
}

fn check(bytes: Vec<u8>, size: usize, constant: &Constant) {
    let expected = expected(&bytes, size, constant);
    let mut laid = vec![0; expected.len()];
    gather(&Data::Bytes(bytes.into()), size, constant, &mut laid).unwrap();
    assert!(laid == expected, "{constant:?}");
}

fn constant(shape: &[usize], source: View, order: &[usize]) -> Constant {
    Constant { value: ValueId(0), dtype: DType::F32, shape: shape.into(), source, order: order.into() }
}

fn numbered(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 256) as u8).collect()
}

proptest! {
    #[test]
    fn a_view_of_a_constant_is_gathered_in_any_order(
        base in prop::collection::vec(1usize..5, 1..5),
        permutation in any::<[u32; 6]>(),
        order in any::<[u32; 6]>(),
        size in prop::sample::select(vec![1usize, 2, 4, 8]),
        cut in any::<bool>(),
        repeat in any::<bool>(),
    ) {
        let sorted = |keys: &[u32], count: usize| {
            let mut axes: Vec<usize> = (0..count).collect();
            axes.sort_by_key(|axis| keys[*axis]);
            axes
        };
        let mut shape = base.clone();
        let mut view = View::row_major(&base);
        if cut && shape[0] > 1 {
            view = view.slice(0, 1, 1);
            shape[0] -= 1;
        }
        if repeat && let Some(axis) = shape.iter().position(|size| *size == 1) {
            let mut to = shape.clone();
            to[axis] = 3;
            view = view.broadcast(&shape, &to);
            shape = to;
        }
        let permutation = sorted(&permutation, shape.len());
        let shape: Vec<usize> = permutation.iter().map(|&axis| shape[axis]).collect();
        let order = sorted(&order, shape.len());
        let bytes = numbered(base.iter().product::<usize>() * size);
        check(bytes, size, &constant(&shape, view.permute(&permutation), &order));
    }
}

#[test]
fn what_is_larger_than_a_piece_is_gathered_alike() {
    // As it lies; two axes exchanged; a piece of one axis only; rows longer than a piece.
    for (base, order) in [
        (vec![700, 900], vec![0, 1]),
        (vec![700, 900], vec![1, 0]),
        (vec![3, 500, 400], vec![1, 2, 0]),
        (vec![2, 400_000], vec![1, 0]),
        (vec![2, 3, 100_000, 2], vec![3, 0, 2, 1]),
    ] {
        let bytes = numbered(base.iter().product::<usize>() * 4);
        let whole = View::row_major(&base);
        check(bytes.clone(), 4, &constant(&base, whole.clone(), &order));
        let mut part = base.clone();
        part[base.len() - 1] -= 1;
        check(bytes, 4, &constant(&part, whole, &order));
    }
}

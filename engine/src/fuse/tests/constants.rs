use super::*;

#[test]
fn constants_of_one_number_become_part_of_the_operation() {
    let mut m = Model::default();
    let x = m.input(&[2, 3]);
    let y = m.with(Binary::Mul, x, 2.5);
    assert_eq!(nodes(&m.fused(&[y])), ["Pointwise<Mul $0 2.5>"]);
}

#[test]
fn what_depends_on_constants_alone_is_computed_ahead() {
    let mut m = Model::default();
    let x = m.input(&[2, 3]);
    let (a, b) = (m.weights(&[1, 3]), m.weights(&[2, 1]));
    let sum = m.binary(Binary::Add, a, b);
    let sum = m.unary(Unary::Exp, sum);
    let flat = m.reshape(sum, &[6]);
    let back = m.reshape(flat, &[2, 3]);
    let y = m.binary(Binary::Sub, x, back);
    assert_eq!(nodes(&m.fused(&[y])), ["Pointwise<Sub $0 $1>"]);
}

#[test]
fn a_constant_that_the_caller_gets_stays_a_node() {
    let mut m = Model::default();
    let a = m.weights(&[1, 3]);
    let x = m.input(&[1, 3]);
    let (y, z) = (m.unary(Unary::Neg, a), m.unary(Unary::Exp, x));
    assert_eq!(nodes(&m.fused(&[y, z])), ["Pointwise<Neg $0>", "Pointwise<Exp $0>"]);
}

#[test]
fn two_copies_of_a_constant_become_one() {
    let mut m = Model::default();
    let x = m.input(&[2, 3]);
    let (a, b) =
        (m.builder.floats("a", &[1, 3], &[1.0, 2.0, 3.0]), m.builder.floats("b", &[1, 3], &[1.0, 2.0, 3.0]));
    let sum = m.binary(Binary::Add, x, a);
    let y = m.binary(Binary::Mul, sum, b);
    let graph = m.fused(&[y]);
    assert_eq!(nodes(&graph), ["Pointwise<Add $0 $1; Mul r0 $1>"]);
    assert_eq!(graph.constant_bytes(), 12);
}

#[test]
fn what_changes_nothing_goes() {
    let mut m = Model::default();
    let x = m.input(&[2, 3]);
    let exp = m.unary(Unary::Exp, x);
    let same = m.reshape(exp, &[2, 3]);
    let same = m.permute(same, &[0, 1]);
    let same = m.with(Binary::Mul, same, 1.0);
    let same = m.with(Binary::Add, same, 0.0);
    let same = m.with(Binary::Max, same, f32::NEG_INFINITY);
    let same = m.reduce(Reducer::Sum, same, &[]);
    assert_eq!(nodes(&m.fused(&[same])), ["Pointwise<Exp $0>"]);
}

#[test]
fn an_input_that_would_become_an_output_is_kept_apart() {
    let mut m = Model::default();
    let x = m.input(&[2, 3]);
    let y = m.reshape(x, &[2, 3]);
    assert_eq!(nodes(&m.fused(&[y])), ["Reshape"]);
}

#[test]
fn views_of_views_are_one_view() {
    let mut m = Model::default();
    let x = m.input(&[2, 3, 4]);
    let once = m.permute(x, &[2, 0, 1]);
    let twice = m.permute(once, &[1, 0, 2]);
    let flat = m.reshape(twice, &[8, 3]);
    let other = m.reshape(flat, &[4, 2, 3]);
    assert_eq!(nodes(&m.fused(&[other])), ["Permute<[0, 2, 1]>", "Reshape"]);
}

#[test]
fn a_permutation_of_axes_of_one_is_a_reshape() {
    let mut m = Model::default();
    let x = m.input(&[1, 3, 4]);
    let y = m.permute(x, &[1, 0, 2]);
    let y = m.reshape(y, &[12]);
    assert_eq!(nodes(&m.fused(&[y])), ["Reshape"]);
}

#[test]
fn the_same_expression_twice_is_computed_once() {
    let mut m = Model::default();
    let x = m.input(&[2, 3]);
    let (a, b) = (m.reduce(Reducer::Max, x, &[1]), m.reduce(Reducer::Max, x, &[1]));
    let (a, b) = (m.unary(Unary::Exp, a), m.unary(Unary::Sin, b));
    let y = m.binary(Binary::Add, a, b);
    assert_eq!(nodes(&m.fused(&[y])), ["Reduce<Max [1]>", "Pointwise<Sin $0; Exp $0; Add r0 r1>"]);
}

#[test]
fn a_slice_of_one_part_of_a_concatenation_is_a_slice_of_the_part() {
    let mut m = Model::default();
    let (a, b) = (m.input(&[2, 3]), m.input(&[2, 4]));
    let both = m.builder.node("both", Op::Concat(1), &[a, b], DType::F32, &[2, 7]);
    let slice = Op::Slice { axis: 1, start: 4, step: 2 };
    let y = m.builder.node("slice", slice, &[both], DType::F32, &[2, 2]);
    assert_eq!(nodes(&m.fused(&[y])), ["Slice<1 from 1 by 2>"]);
}

#[test]
fn a_look_up_at_known_indices_is_a_slice() {
    let mut m = Model::default();
    let x = m.input(&[2, 5, 3]);
    let one = m.builder.constant("one", DType::I64, &[], bytes::Bytes::from((-1i64).to_le_bytes().to_vec()));
    let some: Vec<u8> = [1i32, 3].iter().flat_map(|at| at.to_le_bytes()).collect();
    let some = m.builder.constant("some", DType::I32, &[2], bytes::Bytes::from(some));
    let y = m.builder.node("last", Op::Gather(1), &[x, one], DType::F32, &[2, 3]);
    let z = m.builder.node("odd", Op::Gather(1), &[x, some], DType::F32, &[2, 2, 3]);
    let z = m.unary(Unary::Exp, z);
    let slices = ["Slice<1 from 4 by 1>", "Reshape", "Slice<1 from 1 by 2>", "Pointwise<Exp $0>"];
    assert_eq!(nodes(&m.fused(&[y, z])), slices);
}

#[test]
fn pointwise_operations_read_what_is_broadcast_as_it_was_before() {
    let mut m = Model::default();
    let (x, mask) = (m.input(&[2, 3]), m.input(&[1, 3]));
    let wide = m.builder.node("wide", Op::Broadcast, &[mask], DType::F32, &[2, 3]);
    let y = m.binary(Binary::Mul, x, wide);
    assert_eq!(nodes(&m.fused(&[y])), ["Pointwise<Mul $0 $1>"]);
}

#[test]
fn a_twin_that_nobody_reads_any_more_is_not_taken() {
    let mut m = Model::default();
    let x = m.input(&[2, 6]);
    let once = m.reshape(x, &[12]);
    let twice = m.reshape(once, &[3, 4]);
    let again = m.reshape(x, &[12]);
    let (y, z) = (m.unary(Unary::Exp, twice), m.unary(Unary::Sin, again));
    assert_eq!(nodes(&m.fused(&[y, z])), ["Reshape", "Reshape", "Pointwise<Exp $0>", "Pointwise<Sin $0>"]);
}

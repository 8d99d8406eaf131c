use super::product::{Labels, Side};
use super::*;
use crate::graph::{Binary, Builder, Chain, Einsum, Instr, Op, Src, Unary};
use crate::tensor::DType;
use proptest::prelude::*;
use smallvec::SmallVec;

/// Where the elements of a view are, in row-major order of its logical axes.
fn addresses(view: &View, shape: &[usize]) -> Vec<usize> {
    let mut all = vec![view.offset];
    for (size, stride) in shape.iter().zip(&view.strides) {
        all = all.iter().flat_map(|at| (0..*size).map(move |index| at + index * stride)).collect();
    }
    all
}

fn sorted_by<T: Copy>(keys: &[u32], items: impl Iterator<Item = T>) -> Vec<T> {
    let mut keyed: Vec<(u32, T)> = keys.iter().copied().zip(items).collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, item)| item).collect()
}

proptest! {
    #[test]
    fn a_reshaped_view_has_the_same_elements_in_the_same_order(
        from in prop::collection::vec(1usize..5, 1..5),
        keys in any::<[u32; 5]>(),
        cuts in prop::collection::vec(any::<bool>(), 8),
    ) {
        let order = sorted_by(&keys, 0..from.len());
        let view = View::contiguous(&from, &order);
        // Some neighbours merged, some sizes split in two.
        let mut to: Vec<usize> = vec![];
        for (at, &size) in from.iter().enumerate() {
            match to.last_mut() {
                Some(last) if cuts[at] => *last *= size,
                _ if size == 4 && cuts[at + 4 - at.min(4)] => to.extend([2, 2]),
                _ => to.push(size),
            }
        }
        if let Some(reshaped) = view.reshape(&from, &to) {
            prop_assert_eq!(addresses(&reshaped, &to), addresses(&view, &from));
        }
        // A copy in the order that the reshape asks for can always be reshaped.
        let copy = View::contiguous(&from, &view.order_for_reshape(&from, &to));
        let reshaped = copy.reshape(&from, &to);
        prop_assert!(reshaped.is_some());
        prop_assert_eq!(addresses(&reshaped.unwrap(), &to), addresses(&copy, &from));
    }

    #[test]
    fn an_einsum_is_the_matrix_products_that_its_labels_say(
        sizes in any::<[u8; 5]>().prop_map(|all| all.map(|size| usize::from(size % 3) + 1)),
        keys in any::<[[u32; 5]; 3]>(),
    ) {
        // b: batch, m and o: rows, n: columns, k: summed.
        let size = |label: char| sizes["bmonk".find(label).unwrap()];
        let labels_of = |text: &str, keys: &[u32]| -> SmallVec<[char; 6]> { sorted_by(keys, text.chars()).into() };
        let (a, b, c) = (labels_of("bmok", &keys[0]), labels_of("bkn", &keys[1]), labels_of("bmon", &keys[2]));
        let shape = |labels: &[char]| labels.iter().map(|label| size(*label)).collect::<Vec<usize>>();
        let (shape_a, shape_b, shape_c) = (shape(&a), shape(&b), shape(&c));
        let einsum = Einsum { a, b, c, epilogue: Default::default() };
        let labels = Labels::of(&einsum, &shape_a, &shape_b);
        let view_a = View::contiguous(&shape_a, &labels.order_of_a(&einsum));
        let view_b = View::contiguous(&shape_b, &labels.order_of_b(&einsum));
        let side_a = Side { labels: &einsum.a, shape: &shape_a, view: &view_a };
        let view_c = View::contiguous(&shape_c, &labels.output_order(&einsum, side_a));
        let side_b = Side { labels: &einsum.b, shape: &shape_b, view: &view_b };
        let side_c = Side { labels: &einsum.c, shape: &shape_c, view: &view_c };
        let product = Product::new(&labels, side_a, Some(side_b), side_c);
        prop_assert!(product.is_ok(), "a copy in the suiting order always suits");
        let product = product.unwrap();
        // Every (a, b, c) of elements that are multiplied and added, by labels and by strides.
        let mut expected = vec![(0, 0, 0)];
        for label in "bmonk".chars() {
            let stride = |own: &[char], view: &View| own.iter().position(|l| *l == label).map_or(0, |at| view.strides[at]);
            let steps = (stride(&einsum.a, &view_a), stride(&einsum.b, &view_b), stride(&einsum.c, &view_c));
            expected = along(&expected, size(label), steps);
        }
        let mut got = vec![(0, 0, 0)];
        for (count, a, b, c) in &product.batch {
            got = along(&got, *count, (*a, *b, *c));
        }
        got = along(&got, product.m, (product.a.0, 0, product.c.0));
        got = along(&got, product.n, (0, product.b.1, product.c.1));
        got = along(&got, product.k, (product.a.1, product.b.0, 0));
        expected.sort_unstable();
        got.sort_unstable();
        prop_assert_eq!(got, expected);
    }
}

type Triple = (usize, usize, usize);

fn along(all: &[Triple], count: usize, step: Triple) -> Vec<Triple> {
    let moved = |(a, b, c): Triple, at: usize| (a + at * step.0, b + at * step.1, c + at * step.2);
    all.iter().flat_map(|from| (0..count).map(move |at| moved(*from, at))).collect()
}

fn relu() -> Op {
    Op::Pointwise(Chain { instrs: vec![Instr::Binary(Binary::Max, Src::Operand(0), Src::Const(0.0))] })
}

fn exp() -> Op {
    Op::Pointwise(Chain { instrs: vec![Instr::Unary(Unary::Exp, Src::Operand(0))] })
}

#[test]
fn a_concatenation_is_made_in_place_by_those_who_make_its_parts() {
    let mut b = Builder::new();
    let x = b.input("x", DType::F32, &[2, 3]);
    let left = b.node("left", relu(), &[x], DType::F32, &[2, 3]);
    let right = b.node("right", exp(), &[x], DType::F32, &[2, 3]);
    let both = b.node("both", Op::Concat(1), &[left, right], DType::F32, &[2, 6]);
    let layout = layout(&b.finish(&[both]));
    let names: Vec<&str> = layout.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["left", "right"], "no step copies the parts");
    let views: Vec<&View> = layout.steps.iter().map(|step| &step.outputs[0].view).collect();
    assert_eq!((views[0].offset, views[1].offset), (0, 3));
    assert_eq!(views[0].strides.as_slice(), [6, 1]);
}

#[test]
fn a_pointwise_step_overwrites_what_nobody_reads_afterwards() {
    let mut b = Builder::new();
    let x = b.input("x", DType::F32, &[8]);
    let once = b.node("once", exp(), &[x], DType::F32, &[8]);
    let twice = b.node("twice", exp(), &[once], DType::F32, &[8]);
    let kept = b.node("kept", exp(), &[once], DType::F32, &[8]);
    let layout = layout(&b.finish(&[twice, kept]));
    let place = |step: usize| layout.steps[step].outputs[0].place;
    assert_eq!(place(0), layout.inputs[0].place, "the input is read by `once` alone");
    assert_ne!(place(1), place(0), "`once` is read again");
    assert_eq!(place(2), place(0), "`kept` is its last reader");
}

#[test]
fn views_are_no_steps_and_an_output_is_row_major() {
    let mut b = Builder::new();
    let x = b.input("x", DType::F32, &[2, 3, 4]);
    let turned =
        b.node("turned", Op::Permute(SmallVec::from_slice(&[2, 0, 1])), &[x], DType::F32, &[4, 2, 3]);
    let part = b.node("part", Op::Slice { axis: 0, start: 1, step: 2 }, &[turned], DType::F32, &[2, 2, 3]);
    let layout = layout(&b.finish(&[part]));
    let [step] = &layout.steps[..] else { panic!("{:?}", layout.steps) };
    assert_eq!(step.op.name(), "Copy");
    assert_eq!((step.inputs[0].view.offset, step.inputs[0].view.strides.as_slice()), (1, &[2, 12, 4][..]));
    assert!(layout.outputs[0].view.is_row_major(&[2, 2, 3]));
}

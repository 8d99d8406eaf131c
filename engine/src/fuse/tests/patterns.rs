use super::*;

/// A layer norm in parts: of `x` over `axes`, with the variance and the division written in several ways.
fn layer_norm(m: &mut Model, x: ValueId, axes: &[usize], way: usize) -> ValueId {
    let mean = m.mean(x, axes);
    let centered = m.binary(Binary::Sub, x, mean);
    let squares = match way {
        0 => m.with(Binary::Pow, centered, 2.0),
        _ => m.binary(Binary::Mul, centered, centered),
    };
    let variance = m.mean(squares, axes);
    let variance = m.with(Binary::Add, variance, 1e-5);
    if way == 3 {
        let root = m.unary(Unary::Rsqrt, variance);
        return m.binary(Binary::Mul, centered, root);
    }
    let root = m.unary(Unary::Sqrt, variance);
    match way {
        0 => m.binary(Binary::Div, centered, root),
        1 => {
            let inverse = m.unary(Unary::Recip, root);
            m.binary(Binary::Mul, inverse, centered)
        }
        _ => {
            let one = m.number(3, 1.0);
            let inverse = m.binary(Binary::Div, one, root);
            m.binary(Binary::Mul, centered, inverse)
        }
    }
}

#[test]
fn a_layer_norm_is_found_however_it_is_written() {
    for way in 0..4 {
        let mut m = Model::default();
        let x = m.input(&[1, 4, 6]);
        let y = layer_norm(&mut m, x, &[2], way);
        let (scale, shift) = (m.weights(&[1, 1, 6]), m.weights(&[1, 1, 6]));
        let y = m.binary(Binary::Mul, y, scale);
        let y = m.binary(Binary::Add, shift, y);
        let text = m.fused(&[y]).to_string();
        let (scale, shift, y) = (scale.0, shift.0, y.0);
        let expected = format!(
            "input %0 FP32[1,4,6]\nconst %{scale} FP32[1,1,6]\nconst %{shift} FP32[1,1,6]\n\
             %{y} FP32[1,4,6] = LayerNorm<[2] ε=0.00001>(%0, %{scale}, %{shift}) "
        );
        assert!(text.starts_with(&expected), "way {way}: {text}");
        assert!(text.ends_with(&format!("`\noutput %{y}\n")), "way {way}: {text}");
    }
}

#[test]
fn a_variance_of_two_means_is_found_too() {
    let mut m = Model::default();
    let x = m.input(&[1, 8, 5]);
    let mean = m.mean(x, &[1]);
    let centered = m.binary(Binary::Sub, x, mean);
    let squares = m.unary(Unary::Square, x);
    let squares = m.mean(squares, &[1]);
    let square = m.unary(Unary::Square, mean);
    let variance = m.binary(Binary::Sub, squares, square);
    let zero = m.number(3, 0.0);
    let variance = m.binary(Binary::Max, zero, variance);
    let variance = m.with(Binary::Add, variance, 1e-6);
    let root = m.unary(Unary::Rsqrt, variance);
    let (scale, shift) = (m.weights(&[1, 8, 1]), m.weights(&[1, 8, 1]));
    let factor = m.binary(Binary::Mul, scale, root);
    let y = m.binary(Binary::Mul, centered, factor);
    let y = m.binary(Binary::Add, y, shift);
    assert_eq!(nodes(&m.fused(&[y])), ["LayerNorm<[1] ε=0.000001>"]);
}

#[test]
fn a_mean_taken_off_before_an_rms_norm_makes_it_a_layer_norm() {
    let mut m = Model::default();
    let x = m.input(&[6, 4]);
    let mean = m.mean(x, &[0]);
    let centered = m.binary(Binary::Sub, x, mean);
    let norm = crate::graph::Norm {
        axes: [0].as_slice().into(),
        epsilon: 1e-5,
        center: false,
        scale: false,
        shift: false,
    };
    let y = m.builder.node("norm", Op::Norm(norm), &[centered], DType::F32, &[6, 4]);
    let scale = m.weights(&[6, 1]);
    let y = m.binary(Binary::Mul, y, scale);
    assert_eq!(nodes(&m.fused(&[y])), ["LayerNorm<[0] ε=0.00001>"]);
}

#[test]
fn an_rms_norm_in_parts_is_found() {
    let mut m = Model::default();
    let x = m.input(&[3, 8]);
    let squares = m.unary(Unary::Square, x);
    let variance = m.mean(squares, &[1]);
    let variance = m.with(Binary::Add, variance, 1e-5);
    let root = m.unary(Unary::Sqrt, variance);
    let y = m.binary(Binary::Div, x, root);
    assert_eq!(nodes(&m.fused(&[y])), ["RmsNorm<[1] ε=0.00001>"]);
}

#[test]
fn a_softmax_in_parts_is_found() {
    for clamp in [false, true] {
        let mut m = Model::default();
        let x = m.input(&[2, 7]);
        let mut max = m.reduce(Reducer::Max, x, &[1]);
        if clamp {
            let least = m.number(2, f32::NEG_INFINITY);
            max = m.binary(Binary::Max, least, max);
        }
        let less = m.binary(Binary::Sub, x, max);
        let exp = m.unary(Unary::Exp, less);
        let sum = m.reduce(Reducer::Sum, exp, &[1]);
        let y = if clamp {
            let inverse = m.unary(Unary::Recip, sum);
            m.binary(Binary::Mul, exp, inverse)
        } else {
            m.binary(Binary::Div, exp, sum)
        };
        assert_eq!(nodes(&m.fused(&[y])), ["Softmax<[1]>"]);
    }
}

#[test]
fn a_logarithm_of_a_softmax_is_a_log_softmax() {
    let mut m = Model::default();
    let x = m.input(&[2, 7]);
    let op = Op::Softmax { axes: [1].as_slice().into(), log: false };
    let y = m.builder.node("softmax", op, &[x], DType::F32, &[2, 7]);
    let y = m.unary(Unary::Ln, y);
    assert_eq!(nodes(&m.fused(&[y])), ["Softmax<[1] log>"]);
}

#[test]
fn sums_over_squares_divided_by_their_number_are_means_of_squares() {
    let mut m = Model::default();
    let x = m.input(&[2, 6]);
    let squares = m.unary(Unary::Square, x);
    let y = m.mean(squares, &[1]);
    let half = m.reduce(Reducer::Sum, x, &[1]);
    let half = m.with(Binary::Mul, half, 0.5);
    assert_eq!(
        nodes(&m.fused(&[y, half])),
        ["Reduce<MeanOfSquares [1]>", "Reduce<Sum [1]>", "Pointwise<Mul $0 0.5>"]
    );
}

/// indices[1, 5] = 0 … 6, as f32, times a table.
fn one_hot(m: &mut Model, first: i32) -> ValueId {
    let indices = m.builder.input("i", DType::I32, &[1, 20]);
    let column = m.reshape(indices, &[1, 20, 1]);
    let numbers: Vec<u8> = (0..7).flat_map(|at| (first + at).to_le_bytes()).collect();
    let numbers = m.builder.constant("numbers", DType::I32, &[1, 1, 7], bytes::Bytes::from(numbers));
    let same = Instr::Binary(Binary::EqualI32, Src::Operand(0), Src::Operand(1));
    let same = m.pointwise(same, &[column, numbers], DType::Bool);
    let hot = m.builder.node("cast", Op::Cast, &[same], DType::F32, &[1, 20, 7]);
    let table = m.weights(&[7, 3]);
    m.einsum("amk,kn->amn", hot, table, &[1, 20, 3])
}

#[test]
fn a_one_hot_product_is_a_look_up_that_gives_zeros_outside_the_table() {
    let mut m = Model::default();
    let y = one_hot(&mut m, 0);
    let lookup = [
        "Pointwise<FromI32 $0; GreaterEqual r0 0; Less r0 7; And r1 r2; Select r3 r0 7>",
        "Cast",
        "Gather<0>",
    ];
    assert_eq!(nodes(&m.fused(&[y])), lookup);
}

#[test]
fn what_follows_a_look_up_in_a_small_table_is_done_to_the_table() {
    let mut m = Model::default();
    let y = one_hot(&mut m, 0);
    let bias = m.weights(&[1, 1, 3]);
    let y = m.binary(Binary::Add, y, bias);
    let y = m.unary(Unary::Tanh, y);
    assert_eq!(nodes(&m.fused(&[y]))[2..], ["Gather<0>"]);
}

#[test]
fn a_one_hot_product_of_other_numbers_is_left_and_says_why() {
    let mut m = Model::default();
    let y = one_hot(&mut m, 1);
    let (graph, declined) = check(m.builder.finish(&[y]), &Preferences::default());
    assert_eq!(nodes(&graph), ["Reshape", "Pointwise<EqualI32 $0 $1>", "Einsum<amk,kn->amn>"]);
    assert_eq!(declined, ["one-hot einsum4: the numbers compared with are not 0, 1, 2 …"]);
}

use super::*;
use crate::graph::{Conv, Image, Window};

pub(super) fn conv(m: &mut Model, x: ValueId, out: usize, bias: bool) -> ValueId {
    let input = m.shape(x);
    let w = m.weights(&[out, input[1], 3, 3]);
    conv_with(m, x, w, out, bias)
}

fn conv_with(m: &mut Model, x: ValueId, w: ValueId, out: usize, bias: bool) -> ValueId {
    let input = m.shape(x);
    let three = |at: usize| [at, at].as_slice().into();
    let conv = Conv {
        image: Image { batch: Some(0), channel: 1, spatial: 2 },
        window: Window { size: three(3), stride: three(1), dilation: three(1), before: three(1) },
        groups: 1,
        epilogue: Epilogue { bias, chain: None },
    };
    let mut inputs = vec![x, w];
    if bias {
        inputs.push(m.weights(&[out]));
    }
    let name = m.name("conv");
    m.builder.node(&name, Op::Conv(conv), &inputs, DType::F32, &[input[0], out, input[2], input[3]])
}

#[test]
fn a_batch_norm_after_a_convolution_goes_into_its_weights_and_bias() {
    for bias in [false, true] {
        let mut m = Model::default();
        let x = m.input(&[1, 2, 4, 4]);
        let y = conv(&mut m, x, 3, bias);
        let (scale, shift) = (m.weights(&[1, 3, 1, 1]), m.weights(&[1, 3, 1, 1]));
        let y = m.binary(Binary::Mul, scale, y);
        let y = m.binary(Binary::Sub, shift, y);
        let y = m.relu(y);
        assert_eq!(nodes(&m.fused(&[y])), ["Conv<[3, 3] before [1, 1]>+bias+<Max $0 0>"]);
    }
}

#[test]
fn weights_behind_a_permutation_are_scaled_where_they_lie() {
    let mut m = Model::default();
    let x = m.input(&[4, 5]);
    let w = m.weights(&[5, 3]);
    let w = m.permute(w, &[1, 0]);
    let y = m.einsum("mk,nk->nm", x, w, &[3, 4]);
    let scale = m.weights(&[3, 1]);
    let y = m.binary(Binary::Mul, y, scale);
    let y = m.with(Binary::Add, y, 0.5);
    assert_eq!(nodes(&m.fused(&[y])), ["Permute<[1, 0]>", "Einsum<mk,nk->nm>+bias"]);
}

#[test]
fn shared_weights_are_scaled_once_for_all_who_scale_alike() {
    let mut m = Model::default();
    let x = m.input(&[1, 3, 4, 4]);
    let w = m.weights(&[3, 3, 3, 3]);
    let scale = m.weights(&[1, 3, 1, 1]);
    let mut y = x;
    for _ in 0..2 {
        y = conv_with(&mut m, y, w, 3, false);
        y = m.binary(Binary::Mul, y, scale);
    }
    let bytes = 4 * 81;
    let graph = m.fused(&[y]);
    assert_eq!(nodes(&graph), ["Conv<[3, 3] before [1, 1]>"; 2]);
    assert_eq!(graph.constant_bytes(), bytes);
}

#[test]
fn large_weights_that_others_read_unscaled_are_not_copied() {
    let mut m = Model::default();
    let x = m.input(&[1, 600]);
    let w = m.weights(&[600, 600]);
    let y = m.einsum("mk,kn->mn", x, w, &[1, 600]);
    let scale = m.weights(&[1, 600]);
    let y = m.binary(Binary::Mul, y, scale);
    let y = m.einsum("mk,kn->mn", y, w, &[1, 600]);
    let (graph, declined) = check(m.builder.finish(&[y]), &Preferences::default());
    assert_eq!(nodes(&graph), ["Einsum<mk,kn->mn>+<Mul $0 $1>", "Einsum<mk,kn->mn>"]);
    assert_eq!(
        declined,
        ["scales einsum2: its weights are read by others too, and copies would take 1440000 bytes more"]
    );
}

#[test]
fn a_residual_is_added_at_the_end_of_the_later_product() {
    let mut m = Model::default();
    let x = m.input(&[1, 3, 4, 4]);
    let a = conv(&mut m, x, 3, true);
    let a = m.relu(a);
    let b = conv(&mut m, a, 3, true);
    let sum = m.binary(Binary::Add, b, a);
    let y = m.relu(sum);
    assert_eq!(
        m.fused(&[y]).to_string(),
        "input %0 FP32[1,3,4,4]\nconst %1 FP32[3,3,3,3]\nconst %2 FP32[3]\n\
         %5 FP32[1,3,4,4] = Conv<[3, 3] before [1, 1]>+bias+<Max $0 0>(%0, %1, %2) `conv3`\n\
         const %6 FP32[3,3,3,3]\nconst %7 FP32[3]\n\
         %11 FP32[1,3,4,4] = Conv<[3, 3] before [1, 1]>+bias+<Add $0 $1; Max r0 0>(%5, %6, %7, %5) `conv7`\n\
         output %11\n"
    );
}

#[test]
fn a_bias_behind_the_sum_of_two_products_is_the_later_ones() {
    let mut m = Model::default();
    let (a, b) = (m.input(&[4, 5]), m.input(&[4, 6]));
    let (v, w) = (m.weights(&[5, 3]), m.weights(&[6, 3]));
    let (a, b) = (m.einsum("mk,kn->mn", a, v, &[4, 3]), m.einsum("mk,kn->mn", b, w, &[4, 3]));
    let sum = m.binary(Binary::Add, a, b);
    let bias = m.weights(&[1, 3]);
    let y = m.binary(Binary::Add, sum, bias);
    let y = m.relu(y);
    assert_eq!(nodes(&m.fused(&[y])), ["Einsum<mk,kn->mn>", "Einsum<mk,kn->mn>+bias+<Add $1 $0; Max r0 0>"]);
}

#[test]
fn a_device_without_chains_at_the_end_of_products_gets_their_biases() {
    let mut m = Model::default();
    let x = m.input(&[4, 5]);
    let w = m.weights(&[5, 3]);
    let y = m.einsum("mk,kn->mn", x, w, &[4, 3]);
    let bias = m.weights(&[1, 3]);
    let y = m.binary(Binary::Add, y, bias);
    let y = m.relu(y);
    let preferences = Preferences { epilogue_chains: false, ..Preferences::default() };
    assert_eq!(nodes(&m.fused_as(&[y], &preferences)), ["Einsum<mk,kn->mn>+bias", "Pointwise<Max $0 0>"]);
}

#[test]
fn an_operation_behind_a_view_of_a_product_moves_before_it() {
    let mut m = Model::default();
    let x = m.input(&[1, 2, 4, 4]);
    let y = conv(&mut m, x, 3, true);
    let y = m.reshape(y, &[1, 3, 16]);
    let scale = m.weights(&[1, 3, 1]);
    let y = m.binary(Binary::Mul, y, scale);
    let y = m.permute(y, &[2, 0, 1]);
    let y = m.relu(y);
    assert_eq!(
        nodes(&m.fused(&[y])),
        ["Conv<[3, 3] before [1, 1]>+bias+<Max $0 0>", "Reshape", "Permute<[2, 0, 1]>"]
    );
}

#[test]
fn a_product_that_others_read_keeps_its_end_and_says_why() {
    let mut m = Model::default();
    let x = m.input(&[4, 5]);
    let w = m.weights(&[5, 3]);
    let y = m.einsum("mk,kn->mn", x, w, &[4, 3]);
    let (z, max) = (m.unary(Unary::Exp, y), m.reduce(Reducer::Max, y, &[1]));
    let (graph, declined) = check(m.builder.finish(&[z, max]), &Preferences::default());
    assert_eq!(nodes(&graph), ["Einsum<mk,kn->mn>", "Pointwise<Exp $0>", "Reduce<Max [1]>"]);
    assert_eq!(declined, ["epilogues p3: `einsum2` is read by 1 others too"]);
}

#[test]
fn a_number_on_the_input_of_a_product_moves_into_the_product() {
    let mut m = Model::default();
    let x = m.input(&[1, 2, 4, 4]);
    let scaled = m.with(Binary::Mul, x, 0.0625);
    let y = conv(&mut m, scaled, 3, true);
    assert_eq!(nodes(&m.fused(&[y])), ["Conv<[3, 3] before [1, 1]>+bias"]);

    let mut m = Model::default();
    let (q, k) = (m.input(&[4, 5]), m.input(&[6, 5]));
    let scaled = m.with(Binary::Mul, q, 0.25);
    let y = m.einsum("mk,nk->mn", scaled, k, &[4, 6]);
    let mask = m.input(&[1, 6]);
    let y = m.binary(Binary::Add, y, mask);
    assert_eq!(nodes(&m.fused(&[y])), ["Einsum<mk,nk->mn>+<Mul $0 0.25; Add r0 $1>"]);
}

#[test]
fn of_a_sum_of_products_each_adds_to_the_one_before() {
    let mut m = Model::default();
    let parts: Vec<ValueId> = (0..4)
        .map(|_| {
            let (x, w) = (m.input(&[4, 5]), m.weights(&[5, 3]));
            m.einsum("mk,kn->mn", x, w, &[4, 3])
        })
        .collect();
    let sum = parts[1..].iter().fold(parts[0], |sum, part| m.binary(Binary::Add, sum, *part));
    let bias = m.weights(&[1, 3]);
    let y = m.binary(Binary::Add, sum, bias);
    let y = m.unary(Unary::Silu, y);
    assert_eq!(
        nodes(&m.fused(&[y])),
        [
            "Einsum<mk,kn->mn>",
            "Einsum<mk,kn->mn>+<Add $1 $0>",
            "Einsum<mk,kn->mn>+<Add $1 $0>",
            "Einsum<mk,kn->mn>+bias+<Add $1 $0; Silu r0>"
        ]
    );
}

#[test]
fn scales_find_the_channels_wherever_the_axes_are() {
    // Depthwise, channels last.
    let mut m = Model::default();
    let x = m.input(&[1, 5, 4]);
    let w = m.weights(&[4, 1, 3]);
    let image = Image { batch: Some(0), channel: 2, spatial: 1 };
    let one = |at: usize| [at].as_slice().into();
    let window = Window { size: one(3), stride: one(2), dilation: one(1), before: one(1) };
    let conv = Conv { image, window, groups: 4, epilogue: Epilogue::default() };
    let y = m.builder.node("conv", Op::Conv(conv), &[x, w], DType::F32, &[1, 3, 4]);
    let (scale, shift) = (m.weights(&[1, 1, 4]), m.weights(&[1, 1, 4]));
    let y = m.binary(Binary::Mul, y, scale);
    let y = m.binary(Binary::Add, y, shift);
    assert_eq!(nodes(&m.fused(&[y])), ["Conv<[3] stride [2] before [1] groups 4>+bias"]);

    // Transposed, without a batch axis, its weights behind a permutation.
    let mut m = Model::default();
    let x = m.input(&[2, 3, 3]);
    let w = m.weights(&[3, 2, 2, 2]);
    let w = m.permute(w, &[1, 0, 2, 3]);
    let image = Image { batch: None, channel: 0, spatial: 1 };
    let two = |at: usize| [at, at].as_slice().into();
    let window = Window { size: two(2), stride: two(2), dilation: two(1), before: two(0) };
    let conv = Conv { image, window, groups: 1, epilogue: Epilogue::default() };
    let y = m.builder.node("conv", Op::ConvTranspose(conv), &[x, w], DType::F32, &[3, 6, 6]);
    let (scale, shift) = (m.weights(&[3, 1, 1]), m.weights(&[3, 1, 1]));
    let y = m.binary(Binary::Mul, y, scale);
    let y = m.binary(Binary::Sub, y, shift);
    let y = m.relu(y);
    assert_eq!(
        nodes(&m.fused(&[y])),
        ["Permute<[1, 0, 2, 3]>", "ConvTranspose<[2, 2] stride [2, 2]>+bias+<Max $0 0>"]
    );
}

#[test]
fn a_scale_that_varies_between_pixels_stays_at_the_end() {
    let mut m = Model::default();
    let x = m.input(&[1, 2, 4, 4]);
    let y = conv(&mut m, x, 3, true);
    let (scale, bias) = (m.weights(&[1, 1, 4, 4]), m.weights(&[1, 3, 1, 1]));
    let y = m.binary(Binary::Mul, y, scale);
    let y = m.binary(Binary::Add, y, bias);
    let text = "Conv<[3, 3] before [1, 1]>+bias+<Mul $0 $1; Add r0 $2>";
    assert_eq!(nodes(&m.fused(&[y])), [text]);
}

#[test]
fn a_run_that_rounds_on_purpose_ends_before_it() {
    let mut m = Model::default();
    let x = m.input(&[4, 5]);
    let w = m.weights(&[5, 3]);
    let y = m.einsum("mk,kn->mn", x, w, &[4, 3]);
    let y = m.with(Binary::Add, y, 8388608.0);
    let large = m.number(2, 8388608.0);
    let y = m.binary(Binary::Sub, large, y);
    assert_eq!(nodes(&m.fused(&[y])), ["Einsum<mk,kn->mn>+bias+<Sub 8388608 $0>"]);
}

#[test]
fn constants_along_different_axes_are_not_multiplied_out() {
    let mut m = Model::default();
    let x = m.input(&[3, 4]);
    let (a, b) = (m.weights(&[3, 1]), m.weights(&[1, 4]));
    let y = m.binary(Binary::Mul, x, a);
    let y = m.binary(Binary::Mul, y, b);
    assert_eq!(nodes(&m.fused(&[y])), ["Pointwise<Mul $0 $1; Mul r0 $2>"]);
}

#[test]
fn an_operation_on_a_concatenation_moves_to_the_parts() {
    let mut m = Model::default();
    let x = m.input(&[1, 2, 4, 4]);
    let parts = [conv(&mut m, x, 3, true), conv(&mut m, x, 2, true), x];
    let y = m.builder.node("concat", Op::Concat(1), &parts, DType::F32, &[1, 7, 4, 4]);
    let y = m.relu(y);
    let conv = "Conv<[3, 3] before [1, 1]>+bias+<Max $0 0>";
    assert_eq!(nodes(&m.fused(&[y])), [conv, conv, "Pointwise<Max $0 0>", "Concat<1>"]);

    let mut m = Model::default();
    let (x, z) = (m.input(&[1, 2]), m.input(&[1, 3]));
    let y = m.builder.node("concat", Op::Concat(1), &[x, z], DType::F32, &[1, 5]);
    let y = m.relu(y);
    assert_eq!(nodes(&m.fused(&[y])), ["Concat<1>", "Pointwise<Max $0 0>"]);
}

/// A transformer's block as importers write it: 4 tokens of 6 numbers, 2 heads.
#[test]
fn a_transformer_block_becomes_products_a_softmax_and_norms() {
    let mut m = Model::default();
    let (x, mask) = (m.input(&[4, 6]), m.input(&[1, 1, 4]));
    let mut heads = [x; 3];
    for head in &mut heads {
        let (w, b) = (m.weights(&[6, 6]), m.weights(&[1, 6]));
        let y = m.einsum("mk,kn->mn", x, w, &[4, 6]);
        let y = m.binary(Binary::Add, y, b);
        *head = m.reshape(y, &[4, 2, 3]);
    }
    let [q, k, v] = heads;
    let scores = m.einsum("mbk,nbk->bmn", q, k, &[2, 4, 4]);
    let scores = m.with(Binary::Div, scores, 3.0f32.sqrt());
    let scores = m.binary(Binary::Add, scores, mask);
    let max = m.reduce(Reducer::Max, scores, &[2]);
    let less = m.binary(Binary::Sub, scores, max);
    let exp = m.unary(Unary::Exp, less);
    let sum = m.reduce(Reducer::Sum, exp, &[2]);
    let weights = m.binary(Binary::Div, exp, sum);
    let y = m.einsum("bmk,kbn->mbn", weights, v, &[4, 2, 3]);
    let (w, b) = (m.weights(&[2, 3, 6]), m.weights(&[1, 6]));
    let y = m.einsum("mbk,bkn->mn", y, w, &[4, 6]);
    let y = m.binary(Binary::Add, y, b);
    let y = m.binary(Binary::Add, x, y);
    let mean = m.mean(y, &[1]);
    let centered = m.binary(Binary::Sub, y, mean);
    let squares = m.with(Binary::Pow, centered, 2.0);
    let variance = m.mean(squares, &[1]);
    let variance = m.with(Binary::Add, variance, 1e-5);
    let root = m.unary(Unary::Sqrt, variance);
    let y = m.binary(Binary::Div, centered, root);
    let (scale, shift) = (m.weights(&[1, 6]), m.weights(&[1, 6]));
    let y = m.binary(Binary::Mul, y, scale);
    let y = m.binary(Binary::Add, y, shift);
    assert_eq!(
        nodes(&m.fused(&[y])),
        [
            "Einsum<mk,kn->mn>+bias",
            "Reshape",
            "Einsum<mk,kn->mn>+bias",
            "Reshape",
            "Einsum<mk,kn->mn>+bias",
            "Reshape",
            "Einsum<mbk,nbk->bmn>+<Mul $0 0.57735026; Add r0 $1>",
            "Softmax<[2]>",
            "Einsum<bmk,kbn->mbn>",
            "Einsum<mbk,bkn->mn>+bias+<Add $1 $0>",
            "LayerNorm<[1] ε=0.00001>"
        ]
    );
}

/// Three products of one value, with bias and activation where asked for; what reads them is one chain.
fn siblings(columns: [usize; 3], chain: bool) -> (Graph, Vec<String>) {
    let mut m = Model::default();
    let x = m.input(&[4, 6]);
    let mut sum = None;
    for n in columns {
        let w = m.weights(&[6, n]);
        let y = m.einsum("mk,kn->mn", x, w, &[4, n]);
        let bias = m.weights(&[1, n]);
        let y = m.binary(Binary::Add, y, bias);
        let y = if chain { m.unary(Unary::Tanh, y) } else { y };
        let w = m.weights(&[n, 5]);
        let y = m.einsum("mk,kn->mn", y, w, &[4, 5]);
        sum = Some(sum.map_or(y, |sum| m.binary(Binary::Add, sum, y)));
    }
    let preferences = Preferences { joined_products: true, ..Preferences::default() };
    check(m.builder.finish(&[sum.unwrap()]), &preferences)
}

#[test]
fn products_of_one_value_are_one_whose_parts_are_views() {
    for (chain, text) in [(false, ""), (true, "+<Tanh $0>")] {
        let (graph, _) = siblings([8, 16, 8], chain);
        let all = nodes(&graph);
        assert_eq!(all.iter().filter(|node| node.starts_with("Slice")).count(), 3, "{all:?}");
        assert_eq!(all[0], format!("Einsum<mk,kn->mn>+bias{text}"));
        assert_eq!(all.iter().filter(|node| node.starts_with("Einsum")).count(), 4, "{all:?}");
        let joined = graph.values.iter().find(|value| *value.shape == [6, 32]);
        assert!(joined.is_some_and(|value| value.constant.is_some()), "{graph}");
    }
}

#[test]
fn products_whose_parts_would_lie_askew_stay_apart() {
    let (graph, _) = siblings([8, 8, 12], false);
    let all = nodes(&graph);
    assert_eq!(all.iter().filter(|node| node.starts_with("Slice")).count(), 2, "{all:?}");
    let (graph, _) = siblings([7, 12, 9], false);
    assert!(!nodes(&graph).iter().any(|node| node.starts_with("Slice")), "{graph}");
}

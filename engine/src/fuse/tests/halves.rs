use super::products::conv;
use super::*;

fn halves() -> Preferences {
    Preferences { precision: Precision::F16, ..Preferences::default() }
}

/// Each node's op and the dtypes of what it reads, constants aside, and makes.
fn dtypes(graph: &Graph) -> Vec<String> {
    let dtype = |id: &ValueId| graph.value(*id).dtype.to_string();
    let line = |node: &crate::graph::Node| {
        let read = node.inputs.iter().filter(|id| graph.value(**id).constant.is_none()).map(dtype);
        let read: Vec<String> = read.collect();
        format!("{} {} -> {}", node.op.name(), read.join(" "), dtype(&node.outputs[0]))
    };
    graph.nodes.iter().map(line).collect()
}

#[test]
fn products_and_what_lies_between_them_are_f16_and_callers_see_f32() {
    let mut m = Model::default();
    let x = m.input(&[1, 4, 6, 6]);
    let a = conv(&mut m, x, 8, true);
    let a = m.relu(a);
    let pooled = m.mean(a, &[2, 3]);
    let gate = m.unary(Unary::Sigmoid, pooled);
    let gated = m.binary(Binary::Mul, a, gate);
    let y = conv(&mut m, gated, 4, false);
    let graph = m.fused_as(&[y], &halves());
    assert_eq!(
        dtypes(&graph),
        [
            "Cast FP32 -> FP16",
            "Conv FP16 -> FP16",
            "Reduce FP16 -> FP16",
            "Pointwise FP16 FP16 -> FP16",
            "Conv FP16 -> FP16",
            "Cast FP16 -> FP32",
        ]
    );
}

#[test]
fn what_may_be_out_of_range_stays_f32_until_it_is_back() {
    let mut m = Model::default();
    let x = m.input(&[1, 8, 8]);
    let w = m.weights(&[8, 8]);
    let scores = m.einsum("bmk,kn->bmn", x, w, &[1, 8, 8]);
    let mask = m.input(&[1, 1, 8]);
    let mask = m.with(Binary::Mul, mask, -3.4e38);
    let masked = m.binary(Binary::Add, scores, mask);
    let weights = m.builder.node(
        "s",
        Op::Softmax { axes: [2].as_slice().into(), log: false },
        &[masked],
        DType::F32,
        &[1, 8, 8],
    );
    let v = m.weights(&[8, 4]);
    let y = m.einsum("bmn,nk->bmk", weights, v, &[1, 8, 4]);
    let y = m.relu(y);
    let graph = m.builder.finish(&[y]);
    let fused = fuse(graph, &Preferences { attention: None, epilogue_chains: false, ..halves() }).graph;
    fused.check().unwrap();
    assert_eq!(
        dtypes(&fused),
        [
            "Cast FP32 -> FP16",
            "Einsum FP16 -> FP16",
            "Pointwise FP32 FP16 -> FP32",
            "Softmax FP32 -> FP32",
            "Cast FP32 -> FP16",
            "Einsum FP16 -> FP16",
            "Pointwise FP16 -> FP32",
        ]
    );
}

#[test]
fn squares_exponentials_and_large_numbers_grow_and_a_clamp_does_not() {
    let stored = |build: &dyn Fn(&mut Model, ValueId) -> ValueId| {
        let mut m = Model::default();
        let x = m.input(&[2, 4]);
        let made = build(&mut m, x);
        let w = m.weights(&[4, 4]);
        let y = m.einsum("mk,kn->mn", made, w, &[2, 4]);
        let graph = m.builder.finish(&[y]);
        let fused = fuse(graph, &halves()).graph;
        fused.check().unwrap();
        fused.value(fused.nodes[0].outputs[0]).dtype
    };
    assert_eq!(stored(&|m, x| m.unary(Unary::Exp, x)), DType::F32);
    assert_eq!(stored(&|m, x| m.binary(Binary::Mul, x, x)), DType::F32);
    assert_eq!(stored(&|m, x| m.with(Binary::Add, x, 1e6)), DType::F32);
    assert_eq!(stored(&|m, x| m.with(Binary::Min, x, 3.4e38)), DType::F16);
    assert_eq!(stored(&|m, x| m.with(Binary::Div, x, 8.0)), DType::F16);
    assert_eq!(stored(&|m, x| m.unary(Unary::GeluErf, x)), DType::F16);
}

#[test]
fn what_is_named_wide_stays_f32_until_something_brings_it_back() {
    let mut m = Model::default();
    let x = m.input(&[1, 4, 6, 6]);
    let a = conv(&mut m, x, 8, false);
    let b = conv(&mut m, a, 8, false);
    let c = m.unary(Unary::Tanh, b);
    let y = conv(&mut m, c, 4, false);
    let name = m.builder.graph().nodes[1].name.clone();
    let graph = m.fused_as(&[y], &Preferences { wide: [name].into(), epilogue_chains: false, ..halves() });
    assert_eq!(
        dtypes(&graph),
        [
            "Cast FP32 -> FP16",
            "Conv FP16 -> FP16",
            "Cast FP16 -> FP32",
            "Conv FP32 -> FP32",
            "Pointwise FP32 -> FP16",
            "Conv FP16 -> FP16",
            "Cast FP16 -> FP32",
        ]
    );
}

#[test]
fn what_is_named_wide_is_wide_where_a_caller_gets_it() {
    let mut m = Model::default();
    let x = m.input(&[1, 4, 6, 6]);
    let a = conv(&mut m, x, 8, false);
    let y = conv(&mut m, a, 4, false);
    let name = m.builder.graph().nodes[1].name.clone();
    let graph = m.fused_as(&[y], &Preferences { wide: [name].into(), ..halves() });
    let wanted = ["Cast FP32 -> FP16", "Conv FP16 -> FP16", "Cast FP16 -> FP32", "Conv FP32 -> FP32"];
    assert_eq!(dtypes(&graph), wanted);
}

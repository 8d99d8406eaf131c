use crate::import::tests::{as_f32, f32s, floats, longs, model, node, run, value, with_graph};
use crate::import::tract::pb::GraphProto;
use crate::import::{Constant, Grant, Import, Narrowing};
use crate::tensor::DType;

/// A branch of one node whose output has this name.
fn branch(op: &str, inputs: &[&str], output: &str) -> GraphProto {
    GraphProto {
        node: vec![node(op, inputs, &[output])],
        output: vec![value(output, DType::F32, &[])],
        ..Default::default()
    }
}

/// if rate == 16000 { y = x + w } else { y = [x, x] }: the branches differ in shape, and share a name inside.
fn by_rate() -> GraphProto {
    let mut twice = branch("Concat", &["x", "x"], "inner");
    twice.node[0].attribute.push(crate::import::tract::pb::AttributeProto {
        name: "axis".into(),
        i: 0,
        r#type: 2,
        ..Default::default()
    });
    let mut shifted = branch("Add", &["x", "w"], "inner");
    shifted.initializer.push(floats("w", &[1], &[10.0]));
    let chosen = with_graph(node("If", &["fast"], &["y"]), "then_branch", shifted);
    GraphProto {
        node: vec![node("Equal", &["rate", "k"], &["fast"]), with_graph(chosen, "else_branch", twice)],
        initializer: vec![longs("k", &[], &[16000])],
        input: vec![value("x", DType::F32, &["n"]), value("rate", DType::I64, &[])],
        output: vec![value("y", DType::F32, &["m"])],
        ..Default::default()
    }
}

fn at_rate(graph: GraphProto, rate: i64) -> Import {
    let constants = [("rate".to_string(), Constant::Integers(vec![rate]))].into();
    Import::decode(&model(graph), None, &Narrowing { constants, ..Default::default() }, &Grant::unlimited())
        .unwrap()
}

#[test]
fn a_constant_input_chooses_the_branch() {
    let fast = run(&at_rate(by_rate(), 16000), &[f32s(&[2], &[1.0, 2.0])]).unwrap();
    assert_eq!(as_f32(&fast[0]), [11.0, 12.0]);
    let slow = run(&at_rate(by_rate(), 8000), &[f32s(&[2], &[1.0, 2.0])]).unwrap();
    assert_eq!(as_f32(&slow[0]), [1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn a_shape_chooses_the_branch_and_another_shape_the_other() {
    let mut graph = by_rate();
    graph.input.pop();
    graph.initializer[0] = longs("k", &[1], &[3]);
    graph.node[0] = node("Equal", &["size", "k"], &["fast"]);
    graph.node.insert(0, node("Shape", &["x"], &["size"]));
    let import = Import::decode(&model(graph), None, &Narrowing::default(), &Grant::unlimited()).unwrap();
    let three = run(&import, &[f32s(&[3], &[1.0, 2.0, 3.0])]).unwrap();
    assert_eq!(as_f32(&three[0]), [11.0, 12.0, 13.0]);
    let two = run(&import, &[f32s(&[2], &[1.0, 2.0])]).unwrap();
    assert_eq!(as_f32(&two[0]), [1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn a_condition_inside_a_branch_that_depends_on_an_outer_one_is_folded_too() {
    // The then-branch holds an If of its own, on the size of what the first If made.
    let mut graph = by_rate();
    graph.initializer.push(longs("four", &[1], &[4]));
    let inner = with_graph(
        with_graph(node("If", &["long"], &["z"]), "then_branch", branch("Neg", &["y"], "inner")),
        "else_branch",
        branch("Abs", &["y"], "inner"),
    );
    let outer = GraphProto {
        node: vec![node("Shape", &["y"], &["size"]), node("Equal", &["size", "four"], &["long"]), inner],
        output: vec![value("z", DType::F32, &[])],
        ..Default::default()
    };
    let second = with_graph(node("If", &["fast"], &["out"]), "then_branch", branch("Neg", &["y"], "inner"));
    graph.node.push(with_graph(second, "else_branch", outer));
    graph.output = vec![value("out", DType::F32, &["m"])];
    let out = run(&at_rate(graph, 8000), &[f32s(&[2], &[1.0, 2.0])]).unwrap();
    assert_eq!(as_f32(&out[0]), [-1.0, -2.0, -1.0, -2.0]);
}

#[test]
fn a_branch_can_give_a_value_from_outside_and_one_value_twice() {
    let both = |outputs: [&str; 2], mut graph: GraphProto| {
        graph.output = outputs.map(|name| value(name, DType::F32, &[])).into();
        graph
    };
    let chosen = with_graph(
        node("If", &["fast"], &["a", "b"]),
        "then_branch",
        both(["inner", "inner"], branch("Neg", &["x"], "inner")),
    );
    let mut graph = by_rate();
    graph.node[1] = with_graph(chosen, "else_branch", both(["x", "inner"], branch("Neg", &["x"], "inner")));
    graph.output = vec![value("a", DType::F32, &["n"]), value("b", DType::F32, &["n"])];
    let x = [f32s(&[1], &[5.0])];
    let fast = run(&at_rate(graph.clone(), 16000), &x).unwrap();
    assert_eq!((as_f32(&fast[0]), as_f32(&fast[1])), (vec![-5.0], vec![-5.0]));
    let slow = run(&at_rate(graph, 8000), &x).unwrap();
    assert_eq!((as_f32(&slow[0]), as_f32(&slow[1])), (vec![5.0], vec![-5.0]));
}

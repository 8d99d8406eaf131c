use super::Grant;
use crate::error::Error;
use crate::import::tests::{
    as_f32, constants, f32s, floats, import, longs, model, node, run, value, with_large,
};
use crate::import::tract::pb::{AttributeProto, GraphProto, NodeProto};
use crate::import::{Import, Narrowing};
use crate::tensor::DType;
use smallvec::smallvec;

/// A grant of so many bytes, for tests that give nothing back; it keeps the most that was asked for at once.
fn bounded(bytes: u64) -> Grant {
    let left = std::sync::atomic::AtomicU64::new(bytes);
    Grant::new(u64::MAX, move |wanted| {
        use std::sync::atomic::Ordering::Relaxed;
        let take = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(wanted));
        take.map_err(|_| Error::Memory { bytes: wanted as usize })?;
        Ok(Box::new(()))
    })
}

#[test]
fn what_is_made_of_constants_is_sized_before_it_is_made() {
    // Sides that the file does not tell: each is a product. 2^16 × 2^16 elements of 4 bytes.
    let side = || vec![node("Mul", &["small", "small"], &["side"])];
    let sides = || [side(), vec![node("Concat", &["side", "side"], &["sides"])]].concat();
    let of_shape = |op: &str, inputs: &[&str]| [sides(), vec![node(op, inputs, &["huge"])]].concat();
    let axis = |mut node: NodeProto| {
        node.attribute.push(AttributeProto { name: "axis".into(), r#type: 2, ..Default::default() });
        node
    };
    let cases: Vec<(&str, Vec<NodeProto>)> = vec![
        ("ConstantOfShape", of_shape("ConstantOfShape", &["sides"])),
        ("Expand", of_shape("Expand", &["one", "sides"])),
        ("Tile", of_shape("Tile", &["one", "sides"])),
        ("Range", {
            let squeeze = [
                side(),
                vec![node("Mul", &["side", "side"], &["far"]), node("Squeeze", &["far"], &["limit"])],
            ];
            [squeeze.concat(), vec![node("Range", &["zero", "limit", "step"], &["huge"])]].concat()
        }),
        ("Add", {
            let row = vec![
                node("Concat", &["side", "unit"], &["tall"]),
                node("Concat", &["unit", "side"], &["wide"]),
                node("Expand", &["one", "tall"], &["column"]),
                node("Expand", &["one", "wide"], &["row"]),
                node("Add", &["column", "row"], &["huge"]),
            ];
            [side(), row].concat()
        }),
    ];
    for (case, nodes) in cases {
        let mut nodes: Vec<NodeProto> =
            nodes.into_iter().map(|node| if node.op_type == "Concat" { axis(node) } else { node }).collect();
        nodes.push(node("Cast", &["huge"], &["floats"]));
        nodes.last_mut().unwrap().attribute.push(AttributeProto {
            name: "to".into(),
            i: 1,
            r#type: 2,
            ..Default::default()
        });
        nodes.push(node("ReduceMax", &["floats"], &["most"]));
        nodes.push(node("Add", &["x", "most"], &["y"]));
        let graph = GraphProto {
            node: nodes,
            initializer: vec![
                longs("small", &[1], &[1 << 8]),
                longs("unit", &[1], &[1]),
                longs("zero", &[], &[0]),
                longs("step", &[], &[1]),
                floats("one", &[1, 1], &[1.0]),
            ],
            input: vec![value("x", DType::F32, &["1"])],
            output: vec![value("y", DType::F32, &[])],
            ..Default::default()
        };
        let grant = bounded(64 << 20);
        let import = Import::decode(&model(graph), None, &Narrowing::default(), &grant).unwrap();
        let error = import.lowered(&[smallvec![1]], false, &grant).err();
        assert!(matches!(error, Some(Error::Memory { bytes }) if bytes > 1 << 32), "{case}: {error:?}");
    }
}

#[test]
fn one_element_over_and_over_stays_a_description() {
    use crate::graph::Data;
    let mut graph =
        with_large(vec![node("ConstantOfShape", &["shape"], &["w"]), node("MatMul", &["x", "w"], &["y"])]);
    graph.initializer = vec![longs("shape", &[2], &[128, 128])];
    graph.node[0].attribute.push(AttributeProto {
        name: "value".into(),
        t: Some(floats("", &[1], &[0.5])),
        r#type: 4,
        ..Default::default()
    });
    let import = import(graph).unwrap();
    // That of the shape.
    assert_eq!(import.weights_bytes(), 16);
    assert!(matches!(&constants(&import)[..], [Data::Filled { len: 65536, .. }]), "{:?}", constants(&import));
    let outputs = run(&import, &[f32s(&[1, 128], &[1.0; 128])]).unwrap();
    assert_eq!(as_f32(&outputs[0]), [64.0; 128]);
}

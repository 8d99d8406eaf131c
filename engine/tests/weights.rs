//! Models whose weights stay in their file compute as those that tract holds itself.

#![allow(clippy::unwrap_used)] // an integration test: clippy sees no `#[cfg(test)]` around its helpers

use plimsoll_engine::arena::Arena;
use plimsoll_engine::model::{Compute, Limits, Model, Source};
use plimsoll_engine::program::Workspace;
use plimsoll_engine::slab::Terms;
use plimsoll_engine::tensor::{DType, Shape, Tensor};
use prost::Message;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};

/// Numbers between -1 and 1, none of them 0.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 37 + at / 11) % 100) as f32 / 50.0 - 0.99).collect()
}

fn f32s(name: &str, dims: &[i64]) -> TensorProto {
    let bytes: Vec<u8> =
        numbers(dims.iter().product::<i64>() as usize).into_iter().flat_map(f32::to_le_bytes).collect();
    TensorProto { name: name.into(), data_type: 1, dims: dims.into(), raw_data: bytes, ..Default::default() }
}

fn f16s(name: &str, dims: &[i64]) -> TensorProto {
    let numbers = numbers(dims.iter().product::<i64>() as usize);
    let bytes: Vec<u8> = numbers.into_iter().flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect();
    TensorProto { data_type: 10, raw_data: bytes, ..f32s(name, dims) }
}

fn node(op: &str, inputs: &[&str], output: &str, numbers: &[(&str, i64)]) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: vec![output.into()],
        attribute: numbers
            .iter()
            .map(|(name, i)| AttributeProto { name: (*name).into(), i: *i, r#type: 2, ..Default::default() })
            .collect(),
        ..Default::default()
    }
}

fn value(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = |size: &i64| Dimension { value: Some(dimension::Value::DimValue(*size)), ..Default::default() };
    let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let value = type_proto::Value::TensorType(type_proto::Tensor { elem_type: 1, shape });
    let r#type = TypeProto { value: Some(value), ..Default::default() };
    ValueInfoProto { name: name.into(), r#type: Some(r#type), ..Default::default() }
}

/// y of x of this shape.
fn model(x: &[i64], nodes: Vec<NodeProto>, initializer: Vec<TensorProto>) -> ModelProto {
    let graph = GraphProto {
        node: nodes,
        initializer,
        input: vec![value("x", x)],
        output: vec![value("y", &[])],
        name: "g".into(),
        ..Default::default()
    };
    let opset = OperatorSetIdProto { domain: String::new(), version: 13 };
    ModelProto { ir_version: 8, opset_import: vec![opset], graph: Some(graph), ..Default::default() }
}

/// Computes in both ways; gives the bytes of constants that the import holds.
fn check(dir: &temp_dir::TempDir, model: &ModelProto) -> usize {
    let path = dir.child("model.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    let arena = Arena::unlimited();
    let dims = |value: &ValueInfoProto| -> Shape {
        let Some(type_proto::Value::TensorType(tensor)) = &value.r#type.as_ref().unwrap().value else {
            panic!()
        };
        let dims = tensor.shape.as_ref().unwrap().dim.iter();
        dims.map(|dim| match dim.value {
            Some(dimension::Value::DimValue(size)) => size as usize,
            _ => panic!(),
        })
        .collect()
    };
    let shape = dims(&model.graph.as_ref().unwrap().input[0]);
    let x = Tensor::from_slice(DType::F32, &shape, &numbers(shape.iter().product())).unwrap();
    let mut held = 0;
    let mut results = [Compute::Planned, Compute::Whole].map(|compute| {
        let limits = Limits { compute, ..Limits::default() };
        let model = Model::load(&Source::file(&path), "m", limits, Terms::default(), &arena).unwrap();
        let program = model.program(std::slice::from_ref(&shape)).unwrap();
        assert_eq!(program.plan().is_some(), compute == Compute::Planned, "{:?}", program.unplanned());
        held = model.imported_bytes();
        let (mut workspace, mut outputs) = (Workspace::new(1).unwrap(), vec![]);
        program.run(&mut workspace, std::slice::from_ref(&x), &mut outputs).unwrap();
        let bytes = outputs[0].as_bytes().unwrap().to_vec();
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect::<Vec<f32>>()
    });
    let (planned, whole) = results.split_at_mut(1);
    assert_eq!(planned[0].len(), whole[0].len());
    for (p, w) in planned[0].iter().zip(&whole[0]) {
        assert!((p - w).abs() <= 1e-3 * w.abs().max(1.0), "{p} and {w}");
    }
    held
}

#[test]
fn weights_in_the_file_compute_alike_through_views_factors_and_other_dtypes() {
    let dir = temp_dir::TempDir::new().unwrap();
    let product = |mut nodes: Vec<NodeProto>, weights: Vec<TensorProto>| {
        nodes.push(node("MatMul", &["x", "v"], "y", &[]));
        model(&[3, 96], nodes, weights)
    };
    let longs = |name: &str, values: &[i64]| TensorProto {
        name: name.into(),
        data_type: 7,
        dims: vec![values.len() as i64],
        int64_data: values.into(),
        ..Default::default()
    };
    let models = [
        product(vec![node("Identity", &["w"], "v", &[])], vec![f32s("w", &[96, 80])]),
        product(vec![node("Transpose", &["w"], "v", &[])], vec![f32s("w", &[80, 96])]),
        product(
            vec![node("Transpose", &["w"], "t", &[]), node("Reshape", &["t", "shape"], "v", &[])],
            vec![f32s("w", &[40, 192]), longs("shape", &[96, 80])],
        ),
        product(
            vec![node("Slice", &["w", "from", "to"], "v", &[])],
            vec![f32s("w", &[128, 96]), longs("from", &[16, 3]), longs("to", &[112, 90])],
        ),
        product(vec![node("Cast", &["w"], "v", &[("to", 1)])], vec![f16s("w", &[96, 200])]),
        product(
            vec![node("Cast", &["w"], "c", &[("to", 1)]), node("Transpose", &["c"], "v", &[])],
            vec![f16s("w", &[200, 96])],
        ),
        product(vec![node("Mul", &["w", "s"], "v", &[])], vec![f32s("w", &[96, 80]), f32s("s", &[80])]),
        product(vec![node("Div", &["w", "s"], "v", &[])], vec![f32s("w", &[96, 80]), f32s("s", &[96, 1])]),
        product(vec![node("Exp", &["w"], "v", &[])], vec![f32s("w", &[96, 80])]),
        product(
            vec![node("Concat", &["w", "u"], "v", &[("axis", 0)])],
            vec![f32s("w", &[48, 90]), f32s("u", &[48, 90])],
        ),
        // A normalization is folded into the convolution before it.
        model(
            &[1, 16, 9, 9],
            vec![
                node("Conv", &["x", "w"], "c", &[]),
                node("BatchNormalization", &["c", "s", "s", "s", "v"], "y", &[]),
            ],
            vec![
                f32s("w", &[32, 16, 3, 3]),
                f32s("s", &[32]),
                TensorProto { float_data: vec![2.0; 32], raw_data: Default::default(), ..f32s("v", &[32]) },
            ],
        ),
        // Of one row only: axes of size 1 are taken away and put back.
        model(&[1, 16, 40], vec![node("Conv", &["x", "w"], "y", &[])], vec![f32s("w", &[64, 16, 5])]),
        model(&[1, 64, 7, 7], vec![node("Conv", &["x", "w"], "y", &[])], vec![f32s("w", &[96, 64, 1, 1])]),
        model(
            &[1, 16, 6, 6],
            vec![node("ConvTranspose", &["x", "w"], "y", &[])],
            vec![f32s("w", &[16, 64, 3, 3])],
        ),
        model(&[100, 90], vec![node("Add", &["x", "w"], "y", &[])], vec![f32s("w", &[100, 90])]),
        model(
            &[2, 3],
            vec![node("Gather", &["w", "at"], "g", &[]), node("Add", &["x", "g"], "y", &[])],
            vec![f32s("w", &[4000, 3]), longs("at", &[3999, 7])],
        ),
    ];
    for (at, model) in models.iter().enumerate() {
        println!("model {at}");
        check(&dir, model);
    }
}

#[test]
fn weights_in_a_file_of_their_own_compute_alike() {
    let dir = temp_dir::TempDir::new().unwrap();
    let mut model = model(&[3, 96], vec![node("MatMul", &["x", "w"], "y", &[])], vec![f32s("w", &[96, 80])]);
    let tensor = &mut model.graph.as_mut().unwrap().initializer[0];
    let data = std::mem::take(&mut tensor.raw_data);
    std::fs::write(dir.child("data"), [&[9u8; 64][..], &data[..]].concat()).unwrap();
    tensor.data_location = Some(1);
    for (key, value) in
        [("location", "data".to_string()), ("offset", "64".into()), ("length", data.len().to_string())]
    {
        tensor.external_data.push(StringStringEntryProto { key: key.into(), value });
    }
    assert_eq!(check(&dir, &model), 0);
}

#[test]
fn a_second_shape_of_a_file_that_has_changed_is_an_error_and_the_first_still_runs() {
    let dir = temp_dir::TempDir::new().unwrap();
    let path = dir.child("model.onnx");
    let mut open = model(&[3, 96], vec![node("MatMul", &["x", "w"], "y", &[])], vec![f32s("w", &[96, 80])]);
    open.graph.as_mut().unwrap().input[0] = value("x", &[-1, 96]);
    std::fs::write(&path, open.encode_to_vec()).unwrap();
    let arena = Arena::unlimited();
    let model = Model::load(&Source::file(&path), "m", Limits::default(), Terms::default(), &arena).unwrap();
    let shape = |rows: usize| -> Vec<Shape> { vec![[rows, 96].into_iter().collect()] };
    let first = model.program(&shape(3)).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(500).unwrap();
    // What is packed already is not read again.
    model.program(&shape(4)).unwrap();
    let x = Tensor::from_slice(DType::F32, &[3, 96], &numbers(3 * 96)).unwrap();
    first.run(&mut Workspace::new(1).unwrap(), &[x], &mut vec![]).unwrap();
    let fresh =
        Model::load(&Source::file(&path), "m", Limits::default(), Terms::default(), &arena).err().unwrap();
    assert!(fresh.to_string().starts_with("not an ONNX model: "), "{fresh}");
}

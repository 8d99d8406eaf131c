//! Small ONNX graphs, written as expressions, through the importer.

use super::tract::pb::tensor_shape_proto::{Dimension, dimension};
use super::tract::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, type_proto,
};
use super::*;
use crate::tensor::{DType, Tensor};
use prost::Message;
use smallvec::smallvec;

/// `name: dtype[dims]`, a number for a fixed axis and a word for a named one.
pub(super) fn value(name: &str, dtype: DType, dims: &[&str]) -> ValueInfoProto {
    let dim = |text: &&str| Dimension {
        value: Some(match text.parse() {
            Ok(size) => dimension::Value::DimValue(size),
            Err(_) => dimension::Value::DimParam((*text).into()),
        }),
        ..Default::default()
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: convert::dtype_to_onnx(dtype), shape: Some(shape) };
    let r#type = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: name.into(), r#type: Some(r#type), ..Default::default() }
}

pub(super) fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        name: format!("{op}_{}", outputs.first().unwrap_or(&"")),
        op_type: op.into(),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        ..Default::default()
    }
}

pub(super) fn with_graph(mut node: NodeProto, name: &str, graph: GraphProto) -> NodeProto {
    let kind = 5; // AttributeProto.GRAPH
    node.attribute.push(AttributeProto {
        name: name.into(),
        g: Some(graph),
        r#type: kind,
        ..Default::default()
    });
    node
}

pub(super) fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: name.into(),
        data_type: 1,
        dims: dims.into(),
        float_data: values.into(),
        ..Default::default()
    }
}

pub(super) fn longs(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    TensorProto {
        name: name.into(),
        data_type: 7,
        dims: dims.into(),
        int64_data: values.into(),
        ..Default::default()
    }
}

pub(super) fn model(graph: GraphProto) -> Vec<u8> {
    let opset = OperatorSetIdProto { domain: String::new(), version: 17 };
    ModelProto { ir_version: 8, opset_import: vec![opset], graph: Some(graph), ..Default::default() }
        .encode_to_vec()
}

pub(super) fn import(graph: GraphProto) -> Result<Import, Error> {
    Import::decode(&model(graph), None, &Narrowing::default(), &Grant::unlimited())
}

/// tract's own plan.
fn reference(import: &Import, shapes: &[Shape]) -> Result<Reference, Error> {
    match import.lowered(shapes, true, &Grant::unlimited())?.0 {
        Lowered::Whole(reference, _) => Ok(reference),
        Lowered::Graph(_) => unreachable!("asked for whole"),
    }
}

pub(super) fn run(import: &Import, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
    let shapes: Vec<Shape> = inputs.iter().map(|tensor| tensor.shape().into()).collect();
    let reference = reference(import, &shapes)?;
    let mut outputs = vec![];
    reference.run(inputs, &mut outputs)?;
    Ok(outputs)
}

pub(super) fn f32s(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(DType::F32, shape, values).unwrap()
}

pub(super) fn as_f32(tensor: &Tensor) -> Vec<f32> {
    tensor.as_bytes().unwrap().chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
}

/// y = x + w
fn add_one() -> GraphProto {
    GraphProto {
        node: vec![node("Add", &["x", "w"], &["y"])],
        initializer: vec![floats("w", &[1], &[1.0])],
        input: vec![value("x", DType::F32, &["batch", "2"])],
        output: vec![value("y", DType::F32, &["batch", "2"])],
        ..Default::default()
    }
}

#[test]
fn a_graph_runs_at_each_shape_that_it_is_asked_for() {
    let import = import(add_one()).unwrap();
    assert_eq!(import.signature().inputs[0].shape_text(), "[batch, 2]");
    for rows in [1, 3] {
        let x: Vec<f32> = (0..rows * 2).map(|v| v as f32).collect();
        let y = run(&import, &[f32s(&[rows, 2], &x)]).unwrap();
        assert_eq!(y[0].shape(), [rows, 2]);
        assert_eq!(as_f32(&y[0]), x.iter().map(|v| v + 1.0).collect::<Vec<_>>());
    }
}

#[test]
fn every_served_dtype_passes_through_unchanged() {
    for dtype in DType::ALL {
        let graph = GraphProto {
            node: vec![node("Identity", &["x"], &["y"])],
            input: vec![value("x", dtype, &["2"])],
            output: vec![value("y", dtype, &["2"])],
            ..Default::default()
        };
        let x = match dtype.size_bytes() {
            Some(size) => Tensor::plain(dtype, smallvec![2], vec![1u8; 2 * size].into()).unwrap(),
            None => Tensor::text(smallvec![2], vec!["Größe".into(), String::new()]).unwrap(),
        };
        assert_eq!(run(&import(graph).unwrap(), std::slice::from_ref(&x)).unwrap(), [x], "{dtype}");
    }
}

#[test]
fn an_empty_tensor_goes_in_and_comes_out() {
    let y = run(&import(add_one()).unwrap(), &[f32s(&[0, 2], &[])]).unwrap();
    assert_eq!((y[0].shape(), y[0].size_bytes()), (&[0, 2][..], 0));
}

#[test]
fn a_constant_input_leaves_the_signature() {
    let mut graph = add_one();
    graph.initializer.clear();
    graph.input.push(value("w", DType::F32, &[]));
    let constants = [("w".to_string(), Constant::Floats(vec![2.5]))].into();
    let narrowing = Narrowing { constants, ..Default::default() };
    let import = Import::decode(&model(graph), None, &narrowing, &Grant::unlimited()).unwrap();
    assert_eq!(import.signature().inputs.len(), 1);
    let y = run(&import, &[f32s(&[1, 2], &[0.0, 1.0])]).unwrap();
    assert_eq!(as_f32(&y[0]), [2.5, 3.5]);
}

#[test]
fn a_named_axis_takes_the_size_from_the_settings() {
    let dims = [("batch".to_string(), 4)].into();
    let narrowing = Narrowing { dims, ..Default::default() };
    let import = Import::decode(&model(add_one()), None, &narrowing, &Grant::unlimited()).unwrap();
    assert_eq!(import.signature().inputs[0].fixed_shape(), Some(smallvec![4, 2]));
    let error = run(&import, &[f32s(&[1, 2], &[0.0, 1.0])]).unwrap_err();
    assert_eq!(error.to_string(), "input `x` takes shape [4, 2], got [1, 2]");
}

#[test]
fn settings_that_fit_nothing_are_refused_by_name() {
    let narrowing = |dims: &[(&str, usize)], constants: &[(&str, Constant)]| Narrowing {
        dims: dims.iter().map(|(name, size)| (name.to_string(), *size)).collect(),
        constants: constants.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
    };
    let refusal = |narrowing| {
        Import::decode(&model(add_one()), None, &narrowing, &Grant::unlimited()).err().unwrap().to_string()
    };
    assert_eq!(
        refusal(narrowing(&[("height", 3)], &[])),
        "dims.`height`: the model has no axis of that name; it has batch"
    );
    assert_eq!(
        refusal(narrowing(&[], &[("z", Constant::Integers(vec![1]))])),
        "constants.`z`: the model has no input of that name; it takes x"
    );
    assert_eq!(
        refusal(narrowing(&[], &[("x", Constant::Integers(vec![1]))])),
        "constants.`x`: its shape [batch, 2] is open; give the open axes a size in dims"
    );
    assert_eq!(
        refusal(narrowing(&[("batch", 3)], &[("x", Constant::Integers(vec![1, 2]))])),
        "constants.`x`: shape [3, 2] has 6 elements, got 2"
    );
}

#[test]
fn what_is_no_model_is_refused_without_a_panic() {
    let whole = model(add_one());
    for cut in 0..whole.len() {
        // A prefix can by chance be a smaller valid message; none may panic.
        let _ = Import::decode(&whole[..cut], None, &Narrowing::default(), &Grant::unlimited());
    }
    let error = Import::decode(b"not a model at all", None, &Narrowing::default(), &Grant::unlimited())
        .err()
        .unwrap();
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
}

#[test]
fn a_few_bytes_that_describe_terabytes_are_refused_before_they_are_made() {
    let side = 1 << 20;
    let graph = GraphProto {
        node: vec![
            node("ConstantOfShape", &["shape"], &["huge"]),
            node("ReduceSum", &["huge"], &["sum"]),
            node("Add", &["x", "sum"], &["y"]),
        ],
        initializer: vec![longs("shape", &[2], &[side, side])],
        input: vec![value("x", DType::F32, &["1"])],
        output: vec![value("y", DType::F32, &[])],
        ..Default::default()
    };
    let error =
        Import::decode(&model(graph.clone()), None, &Narrowing::default(), &largest(1 << 30)).err().unwrap();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    // The same size, out of a shape that the file does not tell.
    let mut padded = graph;
    padded.node = vec![node("MatMul", &["column", "row"], &["y"])];
    padded.input = vec![value("column", DType::F32, &["n", "1"]), value("row", DType::F32, &["1", "n"])];
    let import = Import::decode(&model(padded), None, &Narrowing::default(), &largest(1 << 20)).unwrap();
    let shapes = [smallvec![1024, 1], smallvec![1, 1024]];
    let error = import.lowered(&shapes, true, &largest(1 << 20)).err().unwrap();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

/// A grant of whatever is asked for, with a bound on the size of values.
fn largest(bytes: u64) -> Grant {
    Grant::new(bytes, |_| Ok(Box::new(())))
}

#[test]
fn axes_of_one_name_have_one_size() {
    let mut graph = add_one();
    graph.node[0].input[1] = "z".into();
    graph.input.push(value("z", DType::F32, &["batch", "2"]));
    let import = import(graph).unwrap();
    let error = run(&import, &[f32s(&[1, 2], &[0.0; 2]), f32s(&[3, 2], &[0.0; 6])]).unwrap_err();
    assert_eq!(error.to_string(), "axis `batch` is 1 in input `x` and 3 in input `z`; both are one size");
}

/// y = f(x, w), w of 128 × 128 numbers.
pub(super) fn with_large(nodes: Vec<NodeProto>) -> GraphProto {
    GraphProto {
        node: nodes,
        initializer: vec![floats("w", &[128, 128], &(0..128 * 128).map(|at| at as f32).collect::<Vec<_>>())],
        input: vec![value("x", DType::F32, &["batch", "128"])],
        output: vec![value("y", DType::F32, &["batch", "128"])],
        ..Default::default()
    }
}

fn in_a_file(graph: GraphProto) -> (temp_dir::TempDir, Import) {
    let dir = temp_dir::TempDir::new().unwrap();
    std::fs::write(dir.child("model.onnx"), model(graph)).unwrap();
    let import = Import::open(&dir.child("model.onnx"), &Narrowing::default(), &Grant::unlimited()).unwrap();
    (dir, import)
}

/// The constants of our graph.
pub(super) fn constants(import: &Import) -> Vec<crate::graph::Data> {
    let Lowered::Graph(graph) = import.lowered(&[smallvec![4, 128]], false, &Grant::unlimited()).unwrap().0
    else {
        panic!("planned")
    };
    graph.values.into_iter().filter_map(|value| value.constant).collect()
}

#[test]
fn large_constants_stay_in_the_file() {
    use crate::graph::Data;
    let transposed = || vec![node("Transpose", &["w"], &["t"]), node("MatMul", &["x", "t"], &["y"])];
    let product = || vec![node("MatMul", &["x", "w"], &["y"])];
    for nodes in [product(), transposed()] {
        let (_dir, import) = in_a_file(with_large(nodes));
        assert_eq!(import.weights_bytes(), 0);
        assert!(matches!(&constants(&import)[..], [Data::File(_)]), "{:?}", constants(&import));
    }
    // As a `Constant` node, as those of nets exported from Paddle are.
    let mut graph = with_large(product());
    let mut constant = node("Constant", &[], &["w"]);
    let tensor = graph.initializer.pop();
    constant.attribute.push(AttributeProto {
        name: "value".into(),
        t: tensor,
        r#type: 4,
        ..Default::default()
    });
    graph.node.insert(0, constant);
    let (_dir, import) = in_a_file(graph);
    assert!(matches!(&constants(&import)[..], [Data::File(_)]), "{:?}", constants(&import));
}

#[test]
fn values_that_an_import_needs_are_read_for_it() {
    use crate::graph::Data;
    // tract computes what depends on constants alone.
    let nodes = vec![node("Neg", &["w"], &["n"]), node("MatMul", &["x", "n"], &["y"])];
    let (_dir, import) = in_a_file(with_large(nodes));
    assert!(matches!(&constants(&import)[..], [Data::Bytes(_)]), "{:?}", constants(&import));
    assert_eq!(import.weights_bytes(), 0);
    // tract cannot import a normalization whose numbers it does not see.
    let ones = vec![1.0; 8192];
    let graph = GraphProto {
        node: vec![node("BatchNormalization", &["x", "one", "one", "one", "one"], &["y"])],
        initializer: vec![floats("one", &[8192], &ones)],
        input: vec![value("x", DType::F32, &["batch", "8192"])],
        output: vec![value("y", DType::F32, &["batch", "8192"])],
        ..Default::default()
    };
    let (_dir, import) = in_a_file(graph);
    assert!(matches!(
        import.lowered(&[smallvec![2, 8192]], false, &Grant::unlimited()),
        Ok((Lowered::Graph(_), _))
    ));
    // A model that is run whole has them all.
    let (_dir, import) = in_a_file(with_large(vec![node("MatMul", &["x", "w"], &["y"])]));
    let y = run(&import, &[f32s(&[1, 128], &[1.0; 128])]).unwrap();
    assert_eq!(as_f32(&y[0])[1], (0..128).map(|row| (row * 128 + 1) as f32).sum::<f32>());
}

#[test]
fn a_file_that_was_cut_short_since_is_an_error_that_says_so() {
    let nodes = vec![node("Neg", &["w"], &["n"]), node("MatMul", &["x", "n"], &["y"])];
    let (dir, import) = in_a_file(with_large(nodes));
    std::fs::File::options().write(true).open(dir.child("model.onnx")).unwrap().set_len(1000).unwrap();
    let error = import.lowered(&[smallvec![4, 128]], false, &Grant::unlimited()).err().unwrap().to_string();
    assert!(error.starts_with("cannot read the weights `w`: "), "{error}");
    assert!(error.ends_with("has changed since the model was loaded"), "{error}");
}

#[test]
fn packed_weights_are_counted() {
    let side = 256;
    let weights: Vec<f32> = (0..side * side).map(|v| (v % 7) as f32).collect();
    let graph = GraphProto {
        node: vec![node("MatMul", &["x", "w"], &["y"])],
        initializer: vec![floats("w", &[side, side], &weights)],
        input: vec![value("x", DType::F32, &["batch", "256"])],
        output: vec![value("y", DType::F32, &["batch", "256"])],
        ..Default::default()
    };
    let import = import(graph).unwrap();
    let bytes = weights.len() * 4;
    assert_eq!(import.weights_bytes(), bytes);
    let reference = reference(&import, &[smallvec![4, 256]]).unwrap();
    assert!(reference.constant_bytes >= bytes, "{} of {bytes}", reference.constant_bytes);
}

#[test]
fn an_unknown_op_is_named_with_its_node() {
    let mut graph = add_one();
    graph.node[0].op_type = "FlashSprocket".into();
    let error = import(graph).err().unwrap();
    assert_eq!(error.to_string(), "the model uses ops that are not supported: FlashSprocket (node `Add_y`)");
}

#[test]
fn a_value_that_nothing_makes_is_named() {
    let mut graph = add_one();
    graph.initializer.clear();
    let error = import(graph).err().unwrap().to_string();
    assert!(error.contains("node `Add_y` reads the value `w`"), "{error}");
}

#[test]
fn a_panic_in_the_importer_becomes_an_error_that_names_the_node() {
    // tract takes the axis of a Flatten without looking.
    let mut graph = add_one();
    let mut unsound = node("Flatten", &["y"], &["z"]);
    unsound.attribute.push(AttributeProto { name: "axis".into(), i: 77, r#type: 2, ..Default::default() });
    graph.node.push(unsound);
    graph.output = vec![value("z", DType::F32, &["a", "b"])];
    let error =
        import(graph).and_then(|import| run(&import, &[f32s(&[1, 2], &[0.0, 1.0])]).map(drop)).unwrap_err();
    assert!(error.to_string().contains("Flatten_z"), "{error}");
}

#[test]
fn external_data_comes_from_the_models_own_folder_only() {
    let dir = temp_dir::TempDir::new().unwrap();
    let inside = dir.path().join("model");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(dir.path().join("secret"), 9f32.to_le_bytes()).unwrap();
    std::fs::write(inside.join("weights"), 1f32.to_le_bytes()).unwrap();
    std::os::unix::fs::symlink("../secret", inside.join("link")).unwrap();
    let load = |location: &str| {
        let mut graph = add_one();
        let tensor = &mut graph.initializer[0];
        tensor.float_data.clear();
        tensor.data_location = Some(1);
        tensor.external_data.push(super::tract::pb::StringStringEntryProto {
            key: "location".into(),
            value: location.into(),
        });
        std::fs::write(inside.join("model.onnx"), model(graph)).unwrap();
        Import::open(&inside.join("model.onnx"), &Narrowing::default(), &Grant::unlimited())
    };
    let y = run(&load("weights").unwrap(), &[f32s(&[1, 2], &[0.0, 1.0])]).unwrap();
    assert_eq!(as_f32(&y[0]), [1.0, 2.0]);
    let absolute = dir.path().join("secret").to_string_lossy().into_owned();
    for outside in ["../secret", "link", "sub/../../secret", absolute.as_str(), "missing"] {
        assert!(load(outside).is_err(), "{outside}");
    }
}

#[test]
fn a_model_and_its_data_lie_within_the_repository_whatever_became_a_link() {
    let dir = temp_dir::TempDir::new().unwrap();
    let (root, elsewhere) = (dir.path().join("models"), dir.path().join("elsewhere"));
    for folder in [root.join("m"), elsewhere.clone()] {
        std::fs::create_dir_all(&folder).unwrap();
        let mut graph = add_one();
        let tensor = &mut graph.initializer[0];
        tensor.float_data.clear();
        tensor.data_location = Some(1);
        let location =
            super::tract::pb::StringStringEntryProto { key: "location".into(), value: "weights".into() };
        tensor.external_data.push(location);
        std::fs::write(folder.join("model.onnx"), model(graph)).unwrap();
        std::fs::write(folder.join("weights"), 1f32.to_le_bytes()).unwrap();
    }
    let open =
        |path: &Path| Import::again(path, Some(&root), &[], &Narrowing::default(), &Grant::unlimited());
    assert!(open(&root.join("m/model.onnx")).is_ok());
    std::os::unix::fs::symlink(&elsewhere, root.join("link")).unwrap();
    assert!(open(&root.join("link/model.onnx")).is_err(), "the folder is a link");
    // The model was opened before its folder became a link.
    let known = [Arc::new(DataFile::open(&elsewhere.join("model.onnx")).unwrap())];
    let narrowing = Narrowing::default();
    let again =
        Import::again(&root.join("link/model.onnx"), Some(&root), &known, &narrowing, &Grant::unlimited());
    assert!(again.is_err(), "its data lies elsewhere");
}

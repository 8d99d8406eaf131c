use super::*;
use crate::http::wire::response::{InferResponse, Output, encode};
use half::f16;
use plimsoll_engine::import::Dim;
use plimsoll_engine::tensor::Shape;
use proptest::prelude::*;
use std::time::Duration;

/// As [`super::decode`] where memory is no matter.
fn decode(
    body: Bytes,
    header_length: Option<usize>,
    signature: &Signature,
) -> Result<InferRequest, BadRequest> {
    super::decode(body, header_length, signature, &mut |_| true)
}

fn port(name: &str, dtype: DType, dims: &[Dim]) -> Port {
    Port { name: name.into(), dtype, dims: Some(dims.to_vec()) }
}

/// `image` FP32 [batch, 3] and `label` BYTES [batch] in; `score` FP32 [batch, 2] and `box` FP32 [?] out.
fn signature() -> Signature {
    let batch = || Dim::Named("batch".into());
    Signature {
        inputs: vec![
            port("image", DType::F32, &[batch(), Dim::Fixed(3)]),
            port("label", DType::Bytes, &[batch()]),
        ],
        outputs: vec![
            port("score", DType::F32, &[batch(), Dim::Fixed(2)]),
            port("box", DType::F32, &[Dim::Any]),
        ],
    }
}

/// One input `x` of this dtype and of any rank.
fn any_rank(dtype: DType) -> Signature {
    Signature { inputs: vec![Port { name: "x".into(), dtype, dims: None }], outputs: vec![] }
}

fn json(body: &str, signature: &Signature) -> Result<InferRequest, BadRequest> {
    decode(Bytes::copy_from_slice(body.as_bytes()), None, signature)
}

fn mixed(head: &str, tail: &[u8], signature: &Signature) -> Result<InferRequest, BadRequest> {
    decode(Bytes::from([head.as_bytes(), tail].concat()), Some(head.len()), signature)
}

/// The one tensor of a request whose input `x` has this dtype, shape and data.
fn one(dtype: DType, shape: &str, data: &str) -> Result<Tensor, String> {
    let body = format!(
        r#"{{"inputs": [{{"name": "x", "shape": {shape}, "datatype": "{}", "data": {data}}}]}}"#,
        dtype.name()
    );
    let request = json(&body, &any_rank(dtype)).map_err(|error| error.to_string())?;
    Ok(request.inputs.into_iter().next().unwrap())
}

const IMAGE: &str = r#"{"name": "image", "shape": [1, 3], "datatype": "FP32", "data": [1, 2.5, -3e2]}"#;
const LABEL: &str = r#"{"name": "label", "shape": [1], "datatype": "BYTES", "data": ["ship"]}"#;

#[test]
fn inputs_come_in_the_order_of_the_signature_whatever_the_order_of_the_request() {
    let request = json(&format!(r#"{{"id": "7\n", "inputs": [{LABEL}, {IMAGE}]}}"#), &signature()).unwrap();
    assert_eq!(request.id.as_deref(), Some("7\n"));
    assert_eq!(
        request.inputs,
        [
            Tensor::from_slice(DType::F32, &[1, 3], &[1f32, 2.5, -300.0]).unwrap(),
            Tensor::text(Shape::from_slice(&[1]), vec!["ship".into()]).unwrap(),
        ]
    );
    assert_eq!(request.parameters, Parameters::default());
}

#[test]
fn all_outputs_are_wanted_as_json_where_none_is_named() {
    for outputs in ["", r#", "outputs": []"#, r#", "outputs": null"#] {
        let request = json(&format!(r#"{{"inputs": [{IMAGE}, {LABEL}]{outputs}}}"#), &signature()).unwrap();
        let all = [WantedOutput { index: 0, binary: false }, WantedOutput { index: 1, binary: false }];
        assert_eq!(request.outputs, all);
    }
}

#[test]
fn an_output_s_own_binary_data_wins_over_the_request_s() {
    let body = format!(
        r#"{{"parameters": {{"binary_data_output": true}}, "inputs": [{IMAGE}, {LABEL}],
            "outputs": [{{"name": "box"}}, {{"name": "score", "parameters": {{"binary_data": false}}}}]}}"#
    );
    let request = json(&body, &signature()).unwrap();
    let wanted = [WantedOutput { index: 1, binary: true }, WantedOutput { index: 0, binary: false }];
    assert_eq!(request.outputs, wanted);
}

#[test]
fn timeouts_are_microseconds_and_zero_means_the_model_s_own() {
    let with = |parameters: &str| {
        let body = format!(r#"{{"parameters": {parameters}, "inputs": [{IMAGE}, {LABEL}]}}"#);
        json(&body, &signature()).unwrap().parameters
    };
    let parameters = with(r#"{"timeout": 1500, "priority": 2}"#);
    assert_eq!(parameters.timeout, Some(Duration::from_micros(1500)));
    assert_eq!(parameters.priority, Some(2));
    assert_eq!(with(r#"{"timeout": 0, "priority": 0}"#), Parameters::default());
    assert_eq!(with(r#"{"timeout": null, "sequence_id": 3, "mine": {"deep": []}}"#), Parameters::default());
}

#[test]
fn members_that_the_protocol_does_not_know_are_ignored() {
    let body = format!(r#"{{"model_name": "m", "x": [{{}}], "inputs": [{IMAGE}, {LABEL}]}}"#);
    assert!(json(&body, &signature()).is_ok());
}

#[test]
fn json_and_binary_inputs_mix_and_binary_ones_share_the_body() {
    let head = r#"{"inputs": [
        {"name": "label", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 8}},
        {"name": "image", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}]}"#;
    let numbers: Vec<u8> = [1f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let tail = [&4u32.to_le_bytes()[..], b"ship", &numbers].concat();
    let body = Bytes::from([head.as_bytes(), &tail].concat());
    let request = decode(body.clone(), Some(head.len()), &signature()).unwrap();
    let image = request.inputs[0].as_bytes().unwrap();
    assert_eq!(image[..], numbers[..]);
    assert_eq!(image.as_ptr(), body[head.len() + 8..].as_ptr());
    assert_eq!(request.inputs[1].as_text().unwrap(), ["ship"]);

    let head = format!(
        r#"{{"inputs": [{LABEL},
            {{"name": "image", "shape": [1, 3], "datatype": "FP32", "parameters": {{"binary_data_size": 12}}}}]}}"#
    );
    assert_eq!(mixed(&head, &numbers, &signature()).unwrap().inputs, request.inputs);
}

#[test]
fn what_is_read_ahead_of_the_tensors_is_what_the_whole_says_and_a_fault_is_left_to_it() {
    let head = r#"{"parameters": {"timeout": 1500}, "inputs": [
        {"name": "label", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 8}},
        {"name": "image", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}]}"#;
    let before = ahead(head.as_bytes(), &signature()).unwrap();
    assert_eq!(before.shapes, [Shape::from_slice(&[1, 3]), Shape::from_slice(&[1])]);
    assert_eq!(before.timeout, Some(Duration::from_micros(1500)));
    let faults = [
        head[..head.len() - 1].to_owned(),
        head.replace("label", "lable"),
        head.replace("[1, 3]", "[1, 4]"),
        head.replace("FP32", "FP64"),
        head.replace(r#""shape": [1],"#, ""),
        head.replace("1500", "-1"),
        format!(r#"{{"inputs": [{LABEL}]}}"#),
        "{}".to_owned(),
    ];
    for fault in faults {
        assert!(ahead(fault.as_bytes(), &signature()).is_none(), "{fault}");
    }
}

#[test]
fn nested_and_flat_data_are_the_same_tensor() {
    for (shape, flat, nested) in [
        ("[2, 3]", "[1, 2, 3, 4, 5, 6]", "[[1, 2, 3], [4, 5, 6]]"),
        ("[2, 1, 2]", "[1,2,3,4]", "[ [[1,2]] ,\n[[3,4]] ]"),
        ("[1, 1]", "[9]", "[[9]]"),
        ("[2, 0]", "[]", "[[], []]"),
        ("[2, 0, 3]", "[]", "[[], []]"),
        ("[0, 3]", "[]", "[]"),
        ("[]", "[9]", "[9]"),
    ] {
        assert_eq!(one(DType::I32, shape, flat), one(DType::I32, shape, nested), "{shape} {nested}");
        assert!(one(DType::I32, shape, flat).is_ok(), "{shape} {flat}");
    }
}

#[test]
fn numbers_take_the_nearest_value_of_their_own_dtype() {
    let bits =
        |dtype, text: &str| one(dtype, "[1]", &format!("[{text}]")).unwrap().as_bytes().unwrap().to_vec();
    assert_eq!(bits(DType::F32, "0.1"), 0.1f32.to_le_bytes());
    assert_eq!(bits(DType::F32, "16777217"), 16777216f32.to_le_bytes());
    assert_eq!(bits(DType::F32, "3.4028235e38"), f32::MAX.to_le_bytes());
    assert_eq!(bits(DType::F64, "0.1"), 0.1f64.to_le_bytes());
    assert_eq!(bits(DType::F64, "2.2250738585072011e-308"), 2.225_073_858_507_201e-308_f64.to_le_bytes());
    assert_eq!(bits(DType::F16, "65519.9"), f16::MAX.to_le_bytes());
    assert_eq!(bits(DType::F16, "-1E-1"), f16::from_f32(-0.1).to_le_bytes());
    assert_eq!(bits(DType::U64, "18446744073709551615"), u64::MAX.to_le_bytes());
    assert_eq!(bits(DType::I64, "-9223372036854775808"), i64::MIN.to_le_bytes());
    assert_eq!(bits(DType::I8, "-0"), [0]);
    assert_eq!(bits(DType::Bool, "true"), [1]);
}

#[test]
fn strings_keep_their_escapes_and_brackets() {
    let tensor = one(DType::Bytes, "[2, 2]", r#"[["a\"]", "\u00e9\ud83d\ude00"], ["", "[1, {"]]"#).unwrap();
    assert_eq!(tensor.as_text().unwrap(), ["a\"]", "é😀", "", "[1, {"]);
}

#[test]
fn an_element_that_is_not_of_the_dtype_is_named_with_the_range() {
    let cases = [
        (DType::U8, "[1, 256]", "`data[1]` must be an integer from 0 to 255, got 256"),
        (DType::U8, "[-1, 0]", "`data[0]` must be an integer from 0 to 255, got -1"),
        (DType::I8, "[1, 128]", "`data[1]` must be an integer from -128 to 127, got 128"),
        (DType::I32, "[1.0, 2]", "`data[0]` must be an integer from -2147483648 to 2147483647, got 1.0"),
        (
            DType::I64,
            "[1e2, 2]",
            "must be an integer from -9223372036854775808 to 9223372036854775807, got 1e2",
        ),
        (
            DType::U64,
            "[18446744073709551616, 2]",
            "must be an integer from 0 to 18446744073709551615, got 18446744073709551616",
        ),
        (DType::F16, "[1, 65520]", "`data[1]` must be a number from -65504 to 65504, got 65520"),
        (DType::F32, "[1, 1e39]", "`data[1]` must be a number from -3.4028235e38 to 3.4028235e38, got 1e39"),
        (
            DType::F64,
            "[1, -1e309]",
            "must be a number from -1.7976931348623157e308 to 1.7976931348623157e308, got -1e309",
        ),
        (DType::F32, "[1, null]", "`data[1]` must be a number from -3.4028235e38 to 3.4028235e38, got null"),
        (
            DType::F32,
            r#"["1", 2]"#,
            r#"`data[0]` must be a number from -3.4028235e38 to 3.4028235e38, got "1""#,
        ),
        (DType::Bool, "[true, 1]", "`data[1]` must be true or false, got 1"),
        (DType::Bytes, r#"["a", 1]"#, "`data[1]` must be a string, got 1"),
        (DType::Bytes, r#"["a", "\ud800"]"#, r#"`data[1]` must be a string, got "\ud800""#),
        (
            DType::F32,
            r#"[1, {"a": [2]}]"#,
            r#"`data[1]` must be a number from -3.4028235e38 to 3.4028235e38, got an object"#,
        ),
    ];
    for (dtype, data, message) in cases {
        let error = one(dtype, "[2]", data).unwrap_err();
        assert!(error.starts_with("input `x`: ") && error.ends_with(message), "{error}");
    }
}

#[test]
fn data_that_does_not_follow_the_shape_is_refused_with_both_counts() {
    for (shape, data, message) in [
        ("[2, 2]", "[1, 2, 3]", "input `x`: shape [2, 2] has 4 elements, got 3"),
        ("[2, 2]", "[1, 2, 3, 4, 5]", "input `x`: shape [2, 2] has 4 elements, got 5"),
        ("[]", "[]", "input `x`: shape [] has 1 elements, got 0"),
        (
            "[18446744073709551615]",
            "[1]",
            "input `x`: shape [18446744073709551615] has 18446744073709551615 elements, got 1",
        ),
        (
            "[2, 2]",
            "[[1, 2, 3], [4]]",
            "input `x`: `data` is nested and has 3 entries along axis 1, where the shape [2, 2] has 2",
        ),
        (
            "[2, 2]",
            "[[1, 2]]",
            "input `x`: `data` is nested and has 1 entries along axis 0, where the shape [2, 2] has 2",
        ),
        (
            "[2, 2]",
            "[[1, 2], 3]",
            "input `x`: `data` is nested to depth 1 at element 2, where the shape [2, 2] has 2 axes",
        ),
        (
            "[4]",
            "[[1, 2], [3, 4]]",
            "input `x`: `data` is nested to depth 2 at element 0, where the shape [4] has 1 axes",
        ),
        (
            "[2, 2]",
            "[1, [2], 3]",
            "input `x`: `data` is nested to depth 2 at element 1, where the shape [2, 2] has 2 axes",
        ),
        ("[]", "[[1]]", "input `x`: `data` is nested to depth 2 at element 0, where the shape [] has 0 axes"),
        ("[]", "1", "input `x`: `data` must be an array, got 1"),
        ("[1]", r#"{"0": 1}"#, r#"input `x`: `data` must be an array, got an object"#),
        (
            "[18446744073709551615, 2]",
            "[1]",
            "input `x`: shape [18446744073709551615, 2] has more elements than can be addressed",
        ),
    ] {
        assert_eq!(one(DType::I32, shape, data).unwrap_err(), message, "{shape} {data}");
    }
}

#[test]
fn a_bad_request_names_the_field_what_was_expected_and_what_came() {
    let input = |rest: &str| format!(r#"{{"inputs": [{{"name": "image"{rest}}}]}}"#);
    let rest = |rest: &str| format!(r#"{{"inputs": [{IMAGE}, {LABEL}], {rest}}}"#);
    for (body, message) in [
        (String::new(), "the body: empty, expected a JSON object"),
        (
            "[]".into(),
            "the body: not an inference request: invalid type: sequence, expected an inference request object at line 1 column 0",
        ),
        ("{".into(), "the body: not an inference request: EOF while parsing an object at line 1 column 1"),
        (
            r#"{"inputs": []}{"#.into(),
            "the body: not an inference request: trailing characters at line 1 column 15 \
             (binary tensors need the header `Inference-Header-Content-Length`)",
        ),
        (r#"{"inputs": [], "inputs": []}"#.into(), "the body: not an inference request: duplicate field `inputs` at line 1 column 23"),
        ("{}".into(), "the request: `inputs` is missing"),
        (r#"{"inputs": null}"#.into(), "the request: `inputs` is missing"),
        (
            r#"{"inputs": 3}"#.into(),
            "the body: not an inference request: invalid type: integer `3`, expected `inputs` to be an array of objects at line 1 column 12",
        ),
        (
            r#"{"inputs": [3]}"#.into(),
            "the body: not an inference request: invalid type: integer `3`, expected an input object at line 1 column 13",
        ),
        (r#"{"inputs": [{}]}"#.into(), "inputs[0]: `name` is missing"),
        (r#"{"inputs": [{"name": 5}]}"#.into(), "inputs[0]: `name` must be a string, got 5"),
        (r#"{"inputs": [{"name": "imagf"}]}"#.into(), "input `imagf`: unknown; the model has `image`, `label`"),
        (input(""), "input `image`: `datatype` is missing"),
        (input(r#", "datatype": 1"#), "input `image`: `datatype` must be a string, got 1"),
        (
            input(r#", "datatype": "fp32""#),
            "input `image`: `datatype` is `fp32`, expected one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, \
             INT32, INT64, FP16, FP32, FP64, BYTES",
        ),
        (input(r#", "datatype": "FP32""#), "input `image`: `shape` is missing"),
        (
            input(r#", "datatype": "FP32", "shape": 3"#),
            "input `image`: `shape` must be an array of non-negative integers, got 3",
        ),
        (
            input(r#", "datatype": "FP32", "shape": [1, -1]"#),
            "input `image`: `shape[1]` must be a non-negative integer, got -1",
        ),
        (
            input(r#", "datatype": "FP32", "shape": [18446744073709551616]"#),
            "input `image`: `shape[0]` must be a non-negative integer, got 18446744073709551616",
        ),
        (
            input(r#", "datatype": "FP32", "shape": [[1]]"#),
            "input `image`: `shape[0]` must be a non-negative integer, got an array",
        ),
        (input(r#", "datatype": "INT8", "shape": [1, 3]"#), "input `image` takes FP32, got INT8"),
        (input(r#", "datatype": "FP32", "shape": [1, 4]"#), "input `image` takes shape [batch, 3], got [1, 4]"),
        (
            input(r#", "datatype": "FP32", "shape": [1, 3]"#),
            "input `image`: neither `data` nor the parameter `binary_data_size` is given",
        ),
        (
            input(r#", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3], "parameters": {"binary_data_size": 12}"#),
            "input `image`: both `data` and the parameter `binary_data_size` are given, expected one of them",
        ),
        (
            input(r#", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 12}"#),
            "input `image`: `binary_data_size` is 12, but the body has 0 more bytes of binary data \
             (binary tensors need the header `Inference-Header-Content-Length`)",
        ),
        (
            input(r#", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": "12"}"#),
            r#"input `image`: `binary_data_size` must be a non-negative integer, got "12""#,
        ),
        (
            input(r#", "datatype": "FP32", "shape": [1, 3], "parameters": {"shared_memory_region": "r"}"#),
            "input `image`: the parameter `shared_memory_region` is not supported; send the tensor in the body",
        ),
        (
            input(r#", "datatype": "FP32", "shape": [1, 3], "parameters": []"#),
            "input `image`: `parameters` must be an object without repeated members, got []",
        ),
        (format!(r#"{{"inputs": [{IMAGE}]}}"#), "input `label`: missing; it takes BYTES of shape [batch]"),
        (format!(r#"{{"inputs": [{IMAGE}, {IMAGE}]}}"#), "input `image`: given twice"),
        (
            r#"{"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 3], "data": [1, NaN, 3]}]}"#.into(),
            "the body: not an inference request: expected value at line 1 column 80; \
             JSON has no NaN and no Infinity, send them as binary data",
        ),
        (
            r#"{"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 3], "data": [1, -Infinity, 3]}]}"#.into(),
            "the body: not an inference request: invalid number at line 1 column 81; \
             JSON has no NaN and no Infinity, send them as binary data",
        ),
        (rest(r#""id": 7"#), "the request: `id` must be a string, got 7"),
        (rest(r#""parameters": 7"#), "the request: `parameters` must be an object without repeated members, got 7"),
        (
            rest(r#""parameters": {"timeout": -5}"#),
            "the request: `timeout` must be a non-negative integer, got -5",
        ),
        (
            rest(r#""parameters": {"timeout": 1.5}"#),
            "the request: `timeout` must be a non-negative integer, got 1.5",
        ),
        (
            rest(r#""parameters": {"binary_data_output": 1}"#),
            "the request: `binary_data_output` must be true or false, got 1",
        ),
        (rest(r#""outputs": [{}]"#), "outputs[0]: `name` is missing"),
        (rest(r#""outputs": [{"name": "scores"}]"#), "output `scores`: unknown; the model has `score`, `box`"),
        (rest(r#""outputs": [{"name": "box"}, {"name": "box"}]"#), "output `box`: given twice"),
        (
            rest(r#""outputs": [{"name": "box", "parameters": {"classification": 3}}]"#),
            "output `box`: the parameter `classification` is not supported; take the tensor and rank it in the client",
        ),
        (
            rest(r#""outputs": [{"name": "box", "parameters": {"shared_memory_region": "r"}}]"#),
            "output `box`: the parameter `shared_memory_region` is not supported; take the tensor from the answer's body",
        ),
    ] {
        assert_eq!(json(&body, &signature()).unwrap_err().to_string(), message, "{body}");
    }
}

#[test]
fn binary_bytes_that_disagree_with_the_shape_or_the_body_are_refused_with_both_counts() {
    let head = |dtype: DType, size: usize| {
        format!(
            r#"{{"inputs": [{{"name": "x", "shape": [2], "datatype": "{dtype}", "parameters": {{"binary_data_size": {size}}}}}]}}"#
        )
    };
    for (dtype, size, tail, message) in [
        (DType::I16, 3, &[0; 3][..], "input `x`: shape [2] of INT16 takes 4 bytes, got 3"),
        (
            DType::I16,
            4,
            &[0; 3],
            "input `x`: `binary_data_size` is 4, but the body has 3 more bytes of binary data",
        ),
        (DType::I16, 4, &[0; 6], "the body: 2 bytes follow the last binary tensor, expected none"),
        (DType::Bool, 2, &[1, 2], "input `x`: element 1 of a bool tensor is the byte 2, expected 0 or 1"),
        (DType::Bytes, 5, &[1, 0, 0, 0, b'a'], "input `x`: shape [2] has 2 elements, got 1"),
        (DType::Bytes, 12, &[0; 12], "input `x`: shape [2] has 2 elements, got 3"),
        (DType::Bytes, 6, &[0; 6], "input `x`: element 1 is cut off: 2 bytes are left for its 4-byte length"),
        (
            DType::Bytes,
            9,
            &[0, 0, 0, 0, 9, 0, 0, 0, b'a'],
            "input `x`: element 1 claims 9 bytes of text, but 1 are left of its `binary_data_size`",
        ),
        (
            DType::Bytes,
            6,
            &[2, 0, 0, 0, b'a', 0xff],
            "input `x`: element 0 is not UTF-8 at byte 1, expected text",
        ),
    ] {
        let error = mixed(&head(dtype, size), tail, &any_rank(dtype)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_header_length_that_disagrees_with_the_body_is_refused() {
    let decode =
        |header| decode(Bytes::from_static(b"{}\xff"), header, &signature()).unwrap_err().to_string();
    assert_eq!(
        decode(Some(9)),
        "the header `Inference-Header-Content-Length`: 9 bytes of JSON, but the body has only 3 bytes"
    );
    assert_eq!(
        decode(Some(0)),
        "the header `Inference-Header-Content-Length`: 0, but tensors without a JSON description are not supported; \
         give the JSON's length in bytes"
    );
    assert_eq!(
        decode(Some(1)),
        "the body: not an inference request: EOF while parsing an object at line 1 column 1"
    );
    assert_eq!(decode(Some(3)), "the body: not UTF-8 at byte 2, expected JSON");
    assert_eq!(
        decode(None),
        "the body: not UTF-8 at byte 2, expected JSON (binary tensors need the header `Inference-Header-Content-Length`)"
    );
}

#[test]
fn what_a_client_sends_does_not_make_errors_or_memory_long() {
    let long = "n".repeat(100_000);
    let entries = "{},".repeat(100_000);
    let axes = "0,".repeat(100_000);
    let brackets = "[".repeat(100_000);
    for body in [
        format!(r#"{{"inputs": [{{"name": "{long}"}}]}}"#),
        format!(r#"{{"inputs": "{long}"}}"#),
        format!(r#"{{"inputs": [{entries}{{}}]}}"#),
        format!(r#"{{"id": {{"{long}": 1}}, "inputs": []}}"#),
        format!(r#"{{"inputs": [{{"name": "image", "datatype": "FP32", "shape": [{axes}0]}}]}}"#),
        format!(r#"{{"inputs": [{{"name": "image", "datatype": "{long}"}}]}}"#),
        format!(r#"{{"inputs": [{{"name": "image", "datatype": "FP32", "shape": [1, 3], "data": {brackets}"#),
    ] {
        let error = json(&body, &signature()).unwrap_err().to_string();
        assert!(error.len() < 400, "{} bytes: {error:.200}", error.len());
    }
    let closing = "]".repeat(100_000);
    let error = one(DType::F32, "[1, 3]", &format!("{brackets}{closing}")).unwrap_err();
    assert_eq!(
        error,
        "input `x`: `data` is nested to depth 3 at element 0, where the shape [1, 3] has 2 axes"
    );
}

/// Any tensor of this dtype that JSON can hold: up to three axes of up to four, every finite value.
fn tensor(dtype: DType) -> impl Strategy<Value = Tensor> {
    proptest::collection::vec(0usize..5, 0..4).prop_flat_map(move |shape| {
        let count = shape.iter().product::<usize>();
        let shape = Shape::from_vec(shape);
        let Some(size) = dtype.size_bytes() else {
            let strings = proptest::collection::vec(any::<String>(), count);
            return strings.prop_map(move |strings| Tensor::text(shape.clone(), strings).unwrap()).boxed();
        };
        let bytes = proptest::collection::vec(any::<u8>(), count * size);
        let tensor = bytes.prop_map(move |bytes| {
            let bytes = finite(dtype, bytes);
            Tensor::plain(dtype, shape.clone(), Bytes::from(bytes)).unwrap()
        });
        tensor.boxed()
    })
}

/// Random bytes made into values that JSON can hold.
fn finite(dtype: DType, mut bytes: Vec<u8>) -> Vec<u8> {
    let Some(size) = dtype.size_bytes() else { return bytes };
    for element in bytes.chunks_exact_mut(size) {
        match dtype {
            DType::Bool => element[0] &= 1,
            // Clearing the top bit of the exponent leaves neither NaN nor infinity.
            DType::F16 | DType::F32 | DType::F64 => element[size - 1] &= 0b1011_1111,
            _ => {}
        }
    }
    bytes
}

fn any_tensor() -> impl Strategy<Value = Tensor> {
    proptest::sample::select(DType::ALL.to_vec()).prop_flat_map(tensor)
}

/// The body of a request that brings these tensors as `x0`, `x1` …, made of an answer's body, whose form is the same.
fn request_of(tensors: &[(Tensor, bool)]) -> (Vec<u8>, Option<usize>, Signature) {
    let names: Vec<String> = (0..tensors.len()).map(|index| format!("x{index}")).collect();
    let outputs =
        names.iter().zip(tensors).map(|(name, (tensor, binary))| Output { name, tensor, binary: *binary });
    let answer =
        InferResponse { model_name: "m", model_version: "1", id: Some("\"id\""), outputs: outputs.collect() };
    let encoded = encode(&answer).unwrap();
    let (from, to) = (&br#""outputs":"#[..], &br#""inputs":"#[..]);
    let at = encoded.body.windows(from.len()).position(|window| window == from).unwrap();
    let body = [&encoded.body[..at], to, &encoded.body[at + from.len()..]].concat();
    let port = |(name, (tensor, _)): (&String, &(Tensor, bool))| Port {
        name: name.clone(),
        dtype: tensor.dtype(),
        dims: None,
    };
    let inputs = names.iter().zip(tensors).map(port).collect();
    (body, encoded.header_length.map(|length| length - 1), Signature { inputs, outputs: vec![] })
}

/// The nested form of flat JSON entries.
fn nest(entries: &[String], shape: &[usize]) -> String {
    let Some((&axis, rest)) = shape.split_first() else { return entries[0].clone() };
    let step = entries.len() / axis.max(1);
    let inner: Vec<String> = (0..axis).map(|at| nest(&entries[at * step..(at + 1) * step], rest)).collect();
    format!("[{}]", inner.join(","))
}

proptest! {
    #[test]
    fn any_tensors_come_back_as_they_were_in_json_and_binary(
        tensors in proptest::collection::vec((any_tensor(), any::<bool>()), 1..4)
    ) {
        let (body, header_length, signature) = request_of(&tensors);
        let request = decode(Bytes::from(body), header_length, &signature).unwrap();
        let sent: Vec<Tensor> = tensors.into_iter().map(|(tensor, _)| tensor).collect();
        prop_assert_eq!(request.inputs, sent);
        prop_assert_eq!(request.id.as_deref(), Some("\"id\""));
    }

    #[test]
    fn any_nested_data_is_the_same_tensor_as_flat(shape in proptest::collection::vec(1usize..4, 1..5)) {
        let entries: Vec<String> = (0..shape.iter().product::<usize>()).map(|n| n.to_string()).collect();
        let text = format!("{shape:?}");
        let flat = one(DType::I64, &text, &format!("[{}]", entries.join(",")));
        prop_assert!(flat.is_ok());
        prop_assert_eq!(flat, one(DType::I64, &text, &nest(&entries, &shape)));
    }

    #[test]
    fn no_bytes_make_it_panic(
        body in proptest::collection::vec(any::<u8>(), 0..200), header in proptest::option::of(0usize..220)
    ) {
        prop_assert!(decode(Bytes::from(body), header, &signature()).is_err());
    }

    #[test]
    fn no_json_like_text_makes_it_panic(data in "[\\[\\]{},:\"\\\\a0-9.eE+\\- tnf]{0,40}", shape in "[\\[\\]0-9,]{0,12}") {
        for dtype in DType::ALL {
            let _ = one(dtype, &shape, &data);
            let _ = json::decode(&data, dtype, Shape::from_slice(&[2, 2]));
        }
        let _ = json::shape(&data);
    }

    #[test]
    fn a_truncated_or_damaged_body_is_an_error_or_a_request_and_never_a_panic(
        tensors in proptest::collection::vec((any_tensor(), any::<bool>()), 1..3),
        cut in any::<proptest::sample::Index>(),
        damage in any::<u8>(),
    ) {
        let (mut body, header_length, signature) = request_of(&tensors);
        let cut = cut.index(body.len());
        let short = Bytes::copy_from_slice(&body[..cut]);
        prop_assert!(decode(short, header_length, &signature).is_err());
        body[cut] ^= damage;
        let _ = decode(Bytes::from(body), header_length, &signature);
    }
}

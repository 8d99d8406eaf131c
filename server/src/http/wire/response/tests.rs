use super::*;
use plimsoll_engine::tensor::Shape;

fn answer<'a>(id: Option<&'a str>, outputs: Vec<Output<'a>>) -> InferResponse<'a> {
    InferResponse { model_name: "digits", model_version: "1", id, outputs }
}

fn out<'a>(name: &'a str, tensor: &'a Tensor, binary: bool) -> Output<'a> {
    Output { name, tensor, binary }
}

fn text(encoded: &Encoded) -> &str {
    str::from_utf8(&encoded.body).unwrap()
}

#[test]
fn an_answer_of_json_alone_has_no_header_length() {
    let scores = Tensor::from_slice(DType::F32, &[1, 3], &[0.1f32, 1.0, -2.5e-10]).unwrap();
    let labels = Tensor::text(Shape::from_slice(&[2]), vec!["a \"b\"".into(), "é\n".into()]).unwrap();
    let encoded =
        encode(&answer(Some("7\""), vec![out("y", &scores, false), out("label", &labels, false)])).unwrap();
    assert_eq!(encoded.header_length, None);
    assert_eq!(encoded.content_type(), "application/json");
    assert_eq!(
        text(&encoded),
        concat!(
            r#"{"model_name":"digits","model_version":"1","id":"7\"","outputs":["#,
            r#"{"name":"y","datatype":"FP32","shape":[1,3],"data":[0.1,1.0,-2.5e-10]},"#,
            r#"{"name":"label","datatype":"BYTES","shape":[2],"data":["a \"b\"","é\n"]}]}"#,
        )
    );
}

#[test]
fn binary_outputs_follow_the_json_in_order_and_the_header_length_parts_them() {
    let scores = Tensor::from_slice(DType::I16, &[2], &[1i16, -2]).unwrap();
    let flags = Tensor::from_slice(DType::Bool, &[2], &[1u8, 0]).unwrap();
    let labels = Tensor::text(Shape::from_slice(&[2]), vec!["ab".into(), String::new()]).unwrap();
    let outputs = vec![out("label", &labels, true), out("flag", &flags, false), out("y", &scores, true)];
    let encoded = encode(&answer(None, outputs)).unwrap();
    assert_eq!(encoded.content_type(), "application/octet-stream");
    let (json, tail) = encoded.body.split_at(encoded.header_length.unwrap());
    assert_eq!(
        str::from_utf8(json).unwrap(),
        concat!(
            r#"{"model_name":"digits","model_version":"1","outputs":["#,
            r#"{"name":"label","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":10}},"#,
            r#"{"name":"flag","datatype":"BOOL","shape":[2],"data":[true,false]},"#,
            r#"{"name":"y","datatype":"INT16","shape":[2],"parameters":{"binary_data_size":4}}]}"#,
        )
    );
    assert_eq!(tail, b"\x02\0\0\0ab\0\0\0\0\x01\0\xfe\xff");
}

#[test]
fn an_empty_binary_output_still_has_its_header_length() {
    let empty = Tensor::from_slice::<f32>(DType::F32, &[0, 4], &[]).unwrap();
    let encoded = encode(&answer(None, vec![out("y", &empty, true)])).unwrap();
    assert_eq!(encoded.header_length, Some(encoded.body.len()));
    assert!(text(&encoded).contains(r#""shape":[0,4],"parameters":{"binary_data_size":0}"#));
}

#[test]
fn numbers_are_written_in_the_fewest_digits_of_their_own_dtype() {
    let f16s: Vec<u8> = [0.1f32, 65504.0].iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
    for (tensor, data) in [
        (
            Tensor::from_slice(DType::F32, &[3], &[0.1f32, 1e20, f32::MIN_POSITIVE]),
            "[0.1,1e+20,1.1754944e-38]",
        ),
        (Tensor::from_slice(DType::F64, &[2], &[0.1f64, 1e300]), "[0.1,1e+300]"),
        (Tensor::plain(DType::F16, Shape::from_slice(&[2]), f16s.into()), "[0.099975586,65504.0]"),
        (Tensor::from_slice(DType::U64, &[1], &[u64::MAX]), "[18446744073709551615]"),
        (Tensor::from_slice(DType::I64, &[1], &[i64::MIN]), "[-9223372036854775808]"),
    ] {
        let tensor = tensor.unwrap();
        let encoded = encode(&answer(None, vec![out("y", &tensor, false)])).unwrap();
        assert!(text(&encoded).contains(&format!("\"data\":{data}}}")), "{}", text(&encoded));
    }
}

#[test]
fn what_json_cannot_hold_is_refused_with_the_way_out() {
    let numbers = Tensor::from_slice(DType::F32, &[3], &[1f32, f32::NAN, f32::INFINITY]).unwrap();
    let error = encode(&answer(None, vec![out("y", &numbers, false)])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "output `y`: element 1 is NaN, which JSON cannot hold; ask for this output with the parameter `binary_data`"
    );
    assert!(encode(&answer(None, vec![out("y", &numbers, true)])).is_ok());
}

#[test]
fn a_body_of_numbers_is_written_into_one_allocation() {
    let values: Vec<f32> = (0u16..10_000).map(|n| (f32::from(n) - 5000.0) / 7.0).collect();
    let tensor = Tensor::from_slice(DType::F32, &[values.len()], &values).unwrap();
    let answer = answer(None, vec![out("y", &tensor, false)]);
    assert!(encode(&answer).unwrap().body.len() <= capacity(&answer));
}

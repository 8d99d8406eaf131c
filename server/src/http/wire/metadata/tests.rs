use super::*;
use plimsoll_engine::tensor::DType;
use serde_json::{json, to_value};

fn signature() -> Signature {
    let batch = Dim::Named("batch".into());
    Signature {
        inputs: vec![
            Port {
                name: "image".into(),
                dtype: DType::F32,
                dims: Some(vec![batch, Dim::Any, Dim::Fixed(8)]),
            },
            Port { name: "hint".into(), dtype: DType::Bytes, dims: None },
        ],
        outputs: vec![Port { name: "digit".into(), dtype: DType::I64, dims: Some(vec![]) }],
    }
}

#[test]
fn model_metadata_tells_open_axes_as_minus_one() {
    let versions = ["1".to_string(), "2".to_string()];
    let metadata = to_value(ModelMetadata::new("digits", &versions, &signature())).unwrap();
    assert_eq!(
        metadata,
        json!({
            "name": "digits", "versions": ["1", "2"], "platform": "onnx_onnxv1",
            "inputs": [
                {"name": "image", "datatype": "FP32", "shape": [-1, -1, 8]},
                {"name": "hint", "datatype": "BYTES", "shape": [-1]},
            ],
            "outputs": [{"name": "digit", "datatype": "INT64", "shape": []}],
        })
    );
}

#[test]
fn a_model_s_configuration_has_triton_s_names_for_dtypes_and_numbers_for_sizes() {
    let signature = signature();
    let mut config = ModelConfig::new("digits", "model.onnx", &signature);
    config.parameters.insert("precision".into(), ConfigParameter { string_value: "fp16".into() });
    let config = to_value(config).unwrap();
    assert_eq!(config["max_batch_size"], 0);
    assert_eq!(config["input"][0]["data_type"], "TYPE_FP32");
    assert_eq!(config["input"][0]["dims"], json!([-1, -1, 8]));
    assert_eq!(config["input"][1]["data_type"], "TYPE_STRING");
    assert_eq!(config["output"][0]["dims"], json!([]));
    assert_eq!(config["instance_group"], json!([]));
    assert_eq!(config["parameters"], json!({"precision": {"string_value": "fp16"}}));
}

#[test]
fn the_server_names_the_extensions_that_it_speaks() {
    let server = to_value(ServerMetadata::THIS).unwrap();
    assert_eq!(server["name"], "plimsoll");
    assert_eq!(server["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(server["extensions"][0], "binary_tensor_data");
}

#[test]
fn index_entries_have_their_state_in_capitals() {
    let entry = IndexEntry {
        name: "digits".into(),
        version: "1".into(),
        state: ModelState::Unavailable,
        reason: "unloaded".into(),
    };
    let expected = json!({"name": "digits", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"});
    assert_eq!(to_value(entry).unwrap(), expected);
}

#[test]
fn statistics_have_triton_s_form() {
    let mut stats = ModelStats { name: "digits".into(), version: "1".into(), ..ModelStats::default() };
    stats.inference_stats.success = DurationStat { count: 2, ns: 3_005 };
    stats.batch_stats.push(BatchStats { batch_size: 8, ..BatchStats::default() });
    stats.memory_usage.push(MemoryUsage { kind: "GPU", id: 0, byte_size: 64 });
    let stats = to_value(Statistics { model_stats: vec![stats] }).unwrap();
    let none = json!({"count": 0, "ns": 0});
    assert_eq!(
        stats,
        json!({"model_stats": [{
            "name": "digits", "version": "1",
            "last_inference": 0, "inference_count": 0, "execution_count": 0,
            "inference_stats": {
                "success": {"count": 2, "ns": 3005}, "fail": none, "queue": none,
                "compute_input": none, "compute_infer": none, "compute_output": none,
                "cache_hit": none, "cache_miss": none,
            },
            "response_stats": {},
            "batch_stats": [
                {"batch_size": 8, "compute_input": none, "compute_infer": none, "compute_output": none},
            ],
            "memory_usage": [{"type": "GPU", "id": 0, "byte_size": 64}],
        }]})
    );
}

#[test]
fn repository_bodies_may_be_empty() {
    for body in [&b""[..], b"{}", br#"{"ready": null, "parameters": null, "more": [1]}"#] {
        assert_eq!(IndexRequest::parse(body).unwrap(), IndexRequest::default());
        assert_eq!(LoadRequest::parse(body).unwrap(), LoadRequest::default());
        assert_eq!(UnloadRequest::parse(body).unwrap(), UnloadRequest::default());
    }
}

#[test]
fn repository_bodies_say_what_the_extension_has_there() {
    assert!(IndexRequest::parse(br#"{"ready": true}"#).unwrap().ready);
    let unload = br#"{"parameters": {"unload_dependents": true}}"#;
    assert!(UnloadRequest::parse(unload).unwrap().unload_dependents);
    let load = br#"{"parameters": {"config": "{}", "file:1/model.onnx": "AA==", "mine": 1}}"#;
    assert_eq!(LoadRequest::parse(load).unwrap().overrides, ["config", "file:1/model.onnx"]);
}

#[test]
fn repository_bodies_that_are_not_what_the_extension_has_are_refused() {
    let index = |body: &[u8]| IndexRequest::parse(body).unwrap_err().to_string();
    assert_eq!(index(br#"{"ready": 1}"#), "`ready` must be true or false");
    assert_eq!(
        index(b"[true]"),
        "the body must be empty or a JSON object: invalid type: sequence, expected a map at line 1 column 0"
    );
    let unload = |body: &[u8]| UnloadRequest::parse(body).unwrap_err().to_string();
    assert_eq!(unload(br#"{"parameters": []}"#), "`parameters` must be an object");
    assert_eq!(
        unload(br#"{"parameters": {"unload_dependents": "no"}}"#),
        "`unload_dependents` must be true or false"
    );
    let load = LoadRequest::parse(b"\xff").unwrap_err().to_string();
    assert_eq!(load, "the body must be empty or a JSON object: expected value at line 1 column 1");
}

#[test]
fn an_error_is_one_sentence_under_error() {
    assert_eq!(to_value(ErrorBody { error: "no" }).unwrap(), json!({"error": "no"}));
}

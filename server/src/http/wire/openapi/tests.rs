use super::*;
use crate::http::Memory;
use crate::http::wire::metadata::{
    BatchStats, ErrorBody, IndexEntry, MemoryUsage, ModelConfig, ModelMetadata, ModelState, ModelStats,
    ServerMetadata, Statistics,
};
use crate::http::wire::request;
use crate::http::wire::response::{InferResponse, Output, encode};
use crate::load_line::LoadLine;
use crate::process;
use bytes::Bytes;
use plimsoll_engine::arena::{Arena, Lines};
use plimsoll_engine::import::{Dim, Port, Signature};
use plimsoll_engine::slab::{Fixed, What};
use plimsoll_engine::tensor::{DType, Tensor};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// What a node is, once its reference is followed.
fn follow<'a>(document: &'a Value, node: &'a Value) -> &'a Value {
    match node.get("$ref").and_then(Value::as_str) {
        Some(reference) => {
            let pointer = reference.strip_prefix('#').unwrap();
            follow(document, document.pointer(pointer).unwrap_or_else(|| panic!("{reference} leads nowhere")))
        }
        None => node,
    }
}

/// Calls `visit` with every node of a document.
fn each(node: &Value, visit: &mut impl FnMut(&Value)) {
    visit(node);
    match node {
        Value::Array(items) => items.iter().for_each(|item| each(item, visit)),
        Value::Object(members) => members.values().for_each(|member| each(member, visit)),
        _ => {}
    }
}

fn each_operation(document: &Value, mut visit: impl FnMut(&str, &Value)) {
    for (method, path) in operations().unwrap() {
        let operation = &document["paths"][&path][method.to_lowercase()];
        visit(&format!("{method} {path}"), operation);
    }
}

/// Memory to which something has happened.
fn arena() -> Arc<Arena> {
    let fixed = Fixed { ceiling: 1 << 20, headroom: 1 << 18, ..Fixed::default() };
    let lines = Lines { fixed, reserve: 1 << 16, lanes: 1, workspace: None, threads: 1, ..Lines::default() };
    let arena = Arena::take(&lines, || 1).unwrap();
    arena.record(What::Load, "digits:1", 1);
    arena
}

fn signature() -> Signature {
    Signature {
        inputs: vec![Port {
            name: "image".into(),
            dtype: DType::F32,
            dims: Some(vec![Dim::Any, Dim::Fixed(1), Dim::Fixed(8), Dim::Fixed(8)]),
        }],
        outputs: vec![Port { name: "digit".into(), dtype: DType::I64, dims: None }],
    }
}

#[test]
fn every_route_of_the_contract_is_described() {
    let operations: Vec<String> =
        operations().unwrap().into_iter().map(|(method, path)| format!("{method} {path}")).collect();
    let expected = [
        "GET /",
        "GET /metrics",
        "GET /openapi.json",
        "GET /page/{file}",
        "GET /v2",
        "GET /v2/health/live",
        "GET /v2/health/ready",
        "GET /v2/memory",
        "GET /v2/models/stats",
        "GET /v2/models/{model}",
        "GET /v2/models/{model}/config",
        "POST /v2/models/{model}/infer",
        "GET /v2/models/{model}/ready",
        "GET /v2/models/{model}/stats",
        "GET /v2/models/{model}/versions/{version}",
        "GET /v2/models/{model}/versions/{version}/config",
        "POST /v2/models/{model}/versions/{version}/infer",
        "GET /v2/models/{model}/versions/{version}/ready",
        "GET /v2/models/{model}/versions/{version}/stats",
        "POST /v2/repository/index",
        "POST /v2/repository/models/{model}/load",
        "POST /v2/repository/models/{model}/unload",
    ];
    assert_eq!(operations, expected);
}

#[test]
fn every_reference_leads_somewhere_and_every_component_is_used() {
    let document = document();
    let mut used = BTreeSet::new();
    each(&document, &mut |node| {
        if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
            follow(&document, node);
            used.insert(reference.to_owned());
        }
    });
    for kind in ["examples", "parameters", "headers", "responses", "schemas"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(used.contains(&reference), "{reference} is never used");
        }
    }
}

#[test]
fn every_answer_carries_a_request_id_and_every_error_a_sentence() {
    let document = document();
    each_operation(&document, |name, operation| {
        for (status, response) in operation["responses"].as_object().unwrap() {
            let response = follow(&document, response);
            assert!(response["headers"].get("x-request-id").is_some(), "{name} {status}");
            let retry = response["headers"].get("Retry-After").is_some();
            assert_eq!(retry, ["429", "503"].contains(&status.as_str()), "{name} {status}");
            let schema = &response["content"]["application/json"]["schema"]["$ref"];
            assert_eq!(schema == "#/components/schemas/Error", status != "200", "{name} {status}");
        }
    });
}

#[test]
fn every_operation_has_a_name_of_its_own_and_describes_no_bug_of_ours() {
    let mut names = BTreeSet::new();
    each_operation(&document(), |name, operation| {
        assert!(names.insert(operation["operationId"].as_str().unwrap().to_owned()), "{name}");
        assert!(operation["responses"].get("500").is_none(), "{name}");
        assert!(operation["responses"].get("405").is_some(), "{name}");
    });
}

#[test]
fn every_example_request_is_one_that_is_taken() {
    let document = document();
    let examples = document["components"]["examples"].as_object().unwrap();
    assert!(!examples.is_empty());
    for (name, example) in examples {
        let request =
            request::decode(Bytes::from(example["value"].to_string()), None, &signature(), &mut |_| true);
        assert!(request.is_ok(), "{name}: {}", request.unwrap_err());
    }
}

#[test]
fn datatypes_are_those_of_the_engine() {
    let described = &document()["components"]["schemas"]["DataType"]["enum"];
    assert_eq!(described, &serde_json::json!(DType::ALL.map(DType::name)));
}

/// Asserts that a body has the members that its schema describes, and no others, all the way down.
fn assert_described(document: &Value, schema: &Value, body: &Value, place: &str) {
    let schema = follow(document, schema);
    match body {
        Value::Array(items) => {
            items.iter().for_each(|item| assert_described(document, &schema["items"], item, place));
        }
        // An object whose members are not told may have any.
        Value::Object(members) if schema.get("properties").is_some() => {
            let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
            for name in required.iter().filter_map(Value::as_str) {
                assert!(members.contains_key(name), "{place}.{name} is required and not sent");
            }
            for (name, member) in members {
                let place = format!("{place}.{name}");
                let described = schema["properties"].get(name);
                assert!(described.is_some(), "{place} is sent and not described");
                assert_described(document, described.unwrap(), member, &place);
            }
        }
        _ => {}
    }
}

#[test]
fn every_body_that_is_sent_is_described() {
    let document = document();
    let check = |schema: &str, body: &dyn erased::Body| {
        assert_described(&document, &document["components"]["schemas"][schema], &body.value(), schema);
    };
    let signature = signature();
    let versions = ["1".to_string()];
    check("Error", &ErrorBody { error: "no" });
    check("Memory", &Memory::of(&arena(), &LoadLine::new(arena(), Box::new(process::resident)).look()));
    check("ServerMetadata", &ServerMetadata::THIS);
    check("ModelMetadata", &ModelMetadata::new("m", &versions, &signature));
    check("ModelConfig", &ModelConfig::new("m", "model.onnx", &signature));
    let entry =
        IndexEntry { name: "m".into(), version: "1".into(), state: ModelState::Ready, reason: String::new() };
    check("RepositoryIndex", &[entry]);
    let stats = ModelStats {
        batch_stats: vec![BatchStats::default()],
        memory_usage: vec![MemoryUsage { kind: "CPU", id: 0, byte_size: 1 }],
        ..ModelStats::default()
    };
    check("Statistics", &Statistics { model_stats: vec![stats] });
    let tensor = Tensor::from_slice(DType::U8, &[1], &[1u8]).unwrap();
    let outputs = vec![
        Output { name: "a", tensor: &tensor, binary: false },
        Output { name: "b", tensor: &tensor, binary: true },
    ];
    let answer =
        encode(&InferResponse { model_name: "m", model_version: "1", id: Some("7"), outputs }).unwrap();
    let json: Value = serde_json::from_slice(&answer.body[..answer.header_length.unwrap()]).unwrap();
    check("InferResponse", &json);
}

/// Lets bodies of different types be checked by one closure.
mod erased {
    use super::{Serialize, Value};

    pub(super) trait Body {
        fn value(&self) -> Value;
    }

    impl<T: Serialize> Body for T {
        fn value(&self) -> Value {
            serde_json::to_value(self).unwrap()
        }
    }
}

use super::*;
use crate::import::Grant;
use crate::import::tests::{model as encode, node, with_graph};
use crate::import::tract::pb::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

/// A constant of some dtype whose data is written in one of the ways that there are.
fn tensor() -> impl Strategy<Value = TensorProto> {
    let dims = prop::collection::vec(0i64..6, 0..4);
    (dims, 0..8, "[a-c]{0,3}", any::<u64>(), 0usize..3).prop_map(|(dims, way, name, seed, more)| {
        let elements = dims.iter().product::<i64>() as usize;
        let byte = |at: usize| (seed as usize).wrapping_mul(at + 1).wrapping_shr(7) as u8;
        let raw = |size: usize| (0..elements * size + more / 2).map(byte).collect::<Vec<u8>>();
        let mut tensor = TensorProto { dims, name, ..Default::default() };
        match way {
            0 => (tensor.data_type, tensor.raw_data) = (1, raw(4)),
            1 => (tensor.data_type, tensor.raw_data) = (7, raw(8)),
            2 => (tensor.data_type, tensor.raw_data) = (9, raw(1)),
            3 => (tensor.data_type, tensor.raw_data) = (10, raw(2)),
            4 => (tensor.data_type, tensor.float_data) = (1, (0..elements).map(|at| at as f32).collect()),
            5 => (tensor.data_type, tensor.double_data) = (11, (0..elements).map(|at| at as f64).collect()),
            6 => (tensor.data_type, tensor.int64_data) = (7, (0..elements).map(|at| at as i64).collect()),
            _ => (tensor.data_type, tensor.raw_data, tensor.data_location) = (1, raw(4), Some(more as i32)),
        }
        tensor
    })
}

fn constant(tensor: TensorProto, twice: bool) -> NodeProto {
    let attribute = AttributeProto { name: "value".into(), t: Some(tensor), r#type: 4, ..Default::default() };
    let mut constant = node("Constant", &[], &["c"]);
    constant.attribute = vec![attribute; 1 + usize::from(twice)];
    constant
}

fn graph() -> impl Strategy<Value = GraphProto> {
    let nodes = prop::collection::vec((tensor(), any::<bool>(), 0..4), 0..5);
    let nodes = nodes.prop_map(|nodes| {
        let one = |(tensor, twice, kind)| match kind {
            0 => node("Add", &["x", "y"], &["z"]),
            1 => with_graph(
                node("If", &["x"], &["z"]),
                "then_branch",
                GraphProto { initializer: vec![tensor], ..Default::default() },
            ),
            2 => NodeProto { op_type: "Other".into(), ..constant(tensor, twice) },
            _ => constant(tensor, twice),
        };
        nodes.into_iter().map(one).collect()
    });
    (prop::collection::vec(tensor(), 0..6), nodes).prop_map(|(initializer, node)| GraphProto {
        initializer,
        node,
        name: "g".into(),
        ..Default::default()
    })
}

/// What is taken out, put back as the decoder would have read it.
fn put_back(tensor: &mut TensorProto, data: &Data) {
    let bytes = data.load().unwrap();
    tensor.raw_data = bytes.to_vec();
}

/// All data as raw bytes, however it was written.
fn raw(tensor: &mut TensorProto) {
    let floats: Vec<u8> = tensor.float_data.drain(..).flat_map(f32::to_le_bytes).collect();
    let doubles: Vec<u8> = tensor.double_data.drain(..).flat_map(f64::to_le_bytes).collect();
    if !floats.is_empty() || !doubles.is_empty() {
        tensor.raw_data = [floats, doubles].concat();
    }
}

fn every_tensor(graph: &mut GraphProto, change: &mut dyn FnMut(&mut TensorProto)) {
    graph.initializer.iter_mut().for_each(&mut *change);
    for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        attribute.t.iter_mut().for_each(&mut *change);
        attribute.g.iter_mut().for_each(|inner| every_tensor(inner, change));
    }
}

proptest! {
    #[test]
    fn skeleton_and_ranges_are_the_whole_model(graph in graph(), threshold in 0usize..64) {
        let bytes = encode(graph);
        let skeleton = scan(&Data::Bytes(Bytes::from(bytes.clone())), threshold, &Grant::unlimited().staging()).unwrap();
        let mut whole = ModelProto::decode(&bytes[..]).unwrap();
        let mut rest = ModelProto::decode(&skeleton.message[..]).unwrap();
        let graph = rest.graph.as_mut().unwrap();
        for (at, data) in &skeleton.left_out {
            prop_assert!(data.len() > threshold);
            match at {
                At::Initializer(at) => put_back(&mut graph.initializer[*at], data),
                At::Node(at) => {
                    prop_assert_eq!(&graph.node[*at].op_type, "Constant");
                    let [attribute] = &mut graph.node[*at].attribute[..] else { panic!("one attribute") };
                    put_back(attribute.t.as_mut().unwrap(), data);
                }
            }
        }
        every_tensor(graph, &mut raw);
        every_tensor(whole.graph.as_mut().unwrap(), &mut raw);
        prop_assert_eq!(rest, whole);
    }

    #[test]
    fn what_is_malformed_is_an_error_or_left_to_the_decoder(
        graph in graph(),
        harm in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut bytes = encode(graph);
        for (at, value) in harm {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let cut = cut.index(bytes.len());
        for bytes in [bytes.clone(), bytes[..cut].to_vec(), noise] {
            if let Ok(skeleton) = scan(&Data::Bytes(Bytes::from(bytes.clone())), 4, &Grant::unlimited().staging()) {
                // What the scan lets pass is for the decoder to judge, who judges the whole alike.
                let (rest, whole) = (ModelProto::decode(&skeleton.message[..]), ModelProto::decode(&bytes[..]));
                prop_assert_eq!(rest.is_ok(), whole.is_ok());
            }
        }
    }
}

#[test]
fn what_is_said_of_bytes_that_are_no_model() {
    let reason = |bytes: &'static [u8]| {
        scan(&Data::Bytes(Bytes::from_static(bytes)), 4, &Grant::unlimited().staging())
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(reason(b""), None);
    assert_eq!(
        reason(b"\x3a\x7f\x00").as_deref(),
        Some("a field that reaches past its message's end at byte 0")
    );
    assert_eq!(reason(b"\x08\x80").as_deref(), Some("a number that is cut short at byte 2"));
    assert_eq!(reason(b"not a model").as_deref(), Some("a field of an unknown kind at byte 0"));
    assert_eq!(reason(b"\x00\x00").as_deref(), Some("a field without a number at byte 0"));
}

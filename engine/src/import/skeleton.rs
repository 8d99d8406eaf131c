//! A streaming scan of an ONNX file: everything but the data of large constants, and where in the file those are.
//!
//! The wire format of protobuf is a sequence of fields, each a tag (number and kind) and a value; a message is a field
//! that holds fields. Only the few messages on the way to a constant's data are looked into; all others are copied as
//! they are, and whatever is odd in them is left to the decoder's own judgement.

mod wire;

use super::convert::dtype_of_onnx;
use super::staging::Staging;
use crate::graph::Data;
use crate::tensor::DType;
use std::ops::Range;
use wire::{Field, Reader, Wire, put_varint};

pub(super) use wire::ScanError;

/// The least bytes of a constant whose data is left out; smaller ones cost less to hold than to fetch, and are what an
/// importer wants to know (shapes, scales, axes).
pub(super) const LARGE_BYTES: usize = 16 << 10;

/// Where in a graph a constant stands, counted over all of its graph's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    /// Among the initializers.
    Initializer(usize),
    /// Among the nodes; it is a `Constant` node.
    Node(usize),
}

/// A model without the data of its large constants.
pub(super) struct Skeleton {
    /// The model's message.
    pub(super) message: Vec<u8>,
    /// The data that the message lacks.
    pub(super) left_out: Vec<(At, Data)>,
}

/// Scans a model. A constant is left out where its data is one range of the file, is as long as its shape and dtype
/// say, and is larger than `threshold` bytes; graphs inside nodes are copied whole.
///
/// # Errors
/// The model or its graph is no message, the file cannot be read, or there is no memory for what is copied.
pub(super) fn scan(file: &Data, threshold: usize, staging: &Staging) -> Result<Skeleton, ScanError> {
    let reader = Reader::new(file, staging);
    let mut scan = Scan { reader, threshold, initializers: 0, nodes: 0, left_out: vec![] };
    let (mut message, mut at) = (vec![], 0);
    while at < file.len() {
        let field = scan.reader.field(at, file.len())?;
        match (field.number, field.wire) {
            (model::GRAPH, Wire::Bytes) => {
                let graph = scan.graph(field.value.clone())?;
                put_message(model::GRAPH, &graph, &mut message);
            }
            _ => scan.reader.copy(at..field.value.end, &mut message)?,
        }
        at = field.value.end;
    }
    Ok(Skeleton { message, left_out: scan.left_out })
}

/// Field numbers of `ModelProto`.
mod model {
    pub(super) const GRAPH: u64 = 7;
}

/// Field numbers of `GraphProto`.
mod graph {
    pub(super) const NODE: u64 = 1;
    pub(super) const INITIALIZER: u64 = 5;
}

/// Field numbers of `NodeProto`.
mod node {
    pub(super) const OP_TYPE: u64 = 4;
    pub(super) const ATTRIBUTE: u64 = 5;
}

/// Field numbers of `AttributeProto`.
mod attribute {
    pub(super) const TENSOR: u64 = 5;
}

/// Field numbers of `TensorProto`.
mod tensor {
    pub(super) const DIMS: u64 = 1;
    pub(super) const DATA_TYPE: u64 = 2;
    pub(super) const FLOAT_DATA: u64 = 4;
    pub(super) const RAW_DATA: u64 = 9;
    pub(super) const DOUBLE_DATA: u64 = 10;
    pub(super) const DATA_LOCATION: u64 = 14;
}

struct Scan<'a> {
    reader: Reader<'a>,
    threshold: usize,
    initializers: usize,
    nodes: usize,
    left_out: Vec<(At, Data)>,
}

/// A message without the data that it held, and that data.
type Stripped = (Vec<u8>, Data);

impl Scan<'_> {
    fn graph(&mut self, range: Range<usize>) -> Result<Vec<u8>, ScanError> {
        let (mut message, mut at) = (vec![], range.start);
        while at < range.end {
            let field = self.reader.field(at, range.end)?;
            let large = field.value.len() > self.threshold && field.wire == Wire::Bytes;
            let stripped = match field.number {
                graph::INITIALIZER if large => self.tensor(field.value.clone())?,
                graph::NODE if large => self.constant_node(field.value.clone())?,
                _ => None,
            };
            let place = match field.number {
                graph::INITIALIZER => At::Initializer(self.initializers),
                _ => At::Node(self.nodes),
            };
            match stripped {
                Some((inner, data)) => {
                    put_message(field.number, &inner, &mut message);
                    self.left_out.push((place, data));
                }
                None => self.reader.copy(at..field.value.end, &mut message)?,
            }
            self.initializers += usize::from(field.number == graph::INITIALIZER);
            self.nodes += usize::from(field.number == graph::NODE);
            at = field.value.end;
        }
        Ok(message)
    }

    /// A `Constant` node without its tensor's data; `None` where it is to be copied as it is.
    fn constant_node(&mut self, range: Range<usize>) -> Result<Option<Stripped>, ScanError> {
        let (mut message, mut at) = (vec![], range.start);
        let (mut constant, mut found) = (false, None);
        while at < range.end {
            let Ok(field) = self.reader.field(at, range.end) else { return Ok(None) };
            let large = field.value.len() > self.threshold;
            match (field.number, field.wire) {
                (node::ATTRIBUTE, Wire::Bytes) if large && found.is_none() => {
                    let Some((inner, data)) = self.attribute(field.value.clone())? else { return Ok(None) };
                    put_message(node::ATTRIBUTE, &inner, &mut message);
                    found = Some(data);
                }
                _ if large => return Ok(None),
                (number, wire) => {
                    if (number, wire) == (node::OP_TYPE, Wire::Bytes) {
                        let mut name = vec![];
                        self.reader.copy(field.value.clone(), &mut name)?;
                        constant = name == b"Constant";
                    }
                    self.reader.copy(at..field.value.end, &mut message)?;
                }
            }
            at = field.value.end;
        }
        Ok(found.filter(|_| constant).map(|data| (message, data)))
    }

    fn attribute(&mut self, range: Range<usize>) -> Result<Option<Stripped>, ScanError> {
        let (mut message, mut at, mut found) = (vec![], range.start, None);
        while at < range.end {
            let Ok(field) = self.reader.field(at, range.end) else { return Ok(None) };
            let large = field.value.len() > self.threshold;
            match (field.number, field.wire) {
                (attribute::TENSOR, Wire::Bytes) if large && found.is_none() => {
                    let Some((inner, data)) = self.tensor(field.value.clone())? else { return Ok(None) };
                    put_message(attribute::TENSOR, &inner, &mut message);
                    found = Some(data);
                }
                // A second tensor would be merged with the first.
                (attribute::TENSOR, _) => return Ok(None),
                _ if large => return Ok(None),
                _ => self.reader.copy(at..field.value.end, &mut message)?,
            }
            at = field.value.end;
        }
        Ok(found.map(|data| (message, data)))
    }

    fn tensor(&mut self, range: Range<usize>) -> Result<Option<Stripped>, ScanError> {
        let (mut message, mut at) = (vec![], range.start);
        let (mut dims, mut data_type, mut data): (Vec<u64>, u64, Option<Field>) = (vec![], 0, None);
        while at < range.end {
            let Ok(field) = self.reader.field(at, range.end) else { return Ok(None) };
            match (field.number, field.wire) {
                (tensor::RAW_DATA | tensor::FLOAT_DATA | tensor::DOUBLE_DATA, wire) => {
                    // Data in several parts would be put together by the decoder.
                    if wire != Wire::Bytes || data.is_some() {
                        return Ok(None);
                    }
                    data = Some(field.clone());
                }
                // Kept elsewhere, or too many axes to be one of ours.
                (tensor::DATA_LOCATION, _) => return Ok(None),
                _ if field.value.len() > self.threshold => return Ok(None),
                (number, wire) => {
                    let varints = match (number, wire) {
                        (tensor::DIMS | tensor::DATA_TYPE, Wire::Varint | Wire::Bytes) => {
                            self.reader.varints(field.value.clone())
                        }
                        _ => Ok(vec![]),
                    };
                    let Ok(varints) = varints else { return Ok(None) };
                    match number {
                        tensor::DIMS => dims.extend(varints),
                        tensor::DATA_TYPE => data_type = varints.last().copied().unwrap_or(data_type),
                        _ => {}
                    }
                    self.reader.copy(at..field.value.end, &mut message)?;
                }
            }
            at = field.value.end;
        }
        let Some(field) = data.filter(|field| field.value.len() > self.threshold) else { return Ok(None) };
        let dtype = i32::try_from(data_type).ok().and_then(|code| dtype_of_onnx(code).ok());
        let elements = dims.iter().try_fold(1usize, |product, &dim| {
            usize::try_from(dim).ok().and_then(|dim| product.checked_mul(dim))
        });
        let suits = match (field.number, dtype) {
            // A bool is whatever is not 0; strings have no raw form.
            (_, None | Some(DType::Bool | DType::Bytes)) => false,
            (tensor::RAW_DATA, _) => true,
            (tensor::FLOAT_DATA, dtype) => dtype == Some(DType::F32),
            (_, dtype) => dtype == Some(DType::F64),
        };
        let size = dtype.and_then(DType::size_bytes).filter(|_| suits);
        let bytes = size.zip(elements).and_then(|(size, elements)| elements.checked_mul(size));
        if bytes != Some(field.value.len()) {
            return Ok(None);
        }
        let data = self.reader.data().slice(field.value.start, field.value.len());
        Ok(data.map(|data| (message, data)))
    }
}

/// Appends a field that holds a message.
fn put_message(number: u64, message: &[u8], to: &mut Vec<u8>) {
    put_varint(number << 3 | 2, to);
    put_varint(message.len() as u64, to);
    to.extend_from_slice(message);
}

#[cfg(test)]
mod tests;

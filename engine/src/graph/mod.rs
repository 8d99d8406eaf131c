//! Our own graph: some twenty ops on tensors of known shape and dtype, in an order in which they can run.
//!
//! Axes are logical. How a tensor lies in memory is decided later, by the plan; so a change of axes, a slice or a
//! concatenation need not move a byte. Fusions rewrite a graph into a graph; devices never see this module's
//! constants before they have been packed.

mod attention;
mod builder;
pub(crate) mod chain;
mod check;
mod data;
mod dump;
mod op;
mod record;

pub use attention::{Additive, Attention, Mask, Roles};
pub use builder::Builder;
pub use chain::{Binary, Chain, Instr, Src, Unary};
pub use check::GraphError;
pub use data::{Data, DataFile, FileRange, Identity, Likeness, Part};
pub(crate) use dump::Text;
pub use op::{
    Conv, Einsum, Epilogue, HostStep, Image, Norm, Op, Pad, PadMode, Pool, PoolKind, Reducer, Taps, Window,
};

pub use record::GraphRecord;

use crate::tensor::{DType, Shape, volume};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A value of a [`Graph`], by its place in [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// What flows along an edge: an input, a constant, or what a node makes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Value {
    /// For reports; not unique.
    pub name: String,
    /// Element type; never [`DType::Bytes`], whose size is not known ahead.
    pub dtype: DType,
    /// Sizes of the logical axes, outermost first.
    pub shape: Shape,
    /// The elements of a constant, row-major.
    #[serde(skip)]
    pub constant: Option<Data>,
}

/// One operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// The name in the model's file, for reports and errors.
    pub name: String,
    /// What it does.
    pub op: Op,
    /// What it reads, in the order that [`Op`] documents.
    pub inputs: Vec<ValueId>,
    /// What it makes.
    pub outputs: Vec<ValueId>,
}

/// Operations in an order in which they can run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Graph {
    /// Every value, used or not.
    pub values: Vec<Value>,
    /// A node stands after those whose values it reads.
    pub nodes: Vec<Node>,
    /// The values that a caller brings, in the signature's order.
    pub inputs: Vec<ValueId>,
    /// The values that a caller gets, in the signature's order.
    pub outputs: Vec<ValueId>,
}

impl Value {
    /// Elements of the value.
    pub fn elements(&self) -> usize {
        volume(&self.shape).unwrap_or(usize::MAX)
    }

    /// Bytes of the value, without gaps.
    pub fn bytes(&self) -> usize {
        self.elements().saturating_mul(self.dtype.size_bytes().unwrap_or(0))
    }

    /// The elements of a small constant, as bytes: those in memory, or read from the file; `None` for a constant of
    /// more than `longest` elements, for no constant, and where reading fails (which packing will tell).
    pub fn small_bytes(&self, longest: usize) -> Option<Bytes> {
        let data = self.constant.as_ref().filter(|_| self.elements() <= longest)?;
        data.load().ok()
    }

    /// As [`Value::small_bytes`] for f32.
    pub fn small_floats(&self, longest: usize) -> Option<Vec<f32>> {
        let bytes = self.small_bytes(longest).filter(|_| self.dtype == DType::F32)?;
        let fours = bytes.chunks_exact(4);
        Some(fours.map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect())
    }

    /// The one number of an f32 constant in memory whose elements all are that number (up to 4096 of them are
    /// compared). Constants that are still in a file are longer than that.
    pub fn scalar(&self) -> Option<f32> {
        const LONGEST: usize = 4096;
        let Some(Data::Bytes(bytes)) = &self.constant else { return None };
        if self.dtype != DType::F32 || self.elements() > LONGEST {
            return None;
        }
        let first = bytes.get(..4)?;
        let alike = bytes.chunks_exact(4).all(|four| four == first);
        alike.then(|| f32::from_le_bytes([first[0], first[1], first[2], first[3]]))
    }
}

impl Value {
    /// Whether this is a constant of one element repeated.
    pub fn is_uniform(&self) -> bool {
        let bytes = self.constant.as_ref().and_then(|data| data.load().ok());
        let (Some(bytes), Some(size)) = (bytes, self.dtype.size_bytes()) else { return false };
        bytes.chunks_exact(size).all(|element| element == &bytes[..size])
    }
}

impl Graph {
    /// Adds a value.
    pub fn add_value(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId((self.values.len() - 1) as u32)
    }

    /// The value of that id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    /// The shape of a value.
    pub fn shape(&self, id: ValueId) -> &[usize] {
        &self.value(id).shape
    }

    /// For every value the nodes that read it; a node that reads it twice stands twice.
    pub fn readers(&self) -> Vec<Vec<usize>> {
        let mut readers = vec![vec![]; self.values.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            for input in &node.inputs {
                readers[input.0 as usize].push(at);
            }
        }
        readers
    }

    /// For every value the node that makes it.
    pub fn makers(&self) -> Vec<Option<usize>> {
        let mut makers = vec![None; self.values.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            for output in &node.outputs {
                makers[output.0 as usize] = Some(at);
            }
        }
        makers
    }

    /// Bytes of the constants that some node reads or that are outputs.
    pub fn constant_bytes(&self) -> usize {
        let mut seen = vec![false; self.values.len()];
        let ids = self.nodes.iter().flat_map(|node| &node.inputs).chain(&self.outputs);
        let fresh = ids.filter(|id| !std::mem::replace(&mut seen[id.0 as usize], true));
        fresh.filter(|id| self.value(**id).constant.is_some()).map(|id| self.value(*id).bytes()).sum()
    }

    /// Drops nodes whose values nobody reads, constants of no use included.
    pub fn prune(&mut self) {
        let mut wanted = vec![false; self.values.len()];
        for output in &self.outputs {
            wanted[output.0 as usize] = true;
        }
        let mut keep = vec![false; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate().rev() {
            keep[at] = node.outputs.iter().any(|id| wanted[id.0 as usize]);
            if keep[at] {
                for input in &node.inputs {
                    wanted[input.0 as usize] = true;
                }
            }
        }
        let mut at = 0;
        self.nodes.retain(|_| {
            at += 1;
            keep[at - 1]
        });
        for (value, wanted) in self.values.iter_mut().zip(wanted) {
            if !wanted {
                value.constant = None;
            }
        }
    }
}

//! Graphs written as expressions, for tests and for lowering.

use super::op::Op;
use super::{Data, Graph, Node, Value, ValueId};
use crate::tensor::DType;
use bytes::Bytes;

/// Adds one node after the other to a graph.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    graph: Graph,
}

impl Builder {
    /// An empty graph.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// An input.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> ValueId {
        let id = self.value(name, dtype, shape, None);
        self.graph.inputs.push(id);
        id
    }

    /// A constant from its row-major elements.
    pub fn constant(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[usize],
        elements: impl Into<Data>,
    ) -> ValueId {
        self.value(name, dtype, shape, Some(elements.into()))
    }

    /// An f32 constant.
    pub fn floats(&mut self, name: &str, shape: &[usize], floats: &[f32]) -> ValueId {
        self.constant(name, DType::F32, shape, Bytes::copy_from_slice(bytemuck::cast_slice(floats)))
    }

    /// A node with one output of that dtype and shape.
    pub fn node(&mut self, name: &str, op: Op, inputs: &[ValueId], dtype: DType, shape: &[usize]) -> ValueId {
        self.nodes(name, op, inputs, &[(dtype, shape)])[0]
    }

    /// A node with several outputs.
    pub fn nodes(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[ValueId],
        facts: &[(DType, &[usize])],
    ) -> Vec<ValueId> {
        let outputs: Vec<ValueId> =
            facts.iter().map(|(dtype, shape)| self.value(name, *dtype, shape, None)).collect();
        let node = Node { name: name.into(), op, inputs: inputs.to_vec(), outputs: outputs.clone() };
        self.graph.nodes.push(node);
        outputs
    }

    /// Drops the nodes from the `count`th on, for a caller that tries another way.
    pub fn forget_nodes_after(&mut self, count: usize) {
        self.graph.nodes.truncate(count);
    }

    /// What has been built so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The graph with these outputs.
    pub fn finish(mut self, outputs: &[ValueId]) -> Graph {
        self.graph.outputs = outputs.to_vec();
        self.graph
    }

    fn value(&mut self, name: &str, dtype: DType, shape: &[usize], constant: Option<Data>) -> ValueId {
        self.graph.add_value(Value { name: name.into(), dtype, shape: shape.into(), constant })
    }
}

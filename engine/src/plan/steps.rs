//! What a layout is made of: steps, the operands that they read and write, and the blocks that those lie in.

use super::product::Product;
use super::view::{Order, View};
use crate::graph::{Op, ValueId};
use crate::tensor::{DType, Shape, volume};

/// A block of the workspace, by its place in [`Layout::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId(pub u32);

/// A constant as it is to lie among the weights, by its place in [`Layout::constants`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConstantId(pub u32);

/// Bytes of the workspace that hold one value, or several that are views of each other.
#[derive(Clone, Debug)]
pub struct Block {
    /// The value it was made for.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Elements.
    pub elements: usize,
    /// The first step that writes it.
    pub first_step: usize,
    /// The last step that reads it; the number of steps for an output.
    pub last_step: usize,
    /// Whether a caller brings it.
    pub input: bool,
    /// Whether a caller gets it.
    pub output: bool,
}

/// A constant of the graph, gathered into a block of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constant {
    /// The graph's constant.
    pub value: ValueId,
    /// Its element type.
    pub dtype: DType,
    /// The logical shape of what is gathered.
    pub shape: Shape,
    /// Where its elements are in the row-major constant.
    pub source: View,
    /// In which order of the axes they are to lie, without gaps.
    pub order: Order,
}

/// Where an operand lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In a block of the workspace.
    Workspace(BlockId),
    /// Among the weights.
    Constant(ConstantId),
}

/// What a step reads or writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// The block.
    pub place: Place,
    /// The element type.
    pub dtype: DType,
    /// The logical shape.
    pub shape: Shape,
    /// How it lies in the block.
    pub view: View,
}

impl Operand {
    /// Bytes of its elements, without gaps; 0 for text.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size_bytes().unwrap_or(0)
    }
}

/// One kernel's work.
#[derive(Clone, Debug)]
pub struct Step {
    /// The node's name.
    pub name: String,
    /// What is done; never a view.
    pub op: Op,
    /// What is read, in the op's order.
    pub inputs: Vec<Operand>,
    /// What is written.
    pub outputs: Vec<Operand>,
    /// The matrix product that an einsum is.
    pub product: Option<Product>,
}

/// Steps, and the blocks that they work on.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// In the order in which they run.
    pub steps: Vec<Step>,
    /// The blocks of the workspace.
    pub blocks: Vec<Block>,
    /// The constants that steps read.
    pub constants: Vec<Constant>,
    /// Where a caller's values go, row-major, in the graph's order.
    pub inputs: Vec<Operand>,
    /// Where a caller's results are, row-major, in the graph's order.
    pub outputs: Vec<Operand>,
}

impl Layout {
    /// Bytes of host memory that host steps hold: their constants, and copies of what they read and write.
    pub fn host_bytes(&self) -> u64 {
        let bytes = |operand: &Operand| {
            let elements = volume(&operand.shape).unwrap_or(usize::MAX);
            elements.saturating_mul(operand.dtype.size_bytes().unwrap_or(1)) as u64
        };
        let steps = self.steps.iter().filter_map(|step| match &step.op {
            Op::Host(host) => Some((host, step)),
            _ => None,
        });
        let (mut constants, mut values) = (0, 0);
        for (host, step) in steps {
            constants += host.constant_bytes() as u64;
            // One step runs at a time; the library copies once more inside.
            let own: u64 = step.inputs.iter().chain(&step.outputs).map(bytes).sum();
            values = u64::max(values, 2 * own);
        }
        constants + values
    }
}

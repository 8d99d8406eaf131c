//! Each pass on small graphs written as expressions: what comes out, and that it computes the same.

mod attention;
mod chains;
mod constants;
mod halves;
mod interpret;
mod patterns;
mod products;
mod properties;

use super::{AttentionKeys, Outcome, Precision, Preferences, fuse};
use crate::graph::{
    Binary, Builder, Chain, Einsum, Epilogue, Graph, Instr, Op, Reducer, Src, Unary, ValueId,
};
use crate::tensor::DType;
use interpret::interpret;

/// Expressions of f32 values with numpy's broadcasting between equal ranks.
#[derive(Default)]
struct Model {
    builder: Builder,
    count: usize,
}

impl Model {
    fn input(&mut self, shape: &[usize]) -> ValueId {
        self.builder.input("x", DType::F32, shape)
    }

    fn name(&mut self, op: &str) -> String {
        self.count += 1;
        format!("{op}{}", self.count)
    }

    fn shape(&self, id: ValueId) -> Vec<usize> {
        self.builder.graph().shape(id).to_vec()
    }

    /// A constant of that shape with small numbers, no two alike.
    fn weights(&mut self, shape: &[usize]) -> ValueId {
        let count: usize = shape.iter().product();
        self.count += 1;
        let seed = self.count;
        let floats: Vec<f32> = (0..count).map(|at| noise(seed * 1000 + at)).collect();
        self.builder.floats("w", shape, &floats)
    }

    fn number(&mut self, rank: usize, number: f32) -> ValueId {
        self.builder.floats("n", &vec![1; rank], &[number])
    }

    fn pointwise(&mut self, instr: Instr, inputs: &[ValueId], dtype: DType) -> ValueId {
        let mut shape = self.shape(inputs[0]);
        for id in inputs {
            shape.iter_mut().zip(self.shape(*id)).for_each(|(size, other)| *size = other.max(*size));
        }
        let name = self.name("p");
        self.builder.node(&name, Op::Pointwise(Chain { instrs: vec![instr] }), inputs, dtype, &shape)
    }

    fn unary(&mut self, op: Unary, x: ValueId) -> ValueId {
        self.pointwise(Instr::Unary(op, Src::Operand(0)), &[x], DType::F32)
    }

    fn binary(&mut self, op: Binary, x: ValueId, y: ValueId) -> ValueId {
        self.pointwise(Instr::Binary(op, Src::Operand(0), Src::Operand(1)), &[x, y], DType::F32)
    }

    /// With a number, which stands as a constant of one element as models have it.
    fn with(&mut self, op: Binary, x: ValueId, number: f32) -> ValueId {
        let rank = self.shape(x).len();
        let number = self.number(rank, number);
        self.binary(op, x, number)
    }

    fn relu(&mut self, x: ValueId) -> ValueId {
        self.with(Binary::Max, x, 0.0)
    }

    fn reduce(&mut self, reducer: Reducer, x: ValueId, axes: &[usize]) -> ValueId {
        let mut shape = self.shape(x);
        axes.iter().for_each(|axis| shape[*axis] = 1);
        let name = self.name("reduce");
        self.builder.node(&name, Op::Reduce(reducer, axes.into()), &[x], DType::F32, &shape)
    }

    /// A mean as importers write it.
    fn mean(&mut self, x: ValueId, axes: &[usize]) -> ValueId {
        let count: usize = axes.iter().map(|axis| self.shape(x)[*axis]).product();
        let sum = self.reduce(Reducer::Sum, x, axes);
        self.with(Binary::Mul, sum, 1.0 / count as f32)
    }

    fn reshape(&mut self, x: ValueId, shape: &[usize]) -> ValueId {
        let (name, dtype) = (self.name("reshape"), self.builder.graph().value(x).dtype);
        self.builder.node(&name, Op::Reshape, &[x], dtype, shape)
    }

    fn permute(&mut self, x: ValueId, order: &[usize]) -> ValueId {
        let shape: Vec<usize> = order.iter().map(|axis| self.shape(x)[*axis]).collect();
        let name = self.name("permute");
        self.builder.node(&name, Op::Permute(order.into()), &[x], DType::F32, &shape)
    }

    fn einsum(&mut self, expression: &str, x: ValueId, w: ValueId, shape: &[usize]) -> ValueId {
        let (sides, c) = expression.split_once("->").unwrap();
        let (a, b) = sides.split_once(',').unwrap();
        let labels = |side: &str| side.chars().collect();
        let einsum = Einsum { a: labels(a), b: labels(b), c: labels(c), epilogue: Epilogue::default() };
        let name = self.name("einsum");
        self.builder.node(&name, Op::Einsum(einsum), &[x, w], DType::F32, shape)
    }

    /// Fuses what has been built and checks that it computes the same.
    fn fused(self, outputs: &[ValueId]) -> Graph {
        self.fused_as(outputs, &Preferences::default())
    }

    fn fused_as(self, outputs: &[ValueId], preferences: &Preferences) -> Graph {
        check(self.builder.finish(outputs), preferences).0
    }
}

/// A number between −1 and 1.
fn noise(seed: usize) -> f32 {
    let mixed = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed >> 40) as f32 / (1u64 << 24) as f32) * 2.0 - 1.0
}

/// The fused graph, which holds together and computes the same; and what was declined.
fn check(graph: Graph, preferences: &Preferences) -> (Graph, Vec<String>) {
    graph.check().unwrap();
    let inputs: Vec<Vec<f64>> = graph
        .inputs
        .iter()
        .map(|id| {
            let value = graph.value(*id);
            (0..value.elements())
                .map(|at| match value.dtype {
                    DType::F32 => f64::from(noise(id.0 as usize * 7919 + at) * 3.0),
                    // Past both ends of the tables in tests.
                    _ => (at % 11) as f64 - 2.0,
                })
                .collect()
        })
        .collect();
    let expected = interpret(&graph, &inputs);
    let before = graph.to_string();
    let fused = fuse(graph, preferences);
    fused.graph.check().unwrap_or_else(|fault| panic!("{fault}\n{before}\nbecame\n{}", fused.graph));
    let got = interpret(&fused.graph, &inputs);
    for (expected, got) in expected.iter().zip(&got) {
        for (at, (expected, got)) in expected.iter().zip(got).enumerate() {
            let near = (expected - got).abs() <= 1e-4 * expected.abs().max(1.0)
                || expected.to_bits() == got.to_bits();
            assert!(near, "element {at}: {expected} became {got}\n{before}\nbecame\n{}", fused.graph);
        }
    }
    assert_eq!(expected.len(), got.len());
    let declined = fused.notes.iter().filter_map(|note| match &note.outcome {
        Outcome::Declined(reason) => Some(format!("{} {}: {reason}", note.pass, note.node)),
        Outcome::Fused => None,
    });
    let declined = declined.collect();
    (fused.graph, declined)
}

/// The graph's dump, without the lines of inputs, constants and outputs.
fn nodes(graph: &Graph) -> Vec<String> {
    let node = |line: &str| line.split_once(" = ").map(|(_, op)| op.rsplit_once('(').unwrap().0.to_string());
    let text = graph.to_string();
    text.lines().filter(|line| line.starts_with('%')).filter_map(node).collect()
}

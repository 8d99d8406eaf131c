use crate::device::Batch;
use crate::device::{Manner, Opened, Room, Workspace};
use crate::fuse::{AttentionKeys, Preferences, fuse};
use crate::graph::{Binary, Builder, Chain, Einsum, Graph, Instr, Op, Src, ValueId};
use crate::plan::layout;
use crate::tensor::{DType, Tensor};
use proptest::prelude::*;

/// Sizes of the labels: two of a batch, queries, another axis of queries, keys, depth, columns.
const LABELS: &str = "bhmgnkd";

#[derive(Clone, Debug)]
struct Case {
    sizes: [usize; 7],
    /// The labels of queries, keys, values, scores and output.
    labels: [Vec<char>; 5],
    /// Which labels of the scores a mask has, if there is one, and whether it is of bools.
    mask: Option<([bool; 5], bool)>,
    scale: bool,
    threads: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let size = prop_oneof![1 => Just(1usize), 2 => 2..6usize];
    let sizes = (size.clone(), size.clone(), 1..40usize, size.clone(), 1..40usize, size.clone(), size);
    let on = any::<[bool; 4]>();
    let keys = any::<[[u32; 7]; 5]>();
    let mask = prop_oneof![Just(None), any::<([bool; 5], bool)>().prop_map(Some)];
    (sizes, on, keys, mask, any::<bool>(), 1..3usize).prop_map(|(sizes, on, keys, mask, scale, threads)| {
        // Keys and values need not have the labels of the batch.
        let optional = |label: char, on: bool| if on { label.to_string() } else { String::new() };
        let texts = [
            "bhmgk".to_string(),
            format!("{}{}nk", optional('b', on[0]), optional('h', on[1])),
            format!("{}{}nd", optional('b', on[2]), optional('h', on[3])),
            "bhmgn".to_string(),
            "bhmgd".to_string(),
        ];
        let mut texts = texts.into_iter().zip(&keys);
        let labels = std::array::from_fn(|_| {
            let (text, keys) = texts.next().unwrap();
            let mut labels: Vec<(u32, char)> = keys.iter().copied().zip(text.chars()).collect();
            labels.sort_unstable();
            labels.into_iter().map(|(_, label)| label).collect()
        });
        let (b, h, m, g, n, k, d) = sizes;
        Case { sizes: [b, h, m, g, n, k, d], labels, mask, scale, threads }
    })
}

impl Case {
    fn shape(&self, labels: &[char]) -> Vec<usize> {
        labels.iter().map(|label| self.sizes[LABELS.find(*label).unwrap()]).collect()
    }

    fn einsum(&self, m: &mut Builder, a: (usize, ValueId), b: (usize, ValueId), c: usize) -> ValueId {
        let [la, lb, lc] = [a.0, b.0, c].map(|at| &self.labels[at][..]);
        let einsum = Einsum { a: la.into(), b: lb.into(), c: lc.into(), epilogue: Default::default() };
        m.node("product", Op::Einsum(einsum), &[a.1, b.1], DType::F32, &self.shape(lc))
    }

    fn graph(&self) -> Graph {
        let mut m = Builder::new();
        let [q, k, v] = [0, 1, 2].map(|at| m.input("x", DType::F32, &self.shape(&self.labels[at])));
        let shape = self.shape(&self.labels[3]);
        let mut scores = self.einsum(&mut m, (0, q), (1, k), 3);
        let (score, mask, lowest) = (Src::Operand(0), Src::Operand(1), Src::Const(-1e4));
        if self.scale {
            let chain = Chain { instrs: vec![Instr::Binary(Binary::Mul, score, Src::Const(0.25))] };
            scores = m.node("scale", Op::Pointwise(chain), &[scores], DType::F32, &shape);
        }
        if let Some((along, bools)) = &self.mask {
            let (dtype, instr) = match bools {
                true => (DType::Bool, Instr::Select(mask, lowest, score)),
                false => (DType::F32, Instr::Binary(Binary::Add, mask, score)),
            };
            let own: Vec<usize> =
                shape.iter().zip(along).map(|(size, on)| if *on { *size } else { 1 }).collect();
            let id = m.input("mask", dtype, &own);
            let chain = Chain { instrs: vec![instr] };
            scores = m.node("mask", Op::Pointwise(chain), &[scores, id], DType::F32, &shape);
        }
        let over = self.labels[3].iter().position(|label| *label == 'n').unwrap();
        let softmax = Op::Softmax { axes: [over].as_slice().into(), log: false };
        let weights = m.node("softmax", softmax, &[scores], DType::F32, &shape);
        let y = self.einsum(&mut m, (3, weights), (2, v), 4);
        m.finish(&[y])
    }
}

/// A number between −2 and 2.
fn noise(seed: u64) -> f32 {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 40) as f32 / (1 << 22) as f32 - 2.0
}

/// The graph's output on numbers that look random, and the ops of its steps.
fn run(graph: Graph, preferences: &Preferences, threads: usize) -> (Vec<f32>, Vec<String>) {
    let fused = fuse(graph, preferences).graph;
    let inputs: Vec<Tensor> = fused
        .inputs
        .iter()
        .map(|id| {
            let (value, seed) = (fused.value(*id), u64::from(id.0) + 1);
            let noise: Vec<f32> = (0..value.elements() as u64).map(|at| noise(at * 31 + seed)).collect();
            let bools: Vec<bool> = noise.iter().map(|x| *x > 1.0).collect();
            match value.dtype {
                DType::Bool => Tensor::from_slice(DType::Bool, &value.shape, &bools),
                dtype => Tensor::from_slice(dtype, &value.shape, &noise),
            }
            .unwrap()
        })
        .collect();
    let ops = fused.nodes.iter().map(|node| node.op.name().to_string()).collect();
    let planned = layout(&fused);
    let device = Opened::default().device();
    let prepared = device.prepare(fused, planned, Manner::plain(threads)).unwrap();
    let room = |bytes: u64| Ok(Room::own(device.memory(bytes).unwrap(), bytes));
    let program = prepared.finish(&device.constants(), None, &room).unwrap();
    let (mut workspace, mut outputs) = (Workspace::new(threads).unwrap(), vec![]);
    workspace.lane.at_least(program.plan().workspace_bytes as usize).unwrap();
    let inputs = inputs.as_slice();
    program.run(&mut *workspace.lane, Batch::one(&inputs), std::slice::from_mut(&mut outputs), 0).unwrap();
    let bytes = outputs[0].as_bytes().unwrap();
    (bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect(), ops)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attention_as_one_step_is_what_its_steps_are(case in case()) {
        let apart = Preferences { attention: None, ..Preferences::default() };
        let whole = Some(AttentionKeys { fewest: 1, fewest_selected: 1, ..AttentionKeys::default() });
        let whole = Preferences { attention: whole, ..Preferences::default() };
        let (expected, _) = run(case.graph(), &apart, case.threads);
        let (got, ops) = run(case.graph(), &whole, case.threads);
        prop_assert_eq!(ops, ["Attention"]);
        for (expected, got) in expected.iter().zip(&got) {
            prop_assert!((expected - got).abs() <= 1e-4 * expected.abs().max(1.0), "{expected} became {got}");
        }
        prop_assert_eq!(expected.len(), got.len());
    }
}

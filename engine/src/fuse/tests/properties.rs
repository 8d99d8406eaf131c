//! Graphs that nobody wrote: fused, they hold together and compute the same.

use super::*;
use proptest::prelude::*;

/// What a step does, and which earlier values it reads (modulo their number).
type Step = (u8, usize, usize, bool);

const SHAPE: [usize; 3] = [2, 3, 4];

/// A graph of pointwise operations on values of full and of broadcast shapes, with views and reductions between.
fn build(steps: &[Step], outputs: usize) -> Graph {
    let mut m = Model::default();
    let mut values = vec![m.input(&SHAPE), m.input(&[1, 3, 1]), m.input(&[2, 1, 4])];
    for (op, one, other, constant) in steps {
        let x = values[one % values.len()];
        let y = if *constant {
            m.weights(&[[2, 3, 4], [1, 3, 1], [1, 1, 4], [1, 1, 1]][other % 4])
        } else {
            values[other % values.len()]
        };
        let made = match op % 21 {
            0 => m.binary(Binary::Add, x, y),
            1 => m.binary(Binary::Sub, x, y),
            2 => m.binary(Binary::Mul, x, y),
            3 => m.binary(Binary::Max, y, x),
            4 => m.binary(Binary::Min, x, y),
            5 => m.unary(Unary::Sigmoid, x),
            6 => m.unary(Unary::Tanh, x),
            7 => m.unary(Unary::Neg, x),
            8 => m.with(Binary::Mul, x, 0.5),
            9 => m.with(Binary::Add, x, 3.0),
            10 => {
                let low = m.with(Binary::Max, x, 0.0);
                m.with(Binary::Min, low, 6.0)
            }
            11 => {
                let sigmoid = m.unary(Unary::Sigmoid, x);
                m.binary(Binary::Mul, x, sigmoid)
            }
            12 => m.reduce(Reducer::Mean, x, &[2]),
            13 => {
                let shape = m.shape(x);
                let flat = m.reshape(x, &[shape[0], shape[1] * shape[2]]);
                let flat = m.with(Binary::Mul, flat, 0.75);
                m.reshape(flat, &shape)
            }
            14 => {
                let turned = m.permute(x, &[2, 0, 1]);
                let turned = m.relu(turned);
                m.permute(turned, &[1, 2, 0])
            }
            16 => {
                let zero = m.number(3, 0.0);
                let less = Instr::Binary(Binary::Less, Src::Operand(0), Src::Operand(1));
                let negative = m.pointwise(less, &[x, zero], DType::Bool);
                let select = Instr::Select(Src::Operand(0), Src::Operand(1), Src::Operand(2));
                m.pointwise(select, &[negative, y, x], DType::F32)
            }
            17 => {
                let max = m.reduce(Reducer::Max, x, &[1]);
                let less = m.binary(Binary::Sub, x, max);
                let exp = m.unary(Unary::Exp, less);
                let sum = m.reduce(Reducer::Sum, exp, &[1]);
                m.binary(Binary::Div, exp, sum)
            }
            18 => {
                let mut shape = m.shape(x);
                let size = shape[1];
                shape[1] *= 2;
                let name = m.name("concat");
                let both = m.builder.node(&name, Op::Concat(1), &[x, x], DType::F32, &shape);
                shape[1] = size;
                let (name, slice) =
                    (m.name("slice"), Op::Slice { axis: 1, start: other % (size + 1), step: 1 });
                m.builder.node(&name, slice, &[both], DType::F32, &shape)
            }
            19 => {
                let shape = m.shape(x);
                let mean = m.mean(x, &[2]);
                let centered = m.binary(Binary::Sub, x, mean);
                let squares = m.unary(Unary::Square, centered);
                let variance = m.mean(squares, &[2]);
                let variance = m.with(Binary::Add, variance, 0.1);
                let root = m.unary(Unary::Sqrt, variance);
                let normed = m.binary(Binary::Div, centered, root);
                let scale = m.weights(&[1, 1, shape[2]]);
                m.binary(Binary::Mul, normed, scale)
            }
            20 => {
                // Attention of one value to another over the middle axis, or to itself.
                let (q, other_shape) = (m.shape(x), m.shape(y));
                let fits = q[0] == other_shape[0] && q[2] == other_shape[2];
                let k = if fits { y } else { x };
                let shape = [q[0], q[1], m.shape(k)[1]];
                let mut scores = m.einsum("bmk,bnk->bmn", x, k, &shape);
                if other % 2 == 0 {
                    scores = m.with(Binary::Mul, scores, 0.5);
                }
                if other % 3 == 0 {
                    let mask = m.weights(&[1, [1, shape[1]][other % 2], shape[2]]);
                    scores = m.binary(Binary::Add, scores, mask);
                }
                let name = m.name("softmax");
                let softmax = Op::Softmax { axes: [2].as_slice().into(), log: false };
                let weights = m.builder.node(&name, softmax, &[scores], DType::F32, &shape);
                m.einsum("bkm,bmn->bkn", weights, k, &q)
            }
            _ => {
                let shape = m.shape(x);
                let w = m.weights(&[shape[1], 3]);
                m.einsum("bkm,kn->bnm", x, w, &[shape[0], 3, shape[2]])
            }
        };
        // Products grow without bound: keep values where f32 compares well.
        let grows = matches!(op % 21, 2 | 11 | 15) || values.len() % 3 == 0;
        values.push(if grows { m.unary(Unary::Tanh, made) } else { made });
    }
    let count = outputs.clamp(1, values.len() - 3);
    let outputs = values[values.len() - count..].to_vec();
    m.builder.finish(&outputs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_graph_computes_the_same_after_fusing(
        steps in prop::collection::vec((any::<u8>(), any::<usize>(), any::<usize>(), any::<bool>()), 1..16),
        outputs in 1usize..4,
        operands in 2usize..8,
        registers in 2usize..8,
    ) {
        let preferences = Preferences {
            chain_operands: operands,
            chain_registers: registers,
            epilogue_chains: operands % 2 == 0,
            attention: (registers % 3 != 0).then_some(AttentionKeys { fewest: 1, fewest_selected: 1, additive: operands % 3 == 0, ..AttentionKeys::default() }),
            joined_products: operands % 2 == 1,
            precision: if registers % 2 == 0 { Precision::F16 } else { Precision::F32 },
            wide: (0..operands).map(|at| format!("p{at}")).collect(),
        };
        check(build(&steps, outputs), &preferences);
    }
}

use super::super::testing::{Layout, at, indices, layout, shape, threads, values};
use super::*;
use crate::device::cpu::memory::{Source, Target};
use crate::graph::chain::{Binary, Instr, Src, Unary};
use proptest::prelude::*;

const UNARY: [Unary; 35] = [
    Unary::Neg,
    Unary::Abs,
    Unary::Sign,
    Unary::Square,
    Unary::Sqrt,
    Unary::Rsqrt,
    Unary::Recip,
    Unary::Exp,
    Unary::Ln,
    Unary::Sin,
    Unary::Cos,
    Unary::Tan,
    Unary::Asin,
    Unary::Acos,
    Unary::Atan,
    Unary::Sinh,
    Unary::Cosh,
    Unary::Tanh,
    Unary::Asinh,
    Unary::Acosh,
    Unary::Atanh,
    Unary::Erf,
    Unary::Sigmoid,
    Unary::Silu,
    Unary::HardSwish,
    Unary::GeluErf,
    Unary::GeluTanh,
    Unary::Floor,
    Unary::Ceil,
    Unary::Round,
    Unary::RoundHalfEven,
    Unary::Not,
    Unary::FromI32,
    Unary::Neg,
    Unary::Abs,
];

const BINARY: [Binary; 18] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Min,
    Binary::Max,
    Binary::Pow,
    Binary::Equal,
    Binary::NotEqual,
    Binary::Less,
    Binary::LessEqual,
    Binary::Greater,
    Binary::GreaterEqual,
    Binary::EqualI32,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::LeakyRelu,
];

/// erf by its series, or by that of 1 - erf far out.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn unary(op: Unary, x: f32) -> f64 {
    let bits = x.to_bits() as i32;
    let x = f64::from(x);
    match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sign => f64::from(u8::from(x > 0.0)) - f64::from(u8::from(x < 0.0)),
        Unary::Square => x * x,
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Exp => x.exp(),
        Unary::Ln => x.ln(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Asin => x.asin(),
        Unary::Acos => x.acos(),
        Unary::Atan => x.atan(),
        Unary::Sinh => x.sinh(),
        Unary::Cosh => x.cosh(),
        Unary::Tanh => x.tanh(),
        Unary::Asinh => x.asinh(),
        Unary::Acosh => x.acosh(),
        Unary::Atanh => x.atanh(),
        Unary::Erf => erf(x),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Unary::GeluErf => x / 2.0 * (1.0 + erf(x / 2f64.sqrt())),
        Unary::GeluTanh => {
            x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round(),
        Unary::RoundHalfEven => x.round_ties_even(),
        Unary::Not => f64::from(u8::from(x == 0.0)),
        Unary::FromI32 => f64::from(bits as f32),
    }
}

fn binary(op: Binary, x: f32, y: f32) -> f64 {
    let flag = |value: bool| f64::from(u8::from(value));
    let (a, b) = (f64::from(x), f64::from(y));
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::Pow => f64::from(x.powf(y)),
        Binary::Equal => flag(x == y),
        Binary::NotEqual => flag(x != y),
        Binary::Less => flag(x < y),
        Binary::LessEqual => flag(x <= y),
        Binary::Greater => flag(x > y),
        Binary::GreaterEqual => flag(x >= y),
        Binary::EqualI32 => flag(x.to_bits() == y.to_bits()),
        Binary::And => a.min(b),
        Binary::Or => a.max(b),
        Binary::Xor => (a - b).abs(),
        Binary::LeakyRelu => {
            if a >= 0.0 {
                a
            } else {
                a * b
            }
        }
    }
}

/// The chain for one element.
fn reference(chain: &Chain, operands: &[f32]) -> f32 {
    let mut registers: Vec<f32> = vec![];
    for instr in &chain.instrs {
        let read = |source: Src| match source {
            Src::Operand(i) => operands[usize::from(i)],
            Src::Reg(i) => registers[usize::from(i)],
            Src::Const(value) => value,
        };
        registers.push(match *instr {
            Instr::Unary(op, x) => unary(op, read(x)) as f32,
            Instr::Binary(op, x, y) => binary(op, read(x), read(y)) as f32,
            Instr::Select(x, y, z) => read(if read(x) != 0.0 { y } else { z }),
        });
    }
    registers[registers.len() - 1]
}

fn same(actual: f32, expected: f32, tolerance: f32) -> bool {
    actual == expected
        || actual.is_nan() && expected.is_nan()
        || (actual - expected).abs() <= tolerance * expected.abs().max(0.1)
}

fn run_one(chain: &Chain, sources: &[&[f32]]) -> Vec<f32> {
    let n = sources[0].len();
    let operands: Vec<Operand> =
        sources.iter().map(|_| Operand { strides: &[1], dtype: Load::F32 }).collect();
    let pointwise = Pointwise::new(chain, &[n], &operands, &[1], Store::F32).unwrap();
    let mut out = vec![7.0; n];
    let inputs: Vec<Input> = sources.iter().map(|&x| Input::F32(Source::from(x))).collect();
    pointwise.run(&inputs, Output::F32(Target::from(&mut out[..])), &threads(1));
    out
}

#[test]
fn every_function_is_close_everywhere() {
    let mut x: Vec<f32> = (-2000..=2000).map(|i| i as f32 / 50.0).collect();
    x.extend((-300..300).map(|i| (i as f32 / 10.0).exp2().copysign((i % 2) as f32 - 0.5)));
    x.extend([0.0, -0.0, 1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.5, -0.5, 1.5, 2.5]);
    for op in UNARY {
        let chain = Chain { instrs: vec![Instr::Unary(op, Src::Operand(0))] };
        for (&x, actual) in x.iter().zip(run_one(&chain, &[&x])) {
            let expected = unary(op, x) as f32;
            if op == Unary::Sign && x.is_nan() || matches!(op, Unary::Sin | Unary::Cos) && x.abs() > 1e4 {
                continue;
            }
            assert!(same(actual, expected, 1e-5), "{op:?} of {x}: {actual}, expected {expected}");
            // Small results are as close as large ones, but where an approximation is only absolutely so.
            let absolute = matches!(op, Unary::Sin | Unary::Cos | Unary::GeluErf | Unary::GeluTanh);
            if expected.is_normal() && expected.abs() > 1e-30 && !absolute {
                let error = (f64::from(actual) / unary(op, x) - 1.0).abs();
                assert!(error < 1e-5, "{op:?} of {x}: {actual}, expected {expected}");
            }
        }
    }
}

#[test]
fn every_pair_is_computed() {
    let some = [0.0f32, -0.0, 1.0, 2.0, -1.5, 0.5, 3.0, 1e9, -1e9, f32::INFINITY];
    let x: Vec<f32> = some.iter().flat_map(|&x| [x; 10]).collect();
    let y: Vec<f32> = (0..100).map(|i| some[i % 10]).collect();
    for op in BINARY {
        let logical = matches!(op, Binary::And | Binary::Or | Binary::Xor);
        let flags = |values: &[f32]| {
            values.iter().map(|x| if logical { x.clamp(0.0, 1.0).ceil() } else { *x }).collect()
        };
        let (x, y): (Vec<f32>, Vec<f32>) = (flags(&x), flags(&y));
        let chain = Chain { instrs: vec![Instr::Binary(op, Src::Operand(0), Src::Operand(1))] };
        for (i, actual) in run_one(&chain, &[&x, &y]).into_iter().enumerate() {
            let expected = binary(op, x[i], y[i]) as f32;
            assert!(
                same(actual, expected, 1e-6),
                "{op:?} of {} and {}: {actual}, expected {expected}",
                x[i],
                y[i]
            );
        }
    }
}

#[test]
fn nan_survives_a_clamp() {
    let clamp = Chain {
        instrs: vec![
            Instr::Binary(Binary::Max, Src::Operand(0), Src::Const(0.0)),
            Instr::Binary(Binary::Min, Src::Reg(0), Src::Const(6.0)),
        ],
    };
    let out = run_one(&clamp, &[&[f32::NAN, -1.0, 7.0, 3.0]]);
    assert!(out[0].is_nan() && out[1..] == [0.0, 6.0, 3.0], "{out:?}");
}

/// Chains of functions that neither leave the reals nor jump, so that rounding does not decide.
fn chain(operands: usize, ops: usize) -> impl Strategy<Value = Chain> {
    let source = (0..6u8, any::<u16>(), -2.0..2.0f32);
    proptest::collection::vec((0..16usize, [source.clone(), source.clone(), source]), 1..=ops).prop_map(
        move |list| {
            let mut instrs: Vec<Instr> = vec![];
            for (op, sources) in list {
                let done = instrs.len() as u16;
                let [x, y, z] = sources.map(|(kind, index, value)| match kind {
                    0 => Src::Const(value),
                    1..=3 if done > 0 => Src::Reg(done - 1 - index % done.min(3)),
                    _ => Src::Operand(index % operands as u16),
                });
                instrs.push(match op {
                    0..=2 => Instr::Binary(Binary::Add, x, y),
                    3 => Instr::Binary(Binary::Sub, x, y),
                    4..=5 => Instr::Binary(Binary::Mul, x, y),
                    6 => Instr::Binary(Binary::Max, x, y),
                    7 => Instr::Binary(Binary::Min, x, y),
                    8 => Instr::Unary(Unary::Sigmoid, x),
                    9 => Instr::Unary(Unary::Tanh, x),
                    10 => Instr::Binary(Binary::Mul, x, Src::Reg(done.saturating_sub(1))),
                    11 => Instr::Binary(Binary::Div, x, Src::Const(4.0)),
                    12 => Instr::Unary(Unary::Neg, x),
                    13 => Instr::Binary(Binary::LeakyRelu, x, Src::Const(0.25)),
                    14 => Instr::Unary(Unary::Tanh, x),
                    _ => Instr::Select(x, y, z),
                });
                if op == 10 && done == 0 {
                    instrs[0] = Instr::Unary(Unary::Abs, x);
                }
            }
            Chain { instrs }
        },
    )
}

/// Whether rounding may decide what the chain gives: a selection by what was computed.
fn fragile(chain: &Chain) -> bool {
    chain.instrs.iter().any(|instr| matches!(instr, Instr::Select(Src::Reg(_), ..)))
}

struct Tensor {
    data: Vec<f32>,
    strides: Vec<usize>,
}

fn tensor(shape: &[usize], layout: &Layout, still: u8, seed: u64) -> Tensor {
    let own: Vec<usize> = (0..shape.len()).map(|a| if still >> a & 1 == 1 { 1 } else { shape[a] }).collect();
    let mut strides = layout.strides(&own);
    let mut data = values(walk::span(&own, &strides), seed);
    data.iter_mut().for_each(|x| *x /= 2.0);
    (0..shape.len()).filter(|a| still >> a & 1 == 1).for_each(|a| strides[a] = 0);
    Tensor { data, strides }
}

fn still() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(0u8), 2 => any::<u8>(), 1 => Just(255u8)]
}

proptest! {
    #[test]
    fn any_chain_runs_over_any_layout(
        chain in chain(3, 12),
        shape in shape(0..=6, prop_oneof![Just(1usize), 0..9usize, 30..90usize, 500..1300usize], 6000),
        layouts in [layout(), layout(), layout()],
        out_layout in layout(),
        stills in [still(), still(), still()],
        (bool_out, dtypes, in_place, count, seed) in
            (any::<bool>(), [0..5u8, 0..5u8, 0..5u8], any::<bool>(), 1..3usize, any::<u64>()),
    ) {
        let in_place = in_place && !fragile(&chain);
        let mut tensors: Vec<Tensor> =
            (0..3).map(|t| tensor(&shape, &layouts[t], stills[t], seed ^ t as u64)).collect();
        if in_place {
            tensors[0] = tensor(&shape, &layouts[0], 0, seed);
        }
        let is_bool = |t: usize| dtypes[t] == 0 && !(in_place && t == 0);
        let bytes: Vec<Vec<u8>> =
            tensors.iter().map(|t| t.data.iter().map(|x| u8::from(*x > 0.0) * 3).collect()).collect();
        let (store, in_place) = if bool_out { (Store::Bool, false) } else { (Store::F32, in_place) };
        let out_strides = if in_place { tensors[0].strides.clone() } else { out_layout.strides(&shape) };
        let expected: Vec<f32> = indices(&shape).iter().map(|index| {
            let operands: Vec<f32> = (0..3).map(|t| {
                let at = at(index, &tensors[t].strides);
                if is_bool(t) { f32::from(u8::from(bytes[t][at] != 0)) } else { tensors[t].data[at] }
            }).collect();
            reference(&chain, &operands)
        }).collect();
        let operands: Vec<Operand> = (0..3).map(|t| Operand {
            strides: &tensors[t].strides,
            dtype: if is_bool(t) { Load::Bool } else { Load::F32 },
        }).collect();
        let Ok(pointwise) = Pointwise::new(&chain, &shape, &operands, &out_strides, store) else {
            return Ok(());
        };
        let len = walk::span(&shape, &out_strides);
        let mut own = std::mem::take(&mut tensors[0].data);
        let first = Target::from(&mut own[..]);
        let inputs: Vec<Input> = (0..3).map(|t| {
            // SAFETY: where the output is the first operand, the kernel is given the same strides for both.
            let floats = if t == 0 { unsafe { Source::new(first.as_ptr(), first.len()) } } else { Source::from(&tensors[t].data[..]) };
            if is_bool(t) { Input::Bool(Source::from(&bytes[t][..])) } else { Input::F32(floats) }
        }).collect();
        let (mut floats, mut flags) = (vec![7.0f32; len], vec![7u8; len]);
        if bool_out {
            pointwise.run(&inputs, Output::Bool(Target::from(&mut flags[..])), &threads(count));
        } else if in_place {
            pointwise.run(&inputs, Output::F32(first), &threads(count));
            floats = own;
        } else {
            pointwise.run(&inputs, Output::F32(Target::from(&mut floats[..])), &threads(count));
        }
        let mut touched = vec![false; len];
        for (index, &expected) in indices(&shape).iter().zip(&expected) {
            let at = at(index, &out_strides);
            touched[at] = true;
            if bool_out {
                prop_assert!(flags[at] == u8::from(expected != 0.0) || fragile(&chain) || expected.abs() < 1e-5);
            } else {
                prop_assert!(same(floats[at], expected, 1e-4) || fragile(&chain), "{index:?}: {} {expected}", floats[at]);
            }
        }
        if !in_place && !bool_out {
            prop_assert!((0..len).all(|i| touched[i] || floats[i] == 7.0));
        }
    }

    #[test]
    fn rows_are_replaced_by_their_chain(
        chain in chain(4, 8),
        kinds in [0..4usize, 0..4usize, 0..4usize],
        (rows, cols) in (1..40usize, prop_oneof![1..40usize, 200..700usize]),
        (first_row, first_col, gap, seed) in (0..5usize, 0..5usize, 0..3usize, any::<u64>()),
    ) {
        let (height, width) = (first_row + rows, first_col + cols);
        let row_stride = width + gap;
        let kind = |t: usize| [
            RowOperand::Full { row_stride: width + t }, RowOperand::Column, RowOperand::Row { stride: 2 }, RowOperand::Scalar,
        ][kinds[t]];
        let strides = |t: usize| [(width + t, 1), (0, 1), (2, 0), (0, 0)][kinds[t]];
        let data: Vec<Vec<f32>> = (0..3).map(|t| {
            let (row, col) = strides(t);
            values((height - 1) * row + (width - 1) * col + 1, seed ^ t as u64).iter().map(|x| x / 2.0).collect()
        }).collect();
        let before: Vec<f32> = values(height * row_stride, !seed).iter().map(|x| x / 2.0).collect();
        let mut out = before.clone();
        let Ok(row_chain) = RowChain::new(&chain, &[kind(0), kind(1), kind(2)]) else { return Ok(()) };
        let sources: Vec<Source<f32>> = data.iter().map(|x| Source::from(&x[..])).collect();
        row_chain.run(&sources, Target::from(&mut out[..]), row_stride, first_row, rows, first_col, cols);
        for row in 0..height {
            for col in 0..row_stride {
                let i = row * row_stride + col;
                if row < first_row || col < first_col || col >= width {
                    prop_assert_eq!(out[i], before[i]);
                    continue;
                }
                let mut operands = vec![before[i]];
                operands.extend((0..3).map(|t| data[t][row * strides(t).0 + col * strides(t).1]));
                let expected = reference(&chain, &operands);
                prop_assert!(same(out[i], expected, 1e-4) || fragile(&chain), "{row},{col}: {} {expected}", out[i]);
            }
        }
    }
}

#[test]
fn whole_numbers_are_compared_and_converted() {
    let x = [16_777_217, -3, 0, 5, i32::MIN];
    let y = [16_777_216, -3, 1, 5, i32::MAX];
    let operands = [Operand { strides: &[1], dtype: Load::I32 }; 2];
    let inputs = [Input::I32(Source::from(&x[..])), Input::I32(Source::from(&y[..]))];
    let equal = Chain { instrs: vec![Instr::Binary(Binary::EqualI32, Src::Operand(0), Src::Operand(1))] };
    let mut flags = [7u8; 5];
    let pointwise = Pointwise::new(&equal, &[5], &operands, &[1], Store::Bool).unwrap();
    pointwise.run(&inputs, Output::Bool(Target::from(&mut flags[..])), &threads(1));
    assert_eq!(flags, [0, 1, 0, 1, 0]);
    let convert = Chain { instrs: vec![Instr::Unary(Unary::FromI32, Src::Operand(0))] };
    let mut floats = [7.0f32; 5];
    let pointwise = Pointwise::new(&convert, &[5], &operands[..1], &[1], Store::F32).unwrap();
    pointwise.run(&inputs[..1], Output::F32(Target::from(&mut floats[..])), &threads(1));
    assert_eq!(floats, x.map(|x| x as f32));
}

#[test]
fn a_chain_of_too_many_live_results_is_refused() {
    let mut instrs: Vec<Instr> =
        (0..12).map(|i| Instr::Binary(Binary::Add, Src::Operand(0), Src::Const(i as f32))).collect();
    for i in 0..12 {
        instrs.push(Instr::Binary(Binary::Mul, Src::Reg(11 + i), Src::Reg(i)));
    }
    let operands = [Operand { strides: &[1], dtype: Load::F32 }];
    let refused = Pointwise::new(&Chain { instrs }, &[100], &operands, &[1], Store::F32);
    assert_eq!(refused.err(), Some(TooLong::Tiles));
    let empty = Pointwise::new(&Chain::default(), &[100], &operands, &[1], Store::F32);
    assert_eq!(empty.err(), Some(TooLong::Empty));
}

#[test]
fn what_exporters_write_apart_gives_the_same_joined() {
    let (x, three, six) = (Src::Operand(0), Src::Const(3.0), Src::Const(6.0));
    let gate = [
        Instr::Binary(Binary::Add, x, three),
        Instr::Binary(Binary::Max, Src::Reg(0), Src::Const(0.0)),
        Instr::Binary(Binary::Min, Src::Reg(1), six),
    ];
    let swish = |rest: [Instr; 2]| Chain { instrs: [&gate[..], &rest].concat() };
    let chains = [
        swish([Instr::Binary(Binary::Mul, x, Src::Reg(2)), Instr::Binary(Binary::Div, Src::Reg(3), six)]),
        swish([
            Instr::Binary(Binary::Mul, Src::Reg(2), x),
            Instr::Binary(Binary::Mul, Src::Reg(3), Src::Const(1.0 / 6.0)),
        ]),
        swish([Instr::Binary(Binary::Div, Src::Reg(2), six), Instr::Binary(Binary::Mul, Src::Reg(3), x)]),
        Chain { instrs: vec![Instr::Unary(Unary::Sigmoid, x), Instr::Binary(Binary::Mul, x, Src::Reg(0))] },
        Chain { instrs: vec![Instr::Binary(Binary::Pow, x, Src::Const(2.0))] },
        Chain {
            instrs: vec![Instr::Binary(Binary::Mul, x, three), Instr::Binary(Binary::Add, six, Src::Reg(0))],
        },
        Chain { instrs: vec![Instr::Binary(Binary::Div, x, Src::Const(8.0))] },
    ];
    let values: Vec<f32> = (-60..60).map(|i| i as f32 / 10.0).collect();
    for chain in &chains {
        let program = program::Program::new(chain, &[program::Access::Direct]).unwrap();
        assert_eq!(program.len(), 1, "{chain:?}");
        for (&x, actual) in values.iter().zip(run_one(chain, &[&values])) {
            assert!(same(actual, reference(chain, &[x]), 2e-6), "{chain:?} of {x}: {actual}");
        }
    }
}

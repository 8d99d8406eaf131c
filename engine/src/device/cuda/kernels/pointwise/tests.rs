//! What the kernel would compute with a program, computed here, against the chain itself.

use super::program::Program;
use crate::graph::chain::{Binary, Chain, Instr, Src, Unary};
use proptest::prelude::*;

const OPERANDS: [f32; 3] = [0.75, -2.5, 1.25];

fn unary(op: Unary, x: f32) -> f32 {
    match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Square => x * x,
        Unary::Recip => 1.0 / x,
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Silu => x / (1.0 + (-x).exp()),
        other => panic!("{other:?} is not tested here"),
    }
}

fn binary(op: Binary, x: f32, y: f32) -> f32 {
    match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Min => x.min(y),
        Binary::Max => x.max(y),
        Binary::Pow => x.powf(y),
        other => panic!("{other:?} is not tested here"),
    }
}

const UNARY: [Unary; 6] = [Unary::Neg, Unary::Abs, Unary::Square, Unary::Recip, Unary::Sigmoid, Unary::Silu];
const BINARY: [Binary; 6] = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Min, Binary::Max];

fn of_chain(chain: &Chain) -> f32 {
    let mut results: Vec<f32> = vec![];
    for instr in &chain.instrs {
        let value = |source: Src| match source {
            Src::Operand(operand) => OPERANDS[usize::from(operand)],
            Src::Reg(register) => results[usize::from(register)],
            Src::Const(number) => number,
        };
        results.push(match *instr {
            Instr::Unary(op, x) => unary(op, value(x)),
            Instr::Binary(op, x, y) => binary(op, value(x), value(y)),
            Instr::Select(x, y, z) => value(if value(x) != 0.0 { y } else { z }),
        });
    }
    *results.last().unwrap()
}

/// As the kernel goes about it: one result at hand, the others in slots.
fn of_program(program: &Program) -> f32 {
    let mut slots = vec![f32::NAN; program.slots];
    let mut last = f32::NAN;
    for code in &program.codes {
        let [op, sources @ ..] = code.what().to_le_bytes();
        let [x, y, z] = sources.map(|from| match from {
            0 => last,
            255 => f32::NAN,
            from if from >= 64 => program.numbers[usize::from(from) - 64],
            from if from >= 32 => slots[usize::from(from) - 32],
            from => OPERANDS[usize::from(from) - 1],
        });
        last = match op {
            18 => {
                if x != 0.0 {
                    y
                } else {
                    z
                }
            }
            19 => x.max(y).min(z),
            20 => x * y + z,
            op => {
                let one = UNARY.iter().find(|known| 24 + **known as u8 == op);
                let two = BINARY.iter().find(|known| **known as u8 == op);
                match (one, two) {
                    (Some(&op), _) => unary(op, x),
                    (_, Some(&op)) => binary(op, x, y),
                    _ => panic!("operation {op}"),
                }
            }
        };
        if let Some(slot) = slots.get_mut(code.slot() as usize) {
            *slot = last;
        }
    }
    last
}

fn chains() -> impl Strategy<Value = Chain> {
    let source = (0..8usize, any::<prop::sample::Index>());
    let instr = (0..13usize, source.clone(), source.clone(), source);
    prop::collection::vec(instr, 1..24).prop_map(|seeds| {
        let mut instrs = vec![];
        for (at, (op, x, y, z)) in seeds.into_iter().enumerate() {
            let source = |(kind, index): (usize, prop::sample::Index)| match kind {
                0 | 1 => Src::Operand(index.index(OPERANDS.len()) as u16),
                2 => Src::Const([0.0, 1.0, 6.0, 0.5][index.index(4)]),
                3..=5 if at > 0 => Src::Reg(at as u16 - 1),
                _ if at > 0 => Src::Reg(index.index(at) as u16),
                _ => Src::Operand(0),
            };
            instrs.push(match op {
                op if op < 6 => Instr::Binary(BINARY[op], source(x), source(y)),
                op if op < 12 => Instr::Unary(UNARY[op - 6], source(x)),
                _ => Instr::Select(source(x), source(y), source(z)),
            });
        }
        Chain { instrs }
    })
}

proptest! {
    #[test]
    fn a_program_computes_what_its_chain_says(chain in chains()) {
        // What needs too many slots is refused.
        if let Ok(program) = Program::new(&chain, OPERANDS.len()) {
            let (have, want) = (of_program(&program), of_chain(&chain));
            let close = (have - want).abs() <= 1e-4 * want.abs().max(1e-3);
            prop_assert!(close || have == want || have.is_nan() && want.is_nan(), "{have} for {want}");
        }
    }
}

fn program(instrs: &[Instr]) -> Program {
    Program::new(&Chain { instrs: instrs.to_vec() }, 2).unwrap()
}

#[test]
fn usual_chains_need_no_interpretation() {
    let (x, y, sum) = (Src::Operand(0), Src::Operand(1), Src::Reg(0));
    let add = Instr::Binary(Binary::Add, y, x);
    let relu = Instr::Binary(Binary::Max, sum, Src::Const(0.0));
    assert!(program(&[add]).short.is_some());
    assert!(program(&[add, relu]).short.is_some());
    assert!(program(&[add, relu, Instr::Binary(Binary::Min, Src::Reg(1), Src::Const(6.0))]).short.is_some());
    assert!(program(&[add, Instr::Unary(Unary::GeluErf, sum)]).short.is_some());
    // The order of a difference matters, and so does what a function is of.
    assert!(program(&[Instr::Binary(Binary::Sub, y, x)]).short.is_none());
    assert!(program(&[add, Instr::Unary(Unary::Silu, x)]).short.is_none());
}

#[test]
fn what_is_joined_is_not_computed_twice() {
    let (x, y) = (Src::Operand(0), Src::Operand(1));
    let product = Instr::Binary(Binary::Mul, x, y);
    let chain = [product, Instr::Binary(Binary::Add, Src::Reg(0), y)];
    assert_eq!(program(&chain).codes.len(), 1);
    // Read again later, the product is kept.
    let chain = [&chain[..], &[Instr::Binary(Binary::Sub, Src::Reg(1), Src::Reg(0))]].concat();
    assert_eq!(program(&chain).codes.len(), 3);
}

#[test]
fn results_that_are_not_needed_later_take_no_slot() {
    let mut instrs = vec![Instr::Unary(Unary::Exp, Src::Operand(0))];
    instrs.extend((0..20).map(|at| Instr::Unary(Unary::Tanh, Src::Reg(at))));
    assert_eq!(program(&instrs).slots, 0);
}

#[test]
fn more_results_at_once_than_slots_are_refused() {
    let mut instrs: Vec<Instr> = (0..12).map(|_| Instr::Unary(Unary::Exp, Src::Operand(0))).collect();
    for at in 0..11 {
        instrs.push(Instr::Binary(Binary::Div, Src::Reg(11 + at), Src::Reg(at)));
    }
    assert!(Program::new(&Chain { instrs }, 1).is_err());
}

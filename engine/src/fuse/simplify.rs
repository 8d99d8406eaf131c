//! A chain made shorter: what is known ahead is computed, what is computed twice is computed once, and operations
//! that do nothing go. Results may differ from the chain's by rounding, a few parts in 10⁷.
//!
//! Zero has one sign here: x + 0 is taken for x though −0 + 0 is +0. Numbers stand second where the order is free.

use super::activations;
use super::evaluate::{binary, unary};
use crate::graph::{Binary, Chain, Instr, Src, Unary};

/// What is left of a chain.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Simplified {
    /// A chain.
    Chain(Chain),
    /// An operand or a number as it is.
    Source(Src),
}

/// Simplifies until nothing changes.
pub(super) fn simplify(chain: &Chain) -> Simplified {
    // Each round that changes something removes operations or replaces them by simpler ones; the limit is for
    // chains in which two rules should ever undo each other.
    const ROUNDS: usize = 16;
    let mut program = Program::of(chain);
    for _ in 0..ROUNDS {
        let next = match program.result {
            Src::Reg(_) => program.round(),
            _ => break,
        };
        if next == program {
            break;
        }
        program = next;
    }
    match program.result {
        Src::Reg(_) => Simplified::Chain(Chain { instrs: program.instrs }),
        source => Simplified::Source(source),
    }
}

/// A chain under change: its result is any source, not always the last operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    pub(super) instrs: Vec<Instr>,
    pub(super) result: Src,
}

impl Program {
    fn of(chain: &Chain) -> Program {
        let mut program = Program { instrs: vec![], result: Src::Const(0.0) };
        let mut now: Vec<Src> = vec![];
        for instr in &chain.instrs {
            let src = program.push(instr.map(|src| moved(src, &now)));
            now.push(src);
        }
        program.result = now.last().copied().unwrap_or(program.result);
        program
    }

    /// Once over the chain: dead operations out, activations found, numbers merged.
    fn round(&self) -> Program {
        let live = self.live();
        if let Some(better) = activations::find(&live) {
            return better.live();
        }
        let uses = live.uses();
        // Numbers meet across an operation that nothing else uses; else both stay, for others read the first.
        let once = |src: Src| match src {
            Src::Reg(at) if uses[at as usize] == 1 => Some(live.instrs[at as usize]),
            _ => None,
        };
        let mut program = Program { instrs: vec![], result: live.result };
        let mut now: Vec<Src> = vec![];
        for instr in &live.instrs {
            let merged = merge_numbers(*instr, once).unwrap_or(*instr);
            let src = program.push(merged.map(|src| moved(src, &now)));
            now.push(src);
        }
        program.result = moved(live.result, &now);
        program.live()
    }

    /// How often each operation's result is read, the chain's result included.
    fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.instrs.len()];
        for src in self.instrs.iter().flat_map(Instr::sources).chain([self.result]) {
            if let Src::Reg(at) = src {
                uses[at as usize] += 1;
            }
        }
        uses
    }

    /// Without the operations that do not lead to the result; the result is then the last operation.
    pub(super) fn live(&self) -> Program {
        let mut wanted = vec![false; self.instrs.len()];
        if let Src::Reg(at) = self.result {
            wanted[at as usize] = true;
        }
        for (at, instr) in self.instrs.iter().enumerate().rev() {
            if wanted[at] {
                for src in instr.sources() {
                    if let Src::Reg(at) = src {
                        wanted[at as usize] = true;
                    }
                }
            }
        }
        let (mut instrs, mut now) = (vec![], vec![]);
        for (at, instr) in self.instrs.iter().enumerate() {
            now.push(Src::Reg(instrs.len() as u16));
            if wanted[at] {
                instrs.push(instr.map(|src| moved(src, &now)));
            }
        }
        Program { result: moved(self.result, &now), instrs }
    }

    fn at(&self, src: Src) -> Option<Instr> {
        match src {
            Src::Reg(at) => self.instrs.get(at as usize).copied(),
            _ => None,
        }
    }

    /// Adds an operation, or finds the source that has its result already.
    pub(super) fn push(&mut self, instr: Instr) -> Src {
        let instr = match instr {
            Instr::Unary(op, x) => match self.unary(op, x) {
                Ok(src) => return src,
                Err(instr) => instr,
            },
            Instr::Binary(op, x, y) => match self.binary(op, x, y) {
                Ok(src) => return src,
                Err(instr) => instr,
            },
            Instr::Select(Src::Const(x), y, z) => return if x != 0.0 { y } else { z },
            Instr::Select(_, y, z) if y == z => return y,
            select => select,
        };
        let known = self.instrs.iter().position(|other| same(other, &instr));
        Src::Reg(known.unwrap_or_else(|| {
            self.instrs.push(instr);
            self.instrs.len() - 1
        }) as u16)
    }

    fn unary(&mut self, op: Unary, x: Src) -> Result<Src, Instr> {
        if let (Src::Const(number), true) = (x, op != Unary::FromI32) {
            return Ok(Src::Const(unary(op, number)));
        }
        match (op, self.at(x)) {
            (Unary::Recip, Some(Instr::Unary(Unary::Sqrt, y))) => Err(Instr::Unary(Unary::Rsqrt, y)),
            (Unary::Recip, Some(Instr::Binary(Binary::Add, y, Src::Const(1.0)))) => {
                match self.exponent(y) {
                    // 1 / (1 + exp(−z)).
                    Some(z) => Err(Instr::Unary(Unary::Sigmoid, z)),
                    None => Err(Instr::Unary(op, x)),
                }
            }
            (Unary::Neg, _) => Err(Instr::Binary(Binary::Mul, x, Src::Const(-1.0))),
            _ => Err(Instr::Unary(op, x)),
        }
    }

    /// `z` where the source is exp(−z).
    fn exponent(&self, src: Src) -> Option<Src> {
        let Instr::Unary(Unary::Exp, x) = self.at(src)? else { return None };
        match self.at(x)? {
            Instr::Binary(Binary::Mul, z, Src::Const(-1.0)) => Some(z),
            _ => None,
        }
    }

    fn binary(&mut self, op: Binary, x: Src, y: Src) -> Result<Src, Instr> {
        let whole = op == Binary::EqualI32;
        if let (Src::Const(x), Src::Const(y)) = (x, y) {
            return Ok(Src::Const(binary(op, x, y)));
        }
        let (x, y) = if commutes(op) && before(y, x) { (y, x) } else { (x, y) };
        let again = Instr::Binary(op, x, y);
        match (op, y) {
            _ if whole => Err(again),
            (Binary::Mul | Binary::Div | Binary::Pow, Src::Const(1.0)) => Ok(x),
            (Binary::Add | Binary::Sub, Src::Const(0.0)) => Ok(x),
            (Binary::Max, Src::Const(f32::NEG_INFINITY)) => Ok(x),
            (Binary::Min, Src::Const(f32::INFINITY)) => Ok(x),
            (Binary::Max | Binary::Min | Binary::And | Binary::Or, _) if x == y => Ok(x),
            (Binary::Sub, Src::Const(number)) => Err(Instr::Binary(Binary::Add, x, Src::Const(-number))),
            (Binary::Div, Src::Const(number)) if (1.0 / number).is_normal() => {
                Err(Instr::Binary(Binary::Mul, x, Src::Const(1.0 / number)))
            }
            (Binary::Div, _) if x == Src::Const(1.0) => Ok(self.push(Instr::Unary(Unary::Recip, y))),
            (Binary::Div, Src::Reg(_)) => match self.at(y) {
                // x / (1 + exp(−z)): the logistic function.
                Some(Instr::Binary(Binary::Add, e, Src::Const(1.0))) if self.exponent(e).is_some() => {
                    let inverse = self.push(Instr::Unary(Unary::Recip, y));
                    Ok(self.push(Instr::Binary(Binary::Mul, x, inverse)))
                }
                _ => Err(again),
            },
            (Binary::Pow, Src::Const(2.0)) => Err(Instr::Unary(Unary::Square, x)),
            (Binary::Pow, Src::Const(0.5)) => Err(Instr::Unary(Unary::Sqrt, x)),
            (Binary::Pow, Src::Const(-1.0)) => Ok(self.push(Instr::Unary(Unary::Recip, x))),
            (Binary::Mul, _) if x == y => Err(Instr::Unary(Unary::Square, x)),
            _ => Err(again),
        }
    }
}

/// Two operations of one kind with numbers as one.
fn merge_numbers(instr: Instr, once: impl Fn(Src) -> Option<Instr>) -> Option<Instr> {
    let Instr::Binary(op, x, Src::Const(second)) = instr else { return None };
    let Some(Instr::Binary(inner, y, Src::Const(first))) = once(x) else { return None };
    let number = match (inner, op) {
        (Binary::Mul, Binary::Mul) => first * second,
        (Binary::Add, Binary::Add) => first + second,
        (Binary::Max, Binary::Max) => first.max(second),
        (Binary::Min, Binary::Min) => first.min(second),
        _ => return None,
    };
    let exact = match op {
        Binary::Mul => number.is_normal() && first.is_normal() && second.is_normal(),
        Binary::Add => !rounds_on_purpose(first, second),
        _ => true,
    };
    exact.then_some(Instr::Binary(op, y, Src::Const(number)))
}

/// Whether adding both numbers one after the other is meant to round, as x + 2²³ − 2²³ does to whole numbers.
pub(super) fn rounds_on_purpose(first: f32, second: f32) -> bool {
    const LARGE: f32 = 65536.0;
    let largest = first.abs().max(second.abs());
    largest > LARGE && (first + second).abs() < largest / 16.0
}

fn moved(src: Src, now: &[Src]) -> Src {
    match src {
        Src::Reg(at) => now[at as usize],
        src => src,
    }
}

fn commutes(op: Binary) -> bool {
    use Binary::{Add, And, Equal, EqualI32, Max, Min, Mul, NotEqual, Or, Xor};
    matches!(op, Add | Mul | Min | Max | Equal | NotEqual | EqualI32 | And | Or | Xor)
}

/// The order of sources where it is free: results, then operands, then numbers; earlier ones first.
fn before(x: Src, y: Src) -> bool {
    let key = |src: Src| match src {
        Src::Reg(at) => (0, at),
        Src::Operand(at) => (1, at),
        Src::Const(_) => (2, 0),
    };
    key(x) < key(y)
}

/// Whether two operations are one, a number that is no number included.
fn same(one: &Instr, other: &Instr) -> bool {
    let kind = match (one, other) {
        (Instr::Unary(one, _), Instr::Unary(other, _)) => one == other,
        (Instr::Binary(one, ..), Instr::Binary(other, ..)) => one == other,
        (Instr::Select(..), Instr::Select(..)) => true,
        _ => false,
    };
    let equal = |(one, other): (Src, Src)| match (one, other) {
        (Src::Const(one), Src::Const(other)) => one.to_bits() == other.to_bits(),
        _ => one == other,
    };
    kind && one.sources().zip(other.sources()).all(equal)
}

//! Activations that exporters write out: found by what they compute, not by how it is written.
//!
//! Each is x times a part that bends (a clamp, a sigmoid, an erf or a tanh of a polynomial in x). So a chain is
//! read as a polynomial in x and in that part, which is the same for every order of its products and sums.

use super::simplify::Program;
use crate::graph::{Binary, Instr, Src, Unary};

/// Numbers may be so far, relatively, from the formula's: exporters round them to 7 digits.
const TOLERANCE: f64 = 2e-6;

/// Coefficients of x⁰ … x³, each of the part's powers 0 and 1.
type Polynomial = [[f64; 2]; 4];

/// The program with the first activation found in it as one operation, where that makes it shorter.
pub(super) fn find(program: &Program) -> Option<Program> {
    for part in 0..program.instrs.len() {
        for (x, bend) in bends(program, part) {
            for root in part + 1..program.instrs.len() {
                let reader = Reader { program, x, part: Some(Src::Reg(part as u16)) };
                let Some((activation, factor)) =
                    reader.polynomial(Src::Reg(root as u16), 0).and_then(|p| bend.activation(&p))
                else {
                    continue;
                };
                let better = replaced(program, root, activation, x, factor);
                if better.live().instrs.len() < program.instrs.len() {
                    return Some(better);
                }
            }
        }
    }
    None
}

/// A part that bends, by its function of x.
#[derive(Clone, Copy, Debug)]
enum Bend {
    /// max(0, min(upper, upper · (x / 6 + 1 / 2))).
    Clamp {
        upper: f64,
    },
    Sigmoid,
    Erf,
    Tanh,
}

impl Bend {
    /// The activation that the polynomial in x and this part is, and the number that it is multiplied by.
    fn activation(self, p: &Polynomial) -> Option<(Unary, f64)> {
        let [x, bent] = p[1];
        let rest = [p[0], p[2], p[3]].concat();
        if rest.iter().any(|c| *c != 0.0) || bent == 0.0 {
            return None;
        }
        match self {
            Bend::Clamp { upper } if x == 0.0 => Some((Unary::HardSwish, bent * upper)),
            Bend::Sigmoid if x == 0.0 => Some((Unary::Silu, bent)),
            Bend::Erf if near(x, bent) => Some((Unary::GeluErf, bent * 2.0)),
            Bend::Tanh if near(x, bent) => Some((Unary::GeluTanh, bent * 2.0)),
            _ => None,
        }
    }
}

/// What the operation at that place is a bent part of: each x for which its argument is the formula's.
fn bends(program: &Program, at: usize) -> Vec<(Src, Bend)> {
    let clamp = |inner: Src, outer: Binary| match (outer, inner) {
        (_, Src::Reg(at)) => match (outer, program.instrs[at as usize]) {
            (Binary::Min, Instr::Binary(Binary::Max, a, Src::Const(0.0))) => Some((a, None)),
            (Binary::Max, Instr::Binary(Binary::Min, a, Src::Const(upper))) => Some((a, Some(upper))),
            _ => None,
        },
        _ => None,
    };
    let (argument, bend) = match program.instrs[at] {
        Instr::Unary(Unary::Sigmoid, a) => return vec![(a, Bend::Sigmoid)],
        Instr::Unary(Unary::Erf, a) => (a, Bend::Erf),
        Instr::Unary(Unary::Tanh, a) => (a, Bend::Tanh),
        Instr::Binary(op @ (Binary::Min | Binary::Max), inner, Src::Const(bound)) => {
            let Some((a, upper)) = clamp(inner, op) else { return vec![] };
            match upper {
                None => (a, Bend::Clamp { upper: f64::from(bound) }),
                Some(upper) if bound == 0.0 => (a, Bend::Clamp { upper: f64::from(upper) }),
                Some(_) => return vec![],
            }
        }
        _ => return vec![],
    };
    let expected = match bend {
        Bend::Clamp { upper } => [upper / 2.0, upper / 6.0, 0.0, 0.0],
        Bend::Erf => [0.0, std::f64::consts::FRAC_1_SQRT_2, 0.0, 0.0],
        Bend::Tanh => {
            let slope = (2.0 / std::f64::consts::PI).sqrt();
            [0.0, slope, 0.0, 0.044715 * slope]
        }
        Bend::Sigmoid => [0.0, 1.0, 0.0, 0.0],
    };
    let mut candidates = vec![];
    within(program, argument, 0, &mut candidates);
    let fits = |x: &Src| {
        let reader = Reader { program, x: *x, part: None };
        let found = reader.polynomial(argument, 0);
        found.is_some_and(|p| p.iter().zip(expected).all(|(p, expected)| near(p[0], expected)))
    };
    candidates.into_iter().filter(fits).map(|x| (x, bend)).collect()
}

/// Every operand and result that a source is made of, a few operations deep.
fn within(program: &Program, src: Src, depth: usize, found: &mut Vec<Src>) {
    const DEEPEST: usize = 6;
    if matches!(src, Src::Const(_)) || depth > DEEPEST || found.contains(&src) {
        return;
    }
    found.push(src);
    if let Src::Reg(at) = src {
        for src in program.instrs[at as usize].sources() {
            within(program, src, depth + 1, found);
        }
    }
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= TOLERANCE * other.abs()
}

fn replaced(program: &Program, root: usize, activation: Unary, x: Src, factor: f64) -> Program {
    let mut better = Program { instrs: vec![], result: program.result };
    let mut now: Vec<Src> = vec![];
    for (at, instr) in program.instrs.iter().enumerate() {
        let read = |src: Src| match src {
            Src::Reg(at) => now[at as usize],
            src => src,
        };
        let src = if at == root {
            let activated = better.push(Instr::Unary(activation, read(x)));
            match near(factor, 1.0) {
                true => activated,
                false => better.push(Instr::Binary(Binary::Mul, activated, Src::Const(factor as f32))),
            }
        } else {
            better.push(instr.map(read))
        };
        now.push(src);
    }
    if let Src::Reg(at) = program.result {
        better.result = now[at as usize];
    }
    better
}

/// Reads a chain as a polynomial in one source, and in a part of it that is taken as it is.
struct Reader<'a> {
    program: &'a Program,
    x: Src,
    part: Option<Src>,
}

impl Reader<'_> {
    fn polynomial(&self, src: Src, depth: usize) -> Option<Polynomial> {
        const DEEPEST: usize = 8;
        let mut p = [[0.0; 2]; 4];
        match src {
            _ if src == self.x => p[1][0] = 1.0,
            _ if Some(src) == self.part => p[0][1] = 1.0,
            Src::Const(number) => p[0][0] = f64::from(number),
            Src::Operand(_) => return None,
            Src::Reg(_) if depth == DEEPEST => return None,
            Src::Reg(at) => {
                let read = |src: Src| self.polynomial(src, depth + 1);
                return match self.program.instrs[at as usize] {
                    Instr::Unary(Unary::Neg, x) => times(&read(x)?, &number(-1.0)),
                    Instr::Unary(Unary::Square, x) => times(&read(x)?, &read(x)?),
                    Instr::Binary(Binary::Add, x, y) => Some(plus(&read(x)?, &read(y)?, 1.0)),
                    Instr::Binary(Binary::Sub, x, y) => Some(plus(&read(x)?, &read(y)?, -1.0)),
                    Instr::Binary(Binary::Mul, x, y) => times(&read(x)?, &read(y)?),
                    Instr::Binary(Binary::Div, x, Src::Const(c)) => {
                        times(&read(x)?, &number(1.0 / f64::from(c)))
                    }
                    Instr::Binary(Binary::Pow, x, Src::Const(3.0)) => {
                        let x = read(x)?;
                        times(&times(&x, &x)?, &x)
                    }
                    _ => None,
                };
            }
        }
        Some(p)
    }
}

fn number(number: f64) -> Polynomial {
    let mut p = [[0.0; 2]; 4];
    p[0][0] = number;
    p
}

fn plus(one: &Polynomial, other: &Polynomial, sign: f64) -> Polynomial {
    let mut sum = *one;
    for (sum, other) in sum.as_flattened_mut().iter_mut().zip(other.as_flattened()) {
        *sum += sign * other;
    }
    sum
}

/// The product, unless a power is too high to be part of any activation.
fn times(one: &Polynomial, other: &Polynomial) -> Option<Polynomial> {
    let mut product = [[0.0; 2]; 4];
    for (i, one) in one.iter().enumerate() {
        for (j, other) in other.iter().enumerate() {
            for (a, one) in one.iter().enumerate() {
                for (b, other) in other.iter().enumerate() {
                    if one * other != 0.0 {
                        *product.get_mut(i + j)?.get_mut(a + b)? += one * other;
                    }
                }
            }
        }
    }
    Some(product)
}

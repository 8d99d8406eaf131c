//! Chains computed here, one element after the other: for constants, whose values are known ahead.

use crate::graph::{Binary, Chain, Instr, Src, Unary, Value};
use crate::tensor::{DType, volume};

/// Constants of more elements are not computed with here.
const LARGEST_ELEMENTS: usize = 1 << 20;

/// The elements of a constant as a chain loads them: whole numbers as bits, bools as 0 or 1.
pub(super) fn load(value: &Value) -> Option<Vec<f32>> {
    let bytes = value.small_bytes(LARGEST_ELEMENTS)?;
    match value.dtype {
        DType::F32 | DType::I32 => Some(
            bytes
                .chunks_exact(4)
                .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
                .collect(),
        ),
        DType::Bool => Some(bytes.iter().map(|byte| f32::from(*byte)).collect()),
        _ => None,
    }
}

/// A chain's results for every element of the output; the operands broadcast.
pub(super) fn evaluate(chain: &Chain, operands: &[(&[usize], &[f32])], shape: &[usize]) -> Vec<f32> {
    let mut registers = vec![0.0; chain.instrs.len()];
    let mut loaded = vec![0.0; operands.len()];
    let mut result = Vec::with_capacity(volume(shape).unwrap_or(0));
    for at in 0..volume(shape).unwrap_or(0) {
        for (slot, (own, elements)) in loaded.iter_mut().zip(operands) {
            *slot = elements[broadcast_index(at, shape, own)];
        }
        result.push(element(chain, &loaded, &mut registers));
    }
    result
}

/// Where an operand of that shape keeps what belongs to the output's element `at`.
pub(super) fn broadcast_index(mut at: usize, shape: &[usize], own: &[usize]) -> usize {
    let (mut index, mut stride) = (0, 1);
    for (size, own) in shape.iter().zip(own).rev() {
        if *own != 1 {
            index += at % size * stride;
        }
        stride *= own;
        at /= size;
    }
    index
}

/// A chain's result for one element.
pub(super) fn element(chain: &Chain, operands: &[f32], registers: &mut [f32]) -> f32 {
    for (at, instr) in chain.instrs.iter().enumerate() {
        let read = |src: Src| match src {
            Src::Operand(at) => operands[at as usize],
            Src::Reg(at) => registers[at as usize],
            Src::Const(number) => number,
        };
        registers[at] = match *instr {
            Instr::Unary(op, x) => unary(op, read(x)),
            Instr::Binary(op, x, y) => binary(op, read(x), read(y)),
            Instr::Select(x, y, z) => read(if read(x) != 0.0 { y } else { z }),
        };
    }
    registers.last().copied().unwrap_or(0.0)
}

pub(super) fn unary(op: Unary, x: f32) -> f32 {
    let tanh_part = |x: f32| (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh();
    match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sign if x == 0.0 => 0.0,
        Unary::Sign => x.signum(),
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
        Unary::Sigmoid => sigmoid(x),
        Unary::Silu => x * sigmoid(x),
        Unary::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Unary::GeluErf => x / 2.0 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)),
        Unary::GeluTanh => x / 2.0 * (1.0 + tanh_part(x)),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round(),
        Unary::RoundHalfEven => x.round_ties_even(),
        Unary::Not => f32::from(x == 0.0),
        Unary::FromI32 => x.to_bits() as i32 as f32,
    }
}

pub(super) fn binary(op: Binary, x: f32, y: f32) -> f32 {
    match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Min => x.min(y),
        Binary::Max => x.max(y),
        Binary::Pow => x.powf(y),
        Binary::Equal => f32::from(x == y),
        Binary::NotEqual => f32::from(x != y),
        Binary::Less => f32::from(x < y),
        Binary::LessEqual => f32::from(x <= y),
        Binary::Greater => f32::from(x > y),
        Binary::GreaterEqual => f32::from(x >= y),
        Binary::EqualI32 => f32::from(x.to_bits() == y.to_bits()),
        Binary::And => f32::from(x != 0.0 && y != 0.0),
        Binary::Or => f32::from(x != 0.0 || y != 0.0),
        Binary::Xor => f32::from((x != 0.0) != (y != 0.0)),
        Binary::LeakyRelu if x >= 0.0 => x,
        Binary::LeakyRelu => x * y,
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// erf by its series 2 / √π · exp(−x²) · Σ 2ⁿ x²ⁿ⁺¹ / (2n + 1)!!, all of whose terms have one sign.
fn erf(x: f32) -> f32 {
    let x = f64::from(x);
    if x.is_nan() || x.abs() > 6.0 {
        return x.signum() as f32;
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while f64::abs(term) > 1e-17 * f64::abs(sum) {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    (std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum) as f32
}

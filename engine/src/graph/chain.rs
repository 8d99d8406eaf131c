//! Chains: several pointwise operations as one step, each element read once and written once.
//!
//! A chain is a straight-line program over registers of one element each. It runs for every element of the output;
//! an operand that is broadcast has stride 0 along the axes that it lacks. The arithmetic is f32. A bool is the
//! f32 0 or 1; a whole number is loaded as i32 bits and may only be compared or converted.

use serde::{Deserialize, Serialize};

/// Where an operation of a [`Chain`] reads from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Src {
    /// The element of that operand.
    Operand(u16),
    /// The result of that earlier operation of the chain.
    Reg(u16),
    /// A number.
    Const(f32),
}

/// Operations of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Unary {
    Neg,
    Abs,
    Sign,
    Square,
    Sqrt,
    /// 1 / sqrt(x).
    Rsqrt,
    /// 1 / x.
    Recip,
    Exp,
    Ln,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// x · sigmoid(x).
    Silu,
    /// x · max(0, min(1, x / 6 + 1 / 2)).
    HardSwish,
    /// x / 2 · (1 + erf(x / √2)).
    GeluErf,
    /// x / 2 · (1 + tanh(√(2 / π) · (x + 0.044715 · x³))).
    GeluTanh,
    Floor,
    Ceil,
    /// To the nearest whole number, halves away from zero.
    Round,
    /// To the nearest whole number, halves to the even one.
    RoundHalfEven,
    /// 1 where x is 0, else 0.
    Not,
    /// From i32 bits to the nearest f32.
    FromI32,
}

/// Operations of two arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    Pow,
    /// The comparisons give 1 or 0.
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// Both arguments are i32 bits.
    EqualI32,
    /// Both arguments are 0 or 1.
    And,
    Or,
    Xor,
    /// x where x ≥ 0, else x · the second argument.
    LeakyRelu,
}

/// One operation of a [`Chain`]; its result is the register of its position.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Instr {
    /// `op(x)`.
    Unary(Unary, Src),
    /// `op(x, y)`.
    Binary(Binary, Src, Src),
    /// `y` where `x` is not 0, else `z`.
    Select(Src, Src, Src),
}

/// A straight-line program; the result of its last operation is the output's element.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// The operations in order; each reads operands, numbers and earlier results.
    pub instrs: Vec<Instr>,
}

impl Instr {
    /// What the operation reads.
    pub fn sources(&self) -> impl Iterator<Item = Src> {
        let (sources, count) = match *self {
            Instr::Unary(_, x) => ([x, x, x], 1),
            Instr::Binary(_, x, y) => ([x, y, y], 2),
            Instr::Select(x, y, z) => ([x, y, z], 3),
        };
        sources.into_iter().take(count)
    }

    /// The same operation with every source replaced.
    pub fn map(self, mut change: impl FnMut(Src) -> Src) -> Instr {
        match self {
            Instr::Unary(op, x) => Instr::Unary(op, change(x)),
            Instr::Binary(op, x, y) => {
                let x = change(x);
                Instr::Binary(op, x, change(y))
            }
            Instr::Select(x, y, z) => {
                let (x, y) = (change(x), change(y));
                Instr::Select(x, y, change(z))
            }
        }
    }
}

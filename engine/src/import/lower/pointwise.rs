//! tract's element-wise nodes → chains of one operation, or of as many as one of theirs stands for.

use super::super::tract::{ElementWiseOp, LeakyRelu, LstmEpilogue, TypedBinOp, TypedNode};
use super::{Fact, Lower};
use crate::graph::{Binary, Chain, Instr, Op, Src, Unary, ValueId};
use crate::tensor::DType;

impl Lower<'_> {
    pub(super) fn binary(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<TypedBinOp>()?;
        let (left, right) = (self.input_fact(node, 0)?.0, self.input_fact(node, 1)?.0);
        let floats = left == DType::F32 && right == DType::F32;
        let bools = left == DType::Bool && right == DType::Bool && facts[0].0 == DType::Bool;
        let whole = left == DType::I32 && right == DType::I32;
        let op = match (op.0.name(), facts[0].0) {
            ("Add", DType::F32) if floats => Binary::Add,
            ("Sub", DType::F32) if floats => Binary::Sub,
            ("Mul", DType::F32) if floats => Binary::Mul,
            ("Div", DType::F32) if floats => Binary::Div,
            ("Min", DType::F32) if floats => Binary::Min,
            ("Max", DType::F32) if floats => Binary::Max,
            ("Pow", DType::F32) if floats => Binary::Pow,
            ("Eq", DType::Bool) if floats => Binary::Equal,
            ("NE", DType::Bool) if floats => Binary::NotEqual,
            ("LT", DType::Bool) if floats => Binary::Less,
            ("LTE", DType::Bool) if floats => Binary::LessEqual,
            ("GT", DType::Bool) if floats => Binary::Greater,
            ("GTE", DType::Bool) if floats => Binary::GreaterEqual,
            ("Eq", DType::Bool) if whole => Binary::EqualI32,
            ("And", DType::Bool) if bools => Binary::And,
            ("Or", DType::Bool) if bools => Binary::Or,
            ("Xor", DType::Bool) if bools => Binary::Xor,
            _ => return None,
        };
        let inputs = [self.input(node, 0)?, self.input(node, 1)?];
        let chain = Chain { instrs: vec![Instr::Binary(op, Src::Operand(0), Src::Operand(1))] };
        Some(self.one(node, Op::Pointwise(chain), &inputs, &facts[0]))
    }

    pub(super) fn unary(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<ElementWiseOp>()?;
        let input = self.input_fact(node, 0)?.0;
        let x = Src::Operand(0);
        let instr = match op.0.name().as_str() {
            "Not" if input == DType::Bool && facts[0].0 == DType::Bool => Instr::Unary(Unary::Not, x),
            // The one number that is not equal to itself.
            "IsNan" if input == DType::F32 && facts[0].0 == DType::Bool => {
                Instr::Binary(Binary::NotEqual, x, x)
            }
            _ if op.1.is_some() || input != DType::F32 || facts[0].0 != DType::F32 => return None,
            "LeakyRelu" => {
                Instr::Binary(Binary::LeakyRelu, x, Src::Const(op.0.downcast_ref::<LeakyRelu>()?.alpha))
            }
            name => Instr::Unary(unary(name)?, x),
        };
        let input = self.input(node, 0)?;
        Some(self.one(node, Op::Pointwise(Chain { instrs: vec![instr] }), &[input], &facts[0]))
    }

    /// `Iff`: the second input where the first is true, else the third.
    pub(super) fn select(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let dtypes: Vec<DType> =
            (0..3).map(|at| Some(self.input_fact(node, at)?.0)).collect::<Option<_>>()?;
        if dtypes != [DType::Bool, DType::F32, DType::F32] {
            return None;
        }
        let inputs = [self.input(node, 0)?, self.input(node, 1)?, self.input(node, 2)?];
        let chain = Chain { instrs: vec![Instr::Select(Src::Operand(0), Src::Operand(1), Src::Operand(2))] };
        Some(self.one(node, Op::Pointwise(chain), &inputs, &facts[0]))
    }

    /// The end of an LSTM cell: gates in the order i, o, f, c along the last axis, and the cell's state.
    pub(super) fn lstm(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let hidden = node.op_as::<LstmEpilogue>()?.hidden;
        if !self.all_floats(node, facts) {
            return None;
        }
        let ((_, gates), (_, state)) = (self.input_fact(node, 0)?, self.input_fact(node, 1)?);
        let axis = state.len().checked_sub(1)?;
        let mut expected = state.clone();
        expected[axis] = 4 * hidden;
        if gates != expected {
            return None;
        }
        let (all, cell) = (self.input(node, 0)?, self.input(node, 1)?);
        let mut gate = |at: usize| {
            let op = Op::Slice { axis, start: at * hidden, step: 1 };
            self.builder.node(&node.name, op, &[all], DType::F32, &state)
        };
        let (input, output, forget, candidate) = (gate(0), gate(1), gate(2), gate(3));
        let [i, f, g, c] = [0, 1, 2, 3].map(Src::Operand);
        let next = Chain {
            instrs: vec![
                Instr::Unary(Unary::Sigmoid, i),
                Instr::Unary(Unary::Sigmoid, f),
                Instr::Unary(Unary::Tanh, g),
                Instr::Binary(Binary::Mul, Src::Reg(1), c),
                Instr::Binary(Binary::Mul, Src::Reg(0), Src::Reg(2)),
                Instr::Binary(Binary::Add, Src::Reg(3), Src::Reg(4)),
            ],
        };
        let operands = [input, forget, candidate, cell];
        let next = self.builder.node(&node.name, Op::Pointwise(next), &operands, DType::F32, &state);
        let shown = Chain {
            instrs: vec![
                Instr::Unary(Unary::Sigmoid, Src::Operand(0)),
                Instr::Unary(Unary::Tanh, Src::Operand(1)),
                Instr::Binary(Binary::Mul, Src::Reg(0), Src::Reg(1)),
            ],
        };
        let shown = self.builder.node(&node.name, Op::Pointwise(shown), &[output, next], DType::F32, &state);
        Some(vec![shown, next])
    }
}

fn unary(name: &str) -> Option<Unary> {
    Some(match name {
        "Neg" => Unary::Neg,
        "Abs" => Unary::Abs,
        "Sign" => Unary::Sign,
        "Square" => Unary::Square,
        "Sqrt" => Unary::Sqrt,
        "Rsqrt" => Unary::Rsqrt,
        "Recip" => Unary::Recip,
        "Exp" => Unary::Exp,
        "Ln" => Unary::Ln,
        "Sin" => Unary::Sin,
        "Cos" => Unary::Cos,
        "Tan" => Unary::Tan,
        "Asin" => Unary::Asin,
        "Acos" => Unary::Acos,
        "Atan" => Unary::Atan,
        "Sinh" => Unary::Sinh,
        "Cosh" => Unary::Cosh,
        "Tanh" => Unary::Tanh,
        "Asinh" => Unary::Asinh,
        "Acosh" => Unary::Acosh,
        "Atanh" => Unary::Atanh,
        "Erf" => Unary::Erf,
        "Sigmoid" => Unary::Sigmoid,
        "Silu" => Unary::Silu,
        "HardSwish" => Unary::HardSwish,
        "GeluExact" => Unary::GeluErf,
        "Floor" => Unary::Floor,
        "Ceil" => Unary::Ceil,
        "Round" => Unary::Round,
        "RoundHalfToEven" => Unary::RoundHalfEven,
        _ => return None,
    })
}

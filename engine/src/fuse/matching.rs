//! Questions that patterns ask of a graph whose pointwise nodes are still single operations.

use super::edit::Edit;
use crate::graph::{Binary, Instr, Op, Reducer, Src, Unary, ValueId};

/// What an operation reads: a value or a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arg {
    Value(ValueId),
    Number(f32),
}

impl Arg {
    pub(super) fn value(self) -> Option<ValueId> {
        match self {
            Arg::Value(id) => Some(id),
            Arg::Number(_) => None,
        }
    }
}

impl Edit<'_> {
    /// The node at that place as one operation on values and numbers.
    fn single(&self, at: usize) -> Option<(Instr, Vec<Arg>)> {
        let node = self.node(at)?;
        let Op::Pointwise(chain) = &node.op else { return None };
        let [instr] = chain.instrs[..] else { return None };
        let args = instr.sources().map(|src| match src {
            Src::Operand(at) => node.inputs.get(at as usize).map(|id| Arg::Value(*id)),
            Src::Const(number) => Some(Arg::Number(number)),
            Src::Reg(_) => None,
        });
        Some((instr, args.collect::<Option<_>>()?))
    }

    /// `op(x)`.
    pub(super) fn unary(&self, id: ValueId) -> Option<(Unary, ValueId)> {
        match self.single(self.maker(id)?)? {
            (Instr::Unary(op, _), args) => Some((op, args[0].value()?)),
            _ => None,
        }
    }

    /// `op(x, y)`.
    pub(super) fn binary(&self, id: ValueId) -> Option<(Binary, Arg, Arg)> {
        match self.single(self.maker(id)?)? {
            (Instr::Binary(op, ..), args) => Some((op, args[0], args[1])),
            _ => None,
        }
    }

    /// `op(x, y)` of two values.
    pub(super) fn pair(&self, id: ValueId, wanted: Binary) -> Option<(ValueId, ValueId)> {
        match self.binary(id)? {
            (op, Arg::Value(x), Arg::Value(y)) if op == wanted => Some((x, y)),
            _ => None,
        }
    }

    /// `op(x, number)`, in either order where the order does not matter.
    pub(super) fn with_number(&self, id: ValueId, wanted: Binary) -> Option<(ValueId, f32)> {
        let commutes = matches!(wanted, Binary::Add | Binary::Mul | Binary::Max | Binary::Min);
        match self.binary(id)? {
            (op, Arg::Value(x), Arg::Number(number)) if op == wanted => Some((x, number)),
            (op, Arg::Number(number), Arg::Value(x)) if op == wanted && commutes => Some((x, number)),
            _ => None,
        }
    }

    /// A reduction: of which kind, over which axes, of what.
    pub(super) fn reduced(&self, id: ValueId) -> Option<(Reducer, &[usize], ValueId)> {
        let node = self.made_by(id)?;
        match &node.op {
            Op::Reduce(reducer, axes) => Some((*reducer, axes, *node.inputs.first()?)),
            _ => None,
        }
    }

    /// `x` where the value is x².
    pub(super) fn squared(&self, id: ValueId) -> Option<ValueId> {
        match self.unary(id) {
            Some((Unary::Square, x)) => Some(x),
            _ => self.pair(id, Binary::Mul).filter(|(x, y)| x == y).map(|(x, _)| x),
        }
    }

    /// `x` where the value is 1 / x.
    pub(super) fn inverse_of(&self, id: ValueId) -> Option<ValueId> {
        match (self.unary(id), self.binary(id)) {
            (Some((Unary::Recip, x)), _) => Some(x),
            (_, Some((Binary::Div, Arg::Number(1.0), Arg::Value(x)))) => Some(x),
            _ => None,
        }
    }
}

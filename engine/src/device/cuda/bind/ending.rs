//! Chains that products compute on elements in registers: an activation, and one further operand.

use super::super::kernels::epilogue::{Act, Order};
use crate::graph::{Binary, Chain, Instr, Src, Unary};

/// What a chain is to the end of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ending {
    pub(super) act: Act,
    pub(super) order: Order,
}

/// The chain as the end of a product, where it is one: its first operand is the product's element, its second, if
/// there is one, is added before the activation, or added or multiplied after it.
pub(super) fn ending(chain: &Chain) -> Option<Ending> {
    let mut rest = Rest { instrs: &chain.instrs, at: 0, last: Src::Operand(0) };
    let before = rest.joined(Binary::Add);
    let act = rest.act();
    let after = if before {
        Order::AddBefore
    } else if rest.joined(Binary::Add) {
        Order::AddAfter
    } else if rest.joined(Binary::Mul) {
        Order::MulAfter
    } else {
        Order::Alone
    };
    (rest.at == chain.instrs.len() && rest.at > 0).then_some(Ending { act, order: after })
}

/// What is left of a chain, and what it goes on from.
struct Rest<'a> {
    instrs: &'a [Instr],
    at: usize,
    last: Src,
}

impl Rest<'_> {
    /// Goes past so many operations.
    fn past(&mut self, count: usize) {
        self.at += count;
        self.last = Src::Reg((self.at - 1) as u16);
    }

    /// Goes past the join with the second operand by `op`, if that is next.
    fn joined(&mut self, op: Binary) -> bool {
        let next = self.instrs.get(self.at);
        let (here, other) = (self.last, Src::Operand(1));
        let is = matches!(next, Some(&Instr::Binary(own, x, y))
            if own == op && ((x, y) == (here, other) || (x, y) == (other, here)));
        if is {
            self.past(1);
        }
        is
    }

    /// The number that the next operation joins to `from` by `op`.
    fn number(&self, ahead: usize, op: Binary, from: Src) -> Option<f32> {
        match *self.instrs.get(self.at + ahead)? {
            Instr::Binary(own, x, Src::Const(number)) if own == op && x == from => Some(number),
            Instr::Binary(own, Src::Const(number), y)
                if own == op && y == from && op != Binary::LeakyRelu =>
            {
                Some(number)
            }
            _ => None,
        }
    }

    /// max(0, min(1, x · α + β)), if that is next: α, β, and how many operations it is.
    fn hard_sigmoid(&self) -> Option<(f32, f32, usize)> {
        let after = |count: usize| match count {
            0 => self.last,
            _ => Src::Reg((self.at + count - 1) as u16),
        };
        let mut count = 0;
        let mut number = |op: Binary| {
            let found = self.number(count, op, after(count));
            count += usize::from(found.is_some());
            found
        };
        let (alpha, beta) = (number(Binary::Mul), number(Binary::Add));
        let bounds = |first: Binary, second: Binary| {
            Some((
                self.number(count, first, after(count))?,
                self.number(count + 1, second, after(count + 1))?,
            ))
        };
        let clamped = bounds(Binary::Max, Binary::Min) == Some((0.0, 1.0))
            || bounds(Binary::Min, Binary::Max) == Some((1.0, 0.0));
        (count > 0 && clamped).then(|| (alpha.unwrap_or(1.0), beta.unwrap_or(0.0), count + 2))
    }

    /// The activation that is next, past which it goes.
    fn act(&mut self) -> Act {
        let (here, reg) = (self.last, |ahead: usize| Src::Reg((self.at + ahead) as u16));
        if let Some(&Instr::Unary(op, x)) = self.instrs.get(self.at)
            && x == here
        {
            let act = match op {
                Unary::Sigmoid => Act::Sigmoid,
                Unary::Silu => Act::Silu,
                Unary::HardSwish => Act::HardSwish,
                Unary::Tanh => Act::Tanh,
                Unary::GeluErf => Act::GeluErf,
                Unary::GeluTanh => Act::GeluTanh,
                _ => return Act::None,
            };
            self.past(1);
            return act;
        }
        if let Some((alpha, beta, count)) = self.hard_sigmoid() {
            self.past(count);
            return Act::HardSigmoid(alpha, beta);
        }
        if let Some(slope) = self.number(0, Binary::LeakyRelu, here) {
            self.past(1);
            return Act::LeakyRelu(slope);
        }
        if let Some(low) = self.number(0, Binary::Max, here) {
            if let Some(high) = self.number(1, Binary::Min, reg(0)).filter(|high| low <= *high) {
                self.past(2);
                return Act::Clamp(low, high);
            }
            self.past(1);
            return if low == 0.0 { Act::Relu } else { Act::Clamp(low, f32::INFINITY) };
        }
        if let Some(high) = self.number(0, Binary::Min, here) {
            self.past(1);
            return Act::Clamp(f32::NEG_INFINITY, high);
        }
        Act::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: Src = Src::Operand(0);
    const OTHER: Src = Src::Operand(1);

    fn check(instrs: &[Instr], wanted: Option<(Act, Order)>) {
        let found = ending(&Chain { instrs: instrs.to_vec() });
        assert_eq!(found, wanted.map(|(act, order)| Ending { act, order }), "{instrs:?}");
    }

    #[test]
    fn activations_with_and_without_an_operand_are_endings() {
        let relu = |x| Instr::Binary(Binary::Max, x, Src::Const(0.0));
        let add = |x, y| Instr::Binary(Binary::Add, x, y);
        check(&[relu(X)], Some((Act::Relu, Order::Alone)));
        check(&[add(OTHER, X)], Some((Act::None, Order::AddBefore)));
        check(&[add(X, OTHER), relu(Src::Reg(0))], Some((Act::Relu, Order::AddBefore)));
        check(&[relu(X), add(Src::Reg(0), OTHER)], Some((Act::Relu, Order::AddAfter)));
        let mul = Instr::Binary(Binary::Mul, OTHER, Src::Reg(0));
        check(&[Instr::Unary(Unary::Sigmoid, X), mul], Some((Act::Sigmoid, Order::MulAfter)));
        let high = Instr::Binary(Binary::Min, Src::Const(6.0), Src::Reg(0));
        check(&[relu(X), high], Some((Act::Clamp(0.0, 6.0), Order::Alone)));
        let number = |op, at: u16, number| Instr::Binary(op, Src::Reg(at), Src::Const(number));
        let scaled = Instr::Binary(Binary::Mul, X, Src::Const(0.2));
        let sigmoid =
            [scaled, number(Binary::Add, 0, 0.5), number(Binary::Min, 1, 1.0), number(Binary::Max, 2, 0.0)];
        check(&sigmoid, Some((Act::HardSigmoid(0.2, 0.5), Order::Alone)));
        check(&sigmoid[..3], None);
        let leaky = Instr::Binary(Binary::LeakyRelu, X, Src::Const(0.1));
        check(&[leaky], Some((Act::LeakyRelu(0.1), Order::Alone)));
    }

    #[test]
    fn what_reads_anything_else_is_none() {
        check(&[], None);
        check(&[Instr::Unary(Unary::Exp, X)], None);
        check(&[Instr::Binary(Binary::LeakyRelu, Src::Const(0.1), X)], None);
        check(&[Instr::Binary(Binary::Add, X, X)], None);
        check(&[Instr::Binary(Binary::Add, X, OTHER), Instr::Binary(Binary::Mul, Src::Reg(0), OTHER)], None);
        check(&[Instr::Unary(Unary::Sigmoid, X), Instr::Unary(Unary::Tanh, X)], None);
    }
}

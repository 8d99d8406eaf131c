//! The operations of a chain, with those joined that exporters write apart.

use super::program::TooLong;
use super::tile::{Op, Ternary};
use crate::graph::chain::{Binary, Chain, Instr, Src, Unary};

/// What a node reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arg {
    Operand(usize),
    /// The result of that node.
    Node(usize),
    Const(f32),
}

/// An operation and what it reads: the first `count` of `args`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) op: Op,
    pub(super) args: [Arg; 3],
    pub(super) count: usize,
}

/// The operations of a chain of so many operands.
pub(super) fn nodes(chain: &Chain, operands: usize) -> Result<Vec<Node>, TooLong> {
    let mut nodes = Vec::with_capacity(chain.instrs.len());
    for (index, instr) in chain.instrs.iter().enumerate() {
        let mut args = [Arg::Const(0.0); 3];
        let mut count = 0;
        for source in instr.sources() {
            args[count] = match source {
                Src::Operand(operand) if usize::from(operand) < operands => Arg::Operand(operand.into()),
                Src::Reg(register) if usize::from(register) < index => Arg::Node(register.into()),
                Src::Const(value) => Arg::Const(value),
                _ => return Err(TooLong::Empty),
            };
            count += 1;
        }
        let op = match *instr {
            Instr::Unary(op, _) => Op::Unary(op),
            Instr::Binary(op, ..) => Op::Binary(op),
            Instr::Select(..) => Op::Ternary(Ternary::Select),
        };
        nodes.push(Node { op, args, count });
    }
    if nodes.is_empty() { Err(TooLong::Empty) } else { Ok(nodes) }
}

/// Joins pairs of operations that exporters write, where nothing else reads the first of the two.
pub(super) fn join(nodes: &[Node]) -> Vec<Node> {
    let mut nodes = nodes.to_vec();
    for index in 0..nodes.len() {
        let lone = |arg: Arg| lone(&nodes, arg);
        let [x, y, z] = nodes[index].args;
        let joined = match nodes[index].op {
            Op::Binary(Binary::Pow) => match y {
                Arg::Const(2.0) => Some((Op::Unary(Unary::Square), [x, y, z], 1)),
                Arg::Const(0.5) => Some((Op::Unary(Unary::Sqrt), [x, y, z], 1)),
                Arg::Const(-1.0) => Some((Op::Unary(Unary::Recip), [x, y, z], 1)),
                Arg::Const(1.0) => Some((Op::Binary(Binary::Mul), [x, y, z], 2)),
                _ => None,
            },
            // Exact, if the divisor is a power of 2 whose reciprocal is a normal number.
            Op::Binary(Binary::Div) => match y {
                Arg::Const(c) if c.to_bits() << 9 == 0 && c.is_normal() && (1.0 / c).is_normal() => {
                    Some((Op::Binary(Binary::Mul), [x, Arg::Const(1.0 / c), z], 2))
                }
                _ => None,
            },
            Op::Binary(Binary::Min) => [(x, y), (y, x)].into_iter().find_map(|(inner, bound)| {
                let (Op::Binary(Binary::Max), [x, low, _]) = lone(inner)? else { return None };
                Some((Op::Ternary(Ternary::Clamp), [x, low, bound], 3))
            }),
            Op::Binary(Binary::Add) => [(x, y), (y, x)].into_iter().find_map(|(inner, term)| {
                let (Op::Binary(Binary::Mul), [x, y, _]) = lone(inner)? else { return None };
                Some((Op::Ternary(Ternary::MulAdd), [x, y, term], 3))
            }),
            Op::Binary(Binary::Mul) => [(x, y), (y, x)].into_iter().find_map(|(inner, factor)| {
                let (Op::Unary(Unary::Sigmoid), [x, ..]) = lone(inner)? else { return None };
                (x == factor).then_some((Op::Unary(Unary::Silu), [x, y, z], 1))
            }),
            _ => None,
        };
        let joined = match hard_swish(&nodes, index) {
            Some(x) => Some((Op::Unary(Unary::HardSwish), [x; 3], 1)),
            None => joined,
        };
        if let Some((op, args, count)) = joined {
            nodes[index] = Node { op, args, count };
            // What was joined reads nothing any more.
            for unread in 0..index {
                if readers(&nodes, unread) == 0 {
                    nodes[unread].count = 0;
                }
            }
        }
    }
    nodes
}

/// The operation and the arguments of a node that has one reader.
fn lone(nodes: &[Node], arg: Arg) -> Option<(Op, [Arg; 3])> {
    match arg {
        Arg::Node(node) if readers(nodes, node) == 1 => Some((nodes[node].op, nodes[node].args)),
        _ => None,
    }
}

/// x, if the node is x · clamp(x + 3, 0, 6) / 6 in one of the orders that exporters write.
fn hard_swish(nodes: &[Node], index: usize) -> Option<Arg> {
    let sixth = |op: Op, [x, y, _]: [Arg; 3]| match (op, y) {
        (Op::Binary(Binary::Div), Arg::Const(6.0)) => Some(x),
        (Op::Binary(Binary::Mul), Arg::Const(c)) if (c * 6.0 - 1.0).abs() < 1e-6 => Some(x),
        _ => None,
    };
    let gate = |arg: Arg| {
        let (Op::Ternary(Ternary::Clamp), [shifted, Arg::Const(0.0), Arg::Const(6.0)]) = lone(nodes, arg)?
        else {
            return None;
        };
        match lone(nodes, shifted)? {
            (Op::Binary(Binary::Add), [x, Arg::Const(3.0), _] | [Arg::Const(3.0), x, _]) => Some(x),
            _ => None,
        }
    };
    let (op, args) = (nodes[index].op, nodes[index].args);
    if let Some(product) = sixth(op, args)
        && let Some((Op::Binary(Binary::Mul), [x, y, _])) = lone(nodes, product)
    {
        return [(x, y), (y, x)].into_iter().find_map(|(x, y)| (gate(y)? == x).then_some(x));
    }
    let Op::Binary(Binary::Mul) = op else { return None };
    [(args[0], args[1]), (args[1], args[0])].into_iter().find_map(|(x, y)| {
        let (op, args) = lone(nodes, y)?;
        (gate(sixth(op, args)?)? == x).then_some(x)
    })
}

/// How many arguments are the result of that node.
fn readers(nodes: &[Node], node: usize) -> usize {
    nodes
        .iter()
        .flat_map(|reader| &reader.args[..reader.count])
        .filter(|&&arg| arg == Arg::Node(node))
        .count()
}

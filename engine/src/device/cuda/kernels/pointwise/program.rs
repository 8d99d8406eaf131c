//! A chain as operations of the interpreter: common pairs joined, and a slot for each result that is needed
//! later.

use super::super::launch::Unsupported;
use crate::graph::chain::{Binary, Chain, Instr, Src, Unary};

/// How many operands a chain may have.
pub(crate) const OPERANDS: usize = 12;
/// How many operations.
pub(super) const INSTRS: usize = 96;
/// How many different numbers.
pub(super) const NUMBERS: usize = 96;
/// How many results that are needed later than by the next operation, at once.
pub(crate) const SLOTS: usize = 10;

/// What an operation reads, as the kernel's byte.
const LAST: u8 = 0;
const OPERAND: u8 = 1;
const SLOT: u8 = 32;
const NUMBER: u8 = 64;
const NOTHING: u8 = 255;

/// The kernel's operations: those of [`Binary`] in their order, its own, and from 24 on those of [`Unary`].
const SELECT: u8 = 18;
const CLAMP: u8 = 19;
const MUL_ADD: u8 = 20;
const UNARY: u8 = 24;
const SAME: u8 = UNARY + Unary::FromI32 as u8 + 1;

/// One operation, as the kernel takes it: op, x, y and z from the lowest byte on; the slot that keeps its
/// result.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Code {
    what: u32,
    slot: u32,
}

impl Code {
    fn new(op: u8, sources: [u8; 3], slot: u8) -> Code {
        let [x, y, z] = sources;
        Code { what: u32::from_le_bytes([op, x, y, z]), slot: slot.into() }
    }

    #[cfg(test)]
    pub(super) fn what(self) -> u32 {
        self.what
    }

    #[cfg(test)]
    pub(super) fn slot(self) -> u32 {
        self.slot
    }
}

/// A chain of at most two operations that needs no interpretation: two operands joined or the first one as it
/// is, then a function or nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    join: u32,
    function: u32,
    /// The bounds of a clamp.
    bounds: [f32; 2],
}

/// The operations of a chain.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) codes: Vec<Code>,
    pub(super) numbers: Vec<f32>,
    /// How many slots are used.
    pub(super) slots: usize,
    /// The same, where it is that simple.
    pub(super) short: Option<Short>,
}

/// An operation and what it reads; one that was joined into another reads nothing.
#[derive(Clone, Debug)]
struct Node {
    op: u8,
    sources: Vec<Src>,
}

impl Program {
    /// The operations of `chain`, which has so many operands.
    pub(super) fn new(chain: &Chain, operands: usize) -> Result<Program, Unsupported> {
        let nodes = live(join(nodes(chain, operands)?));
        let too_many = |what, have, most| Unsupported::Chain { what, have, most };
        if nodes.len() > INSTRS {
            return Err(too_many("operations", nodes.len(), INSTRS));
        }
        let last_reader = |node: usize| {
            let reads = |reader: &Node| reader.sources.contains(&Src::Reg(node as u16));
            nodes.iter().rposition(reads)
        };
        let mut program =
            Program { codes: vec![], numbers: vec![], slots: 0, short: short(&nodes, operands) };
        // Until when each slot is taken, and which slot holds each result.
        let (mut taken, mut held): (Vec<usize>, Vec<u8>) = (vec![], vec![]);
        for (at, node) in nodes.iter().enumerate() {
            // The last operation's result is read where it is; what is not there is not read.
            let mut sources = [LAST, NOTHING, NOTHING];
            for (byte, source) in sources.iter_mut().zip(&node.sources) {
                *byte = match *source {
                    Src::Operand(operand) => OPERAND + operand as u8,
                    Src::Reg(register) if usize::from(register) + 1 == at => LAST,
                    Src::Reg(register) => SLOT + held[usize::from(register)],
                    Src::Const(number) => NUMBER + program.number(number)?,
                };
            }
            let slot = match last_reader(at) {
                Some(reader) if reader > at + 1 => {
                    // The operation that reads a slot last may write it.
                    let free = taken.iter().position(|&until| until <= at).unwrap_or(taken.len());
                    if free == SLOTS {
                        return Err(too_many("results at once", SLOTS + 1, SLOTS));
                    }
                    taken.resize(taken.len().max(free + 1), 0);
                    taken[free] = reader;
                    free as u8
                }
                _ => NOTHING,
            };
            held.push(slot);
            program.codes.push(Code::new(node.op, sources, slot));
        }
        program.slots = taken.len();
        Ok(program)
    }

    fn number(&mut self, number: f32) -> Result<u8, Unsupported> {
        let same = |known: &f32| known.to_bits() == number.to_bits();
        let at = self.numbers.iter().position(same).unwrap_or(self.numbers.len());
        if at == NUMBERS {
            return Err(Unsupported::Chain { what: "numbers", have: NUMBERS + 1, most: NUMBERS });
        }
        if at == self.numbers.len() {
            self.numbers.push(number);
        }
        Ok(at as u8)
    }
}

/// The operations as they stand, none of which reads what is not there.
fn nodes(chain: &Chain, operands: usize) -> Result<Vec<Node>, Unsupported> {
    let mut nodes = vec![];
    for (at, instr) in chain.instrs.iter().enumerate() {
        let there = |source: &Src| match *source {
            Src::Operand(operand) => usize::from(operand) < operands,
            Src::Reg(register) => usize::from(register) < at,
            Src::Const(_) => true,
        };
        let sources: Vec<Src> = instr.sources().collect();
        if !sources.iter().all(there) {
            return Err(Unsupported::Empty);
        }
        let op = match *instr {
            Instr::Unary(op, _) => UNARY + op as u8,
            Instr::Binary(op, ..) => op as u8,
            Instr::Select(..) => SELECT,
        };
        nodes.push(Node { op, sources });
    }
    if nodes.is_empty() { Err(Unsupported::Empty) } else { Ok(nodes) }
}

/// Joins pairs of operations that exporters write, where nothing else reads the first of the two.
fn join(mut nodes: Vec<Node>) -> Vec<Node> {
    const fn binary(op: Binary) -> u8 {
        op as u8
    }
    const fn unary(op: Unary) -> u8 {
        UNARY + op as u8
    }
    for at in 0..nodes.len() {
        let Node { op, sources } = nodes[at].clone();
        // The operation that makes a source, if that is what is wanted and nothing else reads it.
        let lone = |source: Src, wanted: u8| match source {
            Src::Reg(register) if nodes[usize::from(register)].op == wanted => {
                let readers = nodes.iter().flat_map(|node| &node.sources);
                let one = readers.filter(|&&read| read == source).count() == 1;
                one.then(|| (usize::from(register), nodes[usize::from(register)].sources.clone()))
            }
            _ => None,
        };
        let either = |wanted: u8| {
            let &[x, y] = sources.as_slice() else { return None };
            [(x, y), (y, x)]
                .into_iter()
                .find_map(|(inner, other)| lone(inner, wanted).map(|(node, inner)| (node, inner, other)))
        };
        let joined = match (op, sources.as_slice()) {
            (op, &[x, Src::Const(exponent)]) if op == binary(Binary::Pow) => match exponent {
                2.0 => Some((None, unary(Unary::Square), vec![x])),
                0.5 => Some((None, unary(Unary::Sqrt), vec![x])),
                -1.0 => Some((None, unary(Unary::Recip), vec![x])),
                _ => None,
            },
            // Exact, if the divisor is a power of 2 whose reciprocal is a normal number.
            (op, &[x, Src::Const(c)])
                if op == binary(Binary::Div)
                    && c.to_bits() << 9 == 0
                    && c.is_normal()
                    && (1.0 / c).is_normal() =>
            {
                Some((None, binary(Binary::Mul), vec![x, Src::Const(1.0 / c)]))
            }
            (op, _) if op == binary(Binary::Min) => either(binary(Binary::Max))
                .map(|(node, inner, bound)| (Some(node), CLAMP, vec![inner[0], inner[1], bound])),
            (op, _) if op == binary(Binary::Add) => either(binary(Binary::Mul))
                .map(|(node, inner, term)| (Some(node), MUL_ADD, vec![inner[0], inner[1], term])),
            (op, _) if op == binary(Binary::Mul) => either(unary(Unary::Sigmoid))
                .filter(|(_, inner, factor)| inner[0] == *factor)
                .map(|(node, inner, _)| (Some(node), unary(Unary::Silu), inner)),
            _ => None,
        };
        if let Some((consumed, op, sources)) = joined {
            if let Some(node) = consumed {
                nodes[node].sources.clear();
            }
            nodes[at] = Node { op, sources };
        }
    }
    nodes
}

/// The nodes that the last one needs, numbered anew.
fn live(nodes: Vec<Node>) -> Vec<Node> {
    let mut needed = vec![false; nodes.len()];
    needed[nodes.len() - 1] = true;
    for at in (0..nodes.len()).rev() {
        if needed[at] {
            for source in &nodes[at].sources {
                if let Src::Reg(register) = *source {
                    needed[usize::from(register)] = true;
                }
            }
        }
    }
    let mut number = vec![0; nodes.len()];
    let mut kept: Vec<Node> = vec![];
    for (at, mut node) in nodes.into_iter().enumerate().filter(|(at, _)| needed[*at]) {
        for source in &mut node.sources {
            if let Src::Reg(register) = source {
                *register = number[usize::from(*register)];
            }
        }
        number[at] = kept.len() as u16;
        kept.push(node);
    }
    kept
}

/// The nodes as a short chain, if they are one.
fn short(nodes: &[Node], operands: usize) -> Option<Short> {
    const FUNCTIONS: [Unary; 6] =
        [Unary::Sigmoid, Unary::Silu, Unary::HardSwish, Unary::GeluErf, Unary::GeluTanh, Unary::Tanh];
    let (first, second) = (Src::Operand(0), Src::Operand(1));
    let joins = |node: &Node| {
        let ordered = node.sources == [first, second];
        let swapped = node.sources == [second, first];
        match node.op {
            op if op == Binary::Add as u8 || op == Binary::Mul as u8 => ordered || swapped,
            op => op == Binary::Sub as u8 && ordered,
        }
    };
    let (joined, function) = match nodes {
        [one] if joins(one) => (Some(one), None),
        [one] => (None, Some(one)),
        [one, two] if joins(one) => (Some(one), Some(two)),
        _ => return None,
    };
    if operands != if joined.is_some() { 2 } else { 1 } {
        return None;
    }
    let x = if joined.is_some() { Src::Reg(0) } else { first };
    let mut bounds = [0.0; 2];
    let function = match function {
        None => SAME,
        Some(Node { op, sources })
            if sources == &[x] && FUNCTIONS.iter().any(|&known| UNARY + known as u8 == *op) =>
        {
            *op
        }
        Some(Node { op, sources }) => {
            bounds = match sources.as_slice() {
                &[y, Src::Const(c)] | &[Src::Const(c), y] if y == x => match *op {
                    op if op == Binary::Max as u8 => [c, f32::INFINITY],
                    op if op == Binary::Min as u8 => [f32::NEG_INFINITY, c],
                    _ => return None,
                },
                &[y, Src::Const(low), Src::Const(high)] if y == x && *op == CLAMP => [low, high],
                _ => return None,
            };
            CLAMP
        }
    };
    let join = joined.map_or(SAME, |node| node.op);
    Some(Short { join: join.into(), function: function.into(), bounds })
}

//! Two chains as one, and what a chain takes of a device.

use super::constants::{place_of, used_only};
use super::simplify::{Simplified, simplify};
use crate::graph::{Chain, Instr, Src, Unary, ValueId};

/// A chain and what it reads.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) chain: Chain,
    pub(super) inputs: Vec<ValueId>,
}

/// `outer` with every read of `id` replaced by what `inner` computes. `None` where nothing is left of it: then one
/// operand is the result, and no chain.
pub(super) fn merge(outer: &Bound, id: ValueId, inner: &Bound) -> Option<Bound> {
    let mut inputs = vec![];
    let inner_places: Vec<u16> = inner.inputs.iter().map(|id| place_of(&mut inputs, *id)).collect();
    let mut instrs: Vec<Instr> = vec![];
    for instr in &inner.chain.instrs {
        instrs.push(instr.map(|src| match src {
            Src::Operand(at) => Src::Operand(inner_places[at as usize]),
            src => src,
        }));
    }
    let count = instrs.len() as u16;
    let result = Src::Reg(count.checked_sub(1)?);
    let outer_places: Vec<Src> = outer
        .inputs
        .iter()
        .map(|other| if *other == id { result } else { Src::Operand(place_of(&mut inputs, *other)) })
        .collect();
    for instr in &outer.chain.instrs {
        instrs.push(instr.map(|src| match src {
            Src::Operand(at) => outer_places[at as usize],
            Src::Reg(at) => Src::Reg(at + count),
            src => src,
        }));
    }
    match simplify(&Chain { instrs }) {
        Simplified::Chain(chain) => {
            let (chain, inputs) = used_only(chain, &inputs);
            (!inputs.is_empty()).then_some(Bound { chain, inputs })
        }
        Simplified::Source(_) => None,
    }
}

/// The most results of a chain that are live at once.
pub(super) fn registers(chain: &Chain) -> usize {
    let mut last_use = vec![0; chain.instrs.len()];
    for (at, instr) in chain.instrs.iter().enumerate() {
        for src in instr.sources() {
            if let Src::Reg(read) = src {
                last_use[read as usize] = at;
            }
        }
    }
    let (mut live, mut most) = (0, 0);
    let mut dying = vec![0; chain.instrs.len()];
    for (at, last) in last_use.iter().enumerate() {
        live -= std::mem::take(&mut dying[at]);
        live += 1;
        most = most.max(live);
        if *last > at {
            dying[*last] += 1;
        } else {
            // The result of the chain, which nothing reads.
            live -= usize::from(at + 1 < chain.instrs.len());
        }
    }
    most
}

/// Whether computing a chain again costs less than reading its result from memory.
pub(super) fn is_cheap(chain: &Chain) -> bool {
    const FEW: usize = 2;
    let cheap = |instr: &Instr| match instr {
        Instr::Unary(op, _) => {
            matches!(op, Unary::Neg | Unary::Abs | Unary::Square | Unary::Not | Unary::FromI32 | Unary::Sign)
        }
        Instr::Binary(op, ..) => !matches!(op, crate::graph::Binary::Pow | crate::graph::Binary::Div),
        Instr::Select(..) => true,
    };
    chain.instrs.len() <= FEW && chain.instrs.iter().all(cheap)
}

//! What is done to scores before the softmax: a factor, and then a mask, in the forms that models have; or any chain.
//!
//! A factor goes to the queries, where it costs next to nothing. What does not depend on the score is the mask: it is
//! computed once for all rows where it is the same for all.

use super::super::pointwise::{BlockChain, Load, Part, TooLong};
use crate::graph::chain::{Binary, Chain, Instr, Src};
use smallvec::SmallVec;

/// What is done to each score.
#[derive(Debug)]
pub(super) struct Change {
    /// The factor.
    pub(super) scale: f32,
    /// What follows.
    pub(super) then: Then,
}

#[derive(Debug)]
pub(super) enum Then {
    Nothing,
    /// The mask is added.
    Add(Mask),
    /// The score stays where the mask is 0 or not, as `kept` says, and is a number elsewhere.
    Select {
        mask: Mask,
        other: f32,
        kept: bool,
    },
    /// A chain of which the score is the first operand.
    Chain(Box<BlockChain>),
}

/// A number a score.
#[derive(Debug)]
pub(super) struct Mask {
    pub(super) from: From,
    /// Whether rows differ.
    pub(super) varies: bool,
}

/// Where a mask comes from; operands are counted without the score.
#[derive(Debug)]
pub(super) enum From {
    /// It lies there as f32, a row without gaps.
    Place(usize, Part),
    /// It lies there as bools, a row without gaps; for a selection only.
    Bytes(usize, Part),
    /// It lies there otherwise.
    Copy(usize, Part),
    /// It is computed of all operands.
    Chain(Box<BlockChain>),
}

impl Change {
    /// By a chain whose operands from the second on lie as `parts` says; rows of scores are `stride` apart.
    pub(super) fn new(chain: Option<&Chain>, parts: &[Part], stride: usize) -> Result<Change, TooLong> {
        let Some(chain) = chain else { return Ok(Change { scale: 1.0, then: Then::Nothing }) };
        if let Some(change) = masked(chain, parts)? {
            return Ok(change);
        }
        let own = Part { load: Load::F32, row_stride: stride, col_stride: 1 };
        let parts: SmallVec<[Part; 4]> = [own].into_iter().chain(parts.iter().copied()).collect();
        Ok(Change { scale: 1.0, then: Then::Chain(Box::new(BlockChain::new(chain, &parts)?)) })
    }

    pub(super) fn mask(&self) -> Option<&Mask> {
        match &self.then {
            Then::Add(mask) | Then::Select { mask, .. } => Some(mask),
            Then::Nothing | Then::Chain(_) => None,
        }
    }
}

/// The chain as a factor and a mask, if it is that.
fn masked(chain: &Chain, parts: &[Part]) -> Result<Option<Change>, TooLong> {
    let Some((&last, _)) = chain.instrs.split_last() else { return Ok(None) };
    if let Some(scale) = factor(chain, Src::Reg(chain.instrs.len() as u16 - 1)) {
        return Ok(Some(Change { scale, then: Then::Nothing }));
    }
    let scaled = |src: Src| factor(chain, src);
    Ok(match last {
        Instr::Binary(Binary::Add, x, y) => {
            let found = [(x, y), (y, x)].into_iter().find_map(|(x, y)| Some((scaled(x)?, y)));
            let Some((scale, mask)) = found else { return Ok(None) };
            mask_of(chain, mask, parts)?.map(|mask| Change { scale, then: Then::Add(mask) })
        }
        Instr::Select(which, x, y) => {
            let (scale, other, kept) = match (scaled(x), scaled(y), x, y) {
                (Some(scale), _, _, Src::Const(other)) => (scale, other, true),
                (_, Some(scale), Src::Const(other), _) => (scale, other, false),
                _ => return Ok(None),
            };
            mask_of(chain, which, parts)?.map(|mut mask| {
                if let From::Copy(at, part @ Part { load: Load::Bool, col_stride: 1, .. }) = mask.from {
                    mask.from = From::Bytes(at, part);
                }
                Change { scale, then: Then::Select { mask, other, kept } }
            })
        }
        _ => None,
    })
}

/// The factor where the value is a multiple of the score.
fn factor(chain: &Chain, src: Src) -> Option<f32> {
    let Src::Reg(at) = src else { return (src == Src::Operand(0)).then_some(1.0) };
    match chain.instrs[at as usize] {
        Instr::Binary(Binary::Mul, x, Src::Const(by)) | Instr::Binary(Binary::Mul, Src::Const(by), x) => {
            Some(factor(chain, x)? * by)
        }
        Instr::Binary(Binary::Div, x, Src::Const(by)) => Some(factor(chain, x)? / by),
        _ => None,
    }
    .filter(|factor| factor.is_finite())
}

/// The value as a mask; `None` where it depends on the score, or is a number.
fn mask_of(chain: &Chain, src: Src, parts: &[Part]) -> Result<Option<Mask>, TooLong> {
    match src {
        Src::Operand(0) | Src::Const(_) => Ok(None),
        Src::Operand(at) => {
            let at = at as usize - 1;
            let Some(&part) = parts.get(at) else { return Err(TooLong::Empty) };
            let inplace = part.load == Load::F32 && part.col_stride == 1;
            let from = if inplace { From::Place(at, part) } else { From::Copy(at, part) };
            Ok(Some(Mask { from, varies: part.row_stride != 0 }))
        }
        Src::Reg(last) => {
            // What the mask reads, in order, and each operation's new place.
            let mut wanted = vec![false; last as usize + 1];
            wanted[last as usize] = true;
            let mut varies = false;
            for at in (0..=last as usize).rev() {
                if !wanted[at] {
                    continue;
                }
                for src in chain.instrs[at].sources() {
                    match src {
                        Src::Operand(0) => return Ok(None),
                        Src::Operand(at) => {
                            varies |= parts.get(at as usize - 1).is_some_and(|p| p.row_stride != 0)
                        }
                        Src::Reg(at) => wanted[at as usize] = true,
                        Src::Const(_) => {}
                    }
                }
            }
            let places: Vec<u16> = wanted
                .iter()
                .scan(0, |next, wanted| Some(std::mem::replace(next, *next + u16::from(*wanted))))
                .collect();
            let instrs = chain.instrs.iter().zip(&wanted).filter(|(_, wanted)| **wanted).map(|(instr, _)| {
                instr.map(|src| match src {
                    Src::Operand(at) => Src::Operand(at - 1),
                    Src::Reg(at) => Src::Reg(places[at as usize]),
                    number => number,
                })
            });
            let chain = BlockChain::new(&Chain { instrs: instrs.collect() }, parts)?;
            Ok(Some(Mask { from: From::Chain(Box::new(chain)), varies }))
        }
    }
}

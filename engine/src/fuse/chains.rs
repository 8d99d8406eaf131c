//! Pointwise operations that follow each other become one chain: each element is read once and written once.

use super::edit::Edit;
use super::merge::{Bound, is_cheap, merge, registers};
use crate::graph::{Op, ValueId};
use crate::tensor::DType;

/// Outputs of so few elements cost a step whatever is computed in it.
const TINY_ELEMENTS: usize = 4096;

pub(super) fn run(edit: &mut Edit<'_>) {
    // First what nobody else reads, through the whole graph: activations are found in it, which a copied part of
    // one would hide.
    for at in edit.places() {
        absorb(edit, at, absorbable);
    }
    for at in edit.places() {
        absorb(edit, at, recomputable);
    }
}

/// Whether a node may absorb the maker of one of its operands; `Err` with a reason where a person would wonder.
type Rule = fn(&Edit<'_>, usize, ValueId) -> Result<bool, String>;

/// Absorbs makers of operands until no more may be.
fn absorb(edit: &mut Edit<'_>, at: usize, rule: Rule) {
    let (mut refused, mut absorbed): (Vec<ValueId>, bool) = (vec![], false);
    while let Some(outer) = bound(edit, at) {
        let fresh = |id: &&ValueId| !refused.contains(id) && edit.maker(**id).is_some();
        let Some(&id) = outer.inputs.iter().find(fresh) else { break };
        refused.push(id);
        let Some(inner) = edit.maker(id).and_then(|maker| bound(edit, maker)) else { continue };
        match rule(edit, at, id) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(reason) => {
                edit.declined(at, reason);
                continue;
            }
        }
        let Some(merged) = merge(&outer, id, &inner) else { continue };
        if let Some(reason) = beyond(edit, &merged) {
            edit.declined(at, reason);
            continue;
        }
        edit.set(at, Op::Pointwise(merged.chain), merged.inputs);
        absorbed = true;
        // What was refused may have become shorter, or be read only by this node now.
        refused.clear();
    }
    if absorbed {
        edit.fused(at);
    }
}

fn bound(edit: &Edit<'_>, at: usize) -> Option<Bound> {
    let node = edit.node(at)?;
    match &node.op {
        Op::Pointwise(chain) => Some(Bound { chain: chain.clone(), inputs: node.inputs.clone() }),
        _ => None,
    }
}

/// Why a chain is more than a device takes.
pub(super) fn beyond(edit: &Edit<'_>, merged: &Bound) -> Option<String> {
    let limits = edit.preferences;
    let (operands, live) = (merged.inputs.len(), registers(&merged.chain));
    if operands > limits.chain_operands {
        return Some(format!(
            "the chain would read {operands} operands, the most is {}",
            limits.chain_operands
        ));
    }
    if live > limits.chain_registers {
        return Some(format!("the chain would keep {live} results, the most is {}", limits.chain_registers));
    }
    None
}

/// What nobody else reads is absorbed, unless it would be computed many times over.
fn absorbable(edit: &Edit<'_>, at: usize, id: ValueId) -> Result<bool, String> {
    let Some(y) = edit.output(at) else { return Ok(false) };
    if edit.only_reader(id) != Some(at) || !of_chains(edit, id) {
        return Ok(false);
    }
    if edit.shape(id) == edit.shape(y) {
        return Ok(!ends_apart(edit, at, id));
    }
    let (few, many) = (edit.value(id).elements(), edit.value(y).elements());
    let Some(maker) = edit.maker(id) else { return Ok(false) };
    if many <= TINY_ELEMENTS {
        return Ok(!goes_into_a_product(edit, maker));
    }
    let cheap = bound(edit, maker).is_some_and(|inner| is_cheap(&inner.chain));
    match cheap && !goes_into_a_product(edit, maker) {
        true => Ok(true),
        false if cheap => Ok(false),
        false => Err(format!(
            "`{}` is computed for {few} elements, here it would be for {many}",
            edit.value(id).name
        )),
    }
}

/// What several chains read is computed in each where that is cheap, and then nobody stores it.
fn recomputable(edit: &Edit<'_>, at: usize, id: ValueId) -> Result<bool, String> {
    let (Some(y), Some(maker)) = (edit.output(at), edit.maker(id)) else { return Ok(false) };
    let Some(inner) = bound(edit, maker) else { return Ok(false) };
    let all_can = !edit.is_output(id)
        && edit.readers(id).iter().all(|reader| {
            let same = edit.output(*reader).is_some_and(|y| edit.shape(y) == edit.shape(id));
            same && bound(edit, *reader).is_some_and(|outer| {
                outer.inputs.len() + inner.inputs.len() <= edit.preferences.chain_operands
            })
        });
    // Each reader reads what the maker read, instead of what it made: no more than before only if that is one value.
    let large = |id: &&ValueId| edit.shape(**id) == edit.shape(y);
    let one = inner.inputs.iter().filter(large).count() <= 1;
    Ok(all_can && one && is_cheap(&inner.chain) && of_chains(edit, id) && !goes_into_a_product(edit, maker))
}

fn of_chains(edit: &Edit<'_>, id: ValueId) -> bool {
    matches!(edit.value(id).dtype, DType::F32 | DType::Bool)
}

/// Whether both chains can become ends of products, each of its own. Then they do: of a sum of many products each
/// adds to the one before, and no more than one sum is kept at a time.
fn ends_apart(edit: &Edit<'_>, at: usize, id: ValueId) -> bool {
    let (Some(node), Some(maker)) = (edit.node(at), edit.maker(id)) else { return false };
    goes_into_a_product(edit, maker) && node.inputs.iter().any(|other| is_own_product(edit, at, *other))
}

/// Whether the chain can become the end of a product that makes one of its operands: it costs nothing there.
fn goes_into_a_product(edit: &Edit<'_>, at: usize) -> bool {
    edit.node(at).is_some_and(|node| node.inputs.iter().any(|id| is_own_product(edit, at, *id)))
}

/// Whether a product makes a value for the node at `at` alone, in the shape of what that makes.
fn is_own_product(edit: &Edit<'_>, at: usize, id: ValueId) -> bool {
    let product = edit.made_by(id).is_some_and(|node| node.op.epilogue().is_some());
    let ours = product && edit.only_reader(id) == Some(at);
    ours && edit.preferences.epilogue_chains
        && edit.output(at).is_some_and(|y| edit.shape(id) == edit.shape(y))
}

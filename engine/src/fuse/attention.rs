//! Products of queries and keys, their softmax, and its product with values → attention, which keeps no scores.
//!
//! What stands between the first product and the softmax (a scale, masks, biases of positions) has become the end
//! of that product by now, and becomes the chain of the attention.

use super::AttentionKeys;
use super::edit::Edit;
use super::merge::registers;
use crate::graph::{Attention, Binary, Chain, Einsum, Epilogue, Instr, Op, Src, ValueId};
use crate::tensor::DType;
use smallvec::SmallVec;

/// Operands and results of a chain that a block of scores is kept next to.
const LONGEST_CHAIN: usize = 8;

/// An attention and what it reads.
type Found = (Attention, Vec<ValueId>);

pub(super) fn run(edit: &mut Edit<'_>) {
    let Some(limits) = edit.preferences.attention else { return };
    for at in edit.places() {
        match found(edit, at, limits) {
            Ok(Some((attention, inputs))) => {
                edit.set(at, Op::Attention(Box::new(attention)), inputs);
                edit.fused(at);
            }
            Ok(None) => {}
            Err(reason) => edit.declined(at, reason),
        }
    }
}

/// The attention whose last product stands at `at`, and what it reads; `Err` where it almost is one.
fn found(edit: &Edit<'_>, at: usize, limits: AttentionKeys) -> Result<Option<Found>, String> {
    let Some((second, read, values, v)) = weighted(edit, at) else { return Ok(None) };
    let (weights, zeroes) = guarded(edit, read).map_or((read, false), |weights| (weights, true));
    let Some(over) = softmax_axis(edit, weights) else { return Ok(None) };
    let Some(scores) = edit.made_by(weights).and_then(|softmax| softmax.inputs.first().copied()) else {
        return Ok(None);
    };
    let Some(node) = edit.made_by(scores) else { return Ok(None) };
    let Op::Einsum(first) = &node.op else { return Ok(None) };
    let softmax = "the softmax of the scores";
    for (id, what) in [(scores, "the scores"), (weights, softmax), (read, softmax)] {
        if edit.only_reader(id).is_none() {
            return Err(format!("{what} `{}` are read by others too", edit.value(id).name));
        }
    }
    if second.epilogue != Epilogue::default() {
        return Err("something follows the product with the values".into());
    }
    let keys = edit.shape(scores)[over];
    let selects = |chain: &Chain| chain.instrs.iter().any(|instr| matches!(instr, Instr::Select(..)));
    let fewest = match first.epilogue.chain.as_ref().is_some_and(selects) {
        true => limits.fewest_selected,
        false => limits.fewest,
    };
    if keys < fewest {
        return Err(format!("there are {keys} keys, and steps apart are faster with fewer than {fewest}"));
    }
    if first.epilogue.bias {
        return Err("the scores have a bias".into());
    }
    let chain = first.epilogue.chain.clone();
    if let Some(chain) = &chain
        && let length = node.inputs.len() - 1 + registers(chain)
        && length > LONGEST_CHAIN
    {
        return Err(format!("what is done to the scores keeps {length} values, the most is {LONGEST_CHAIN}"));
    }
    let (attention, swapped) = labelled(first, second, v, over, zeroes, chain)?;
    let (mut q, mut k) = (node.inputs[0], node.inputs[1]);
    if swapped {
        (q, k) = (k, q);
    }
    let Some(y) = edit.output(at) else { return Ok(None) };
    let ids = [q, k, values, y];
    if ids.iter().any(|id| edit.value(*id).dtype != DType::F32) {
        return Ok(None);
    }
    let sizes = attention.sizes(ids.map(|id| edit.shape(id)))?;
    let roles = attention.roles(&sizes)?;
    let deepest = [roles.depth, roles.column]
        .into_iter()
        .flatten()
        .filter_map(|label| sizes.iter().find(|(known, _)| *known == label).map(|(_, size)| *size));
    if let Some(depth) = deepest.max().filter(|depth| *depth > limits.deepest) {
        return Err(format!("a key or a value has {depth} elements, the most is {}", limits.deepest));
    }
    if limits.additive && attention.additive().is_none() {
        return Err("more than a scale and a mask that is added is done to the scores".into());
    }
    let inputs = [q, k, values].into_iter().chain(node.inputs[2..].iter().copied()).collect();
    Ok(Some((attention, inputs)))
}

/// A product with a softmax: its labels, the softmax, the values, and whether those come first.
fn weighted<'a>(edit: &'a Edit<'_>, at: usize) -> Option<(&'a Einsum, ValueId, ValueId, bool)> {
    let node = edit.node(at)?;
    let Op::Einsum(einsum) = &node.op else { return None };
    let [a, b, ..] = node.inputs[..] else { return None };
    let is_softmax = |id: ValueId| softmax_axis(edit, guarded(edit, id).unwrap_or(id)).is_some();
    match (is_softmax(a), is_softmax(b)) {
        (true, _) if a != b => Some((einsum, a, b, false)),
        (false, true) => Some((einsum, b, a, true)),
        _ => None,
    }
}

/// What is read where this is not a number, and 0 instead: a softmax of scores that all are −∞ is made zeros so.
fn guarded(edit: &Edit<'_>, id: ValueId) -> Option<ValueId> {
    let node = edit.made_by(id)?;
    let (Op::Pointwise(chain), [weights]) = (&node.op, &node.inputs[..]) else { return None };
    let x = Src::Operand(0);
    let guard = [Instr::Binary(Binary::NotEqual, x, x), Instr::Select(Src::Reg(0), Src::Const(0.0), x)];
    (chain.instrs == guard && edit.shape(*weights) == edit.shape(id)).then_some(*weights)
}

/// The axis of a softmax over one.
fn softmax_axis(edit: &Edit<'_>, id: ValueId) -> Option<usize> {
    match &edit.made_by(id)?.op {
        Op::Softmax { axes, log: false } => axes.first().copied().filter(|_| axes.len() == 1),
        _ => None,
    }
}

/// The labels of both products as one, `values_first` telling the second one's order; and whether the keys come
/// first in the first.
fn labelled(
    first: &Einsum,
    second: &Einsum,
    values_first: bool,
    over: usize,
    zeroes: bool,
    chain: Option<Chain>,
) -> Result<(Attention, bool), String> {
    let scores = &first.c;
    let over = scores[over];
    let swapped = first.a.contains(&over);
    if swapped == first.b.contains(&over) {
        return Err("the softmax is not over keys that all queries share".into());
    }
    let (q, k) = if swapped { (&first.b, &first.a) } else { (&first.a, &first.b) };
    let (weights, v) = if values_first { (&second.b, &second.a) } else { (&second.a, &second.b) };
    // The second product's labels are those of the scores where it reads them, and new ones elsewhere.
    let used: Vec<char> = [scores, q, k].into_iter().flatten().copied().collect();
    let mut fresh = ('a'..='z').chain('A'..='Z').filter(|label| !used.contains(label));
    let mut known: Vec<(char, char)> = weights.iter().copied().zip(scores.iter().copied()).collect();
    let mut renamed = |labels: &[char]| -> Option<SmallVec<[char; 6]>> {
        let rename = |label: &char| {
            let old = known.iter().find(|(old, _)| old == label).map(|(_, new)| *new);
            old.or_else(|| {
                let new = fresh.next()?;
                known.push((*label, new));
                Some(new)
            })
        };
        labels.iter().map(rename).collect()
    };
    let (Some(v), Some(y)) = (renamed(v), renamed(&second.c)) else {
        return Err("it has too many axes".into());
    };
    let (q, k, scores) = (q.clone(), k.clone(), scores.clone());
    Ok((Attention { q, k, v, scores, y, over, zeroes, chain }, swapped))
}

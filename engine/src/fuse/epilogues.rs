//! A chain on a product becomes the product's end: its elements are at hand anyway.
//!
//! Where the chain reads what is made after the product, the product moves down to where the chain stood; the sum of
//! two products is the end of the later one. Of several products in one chain the last made is taken; one that
//! ends with a chain already only where there is no other.

use super::chains::beyond;
use super::constants::used_only;
use super::edit::Edit;
use super::merge::{Bound, merge};
use super::scales::Channels;
use super::simplify::{Simplified, simplify};
use crate::graph::{Binary, Chain, Instr, Node, Op, Src, ValueId};

pub(super) fn run(edit: &mut Edit<'_>) {
    for at in edit.places() {
        match product(edit, at) {
            Ok(Some(maker)) => fuse(edit, maker, at),
            Ok(None) => {}
            Err(reason) => edit.declined(at, reason),
        }
    }
}

/// The place of the product that the chain at `at` goes into.
fn product(edit: &Edit<'_>, at: usize) -> Result<Option<usize>, String> {
    let (Some(node), Some(y)) = (edit.node(at), edit.output(at)) else { return Ok(None) };
    let Op::Pointwise(_) = node.op else { return Ok(None) };
    let (mut last, mut reason) = (None, None);
    for &id in &node.inputs {
        let Some(maker) = edit.maker(id) else { continue };
        let Some(epilogue) = edit.node(maker).and_then(|node| node.op.epilogue()) else { continue };
        let name = &edit.value(id).name;
        if edit.only_reader(id) != Some(at) {
            let others = edit.readers(id).iter().filter(|reader| **reader != at).count();
            let who = if edit.is_output(id) { "the caller".into() } else { format!("{others} others") };
            reason = Some(format!("`{name}` is read by {who} too"));
        } else if edit.shape(id) != edit.shape(y) {
            reason = Some(format!("`{name}` has shape {:?}, the result {:?}", edit.shape(id), edit.shape(y)));
        } else {
            last = last.max(Some((epilogue.chain.is_none(), maker)));
        }
    }
    match (last, reason) {
        (None, Some(reason)) => Err(reason),
        (last, _) => Ok(last.map(|(_, maker)| maker)),
    }
}

fn fuse(edit: &mut Edit<'_>, maker: usize, at: usize) {
    let (Some(made), Some(node)) = (edit.node(maker), edit.node(at)) else { return };
    let Op::Pointwise(chain) = &node.op else { return };
    let (Some(channels), Some(&element)) = (Channels::of(edit, made), made.outputs.first()) else { return };
    let (mut op, mut inputs) = (made.op.clone(), made.inputs.clone());
    let Some(epilogue) = op.epilogue_mut() else { return };
    let later = Bound { chain: chain.clone(), inputs: node.inputs.clone() };
    let whole = match epilogue.chain.take() {
        None => later,
        Some(chain) => {
            // The product's own chain reads the element too, which stands for what it was before any chain.
            let own = inputs.split_off(2 + usize::from(epilogue.bias));
            let earlier = Bound { chain, inputs: [&[element], own.as_slice()].concat() };
            let Some(whole) = merge(&later, element, &earlier) else { return };
            if let Some(reason) = beyond(edit, &whole) {
                return edit.declined(at, reason);
            }
            whole
        }
    };
    let taken = match bias_known(edit, made) {
        true => take_biases(edit, &whole.chain, &whole.inputs, element, &channels),
        false => Taken { chain: whole.chain.clone(), biases: vec![] },
    };
    let operands = match simplify(&taken.chain) {
        Simplified::Chain(chain) => {
            let (chain, used) = used_only(chain, &whole.inputs);
            // Where the element was simplified away nothing reads the product, and nothing is gained here.
            let Some(operands) = from_element(&chain, &used, element) else { return };
            Some(operands)
        }
        // Nothing but biases: what is left is the element as it is.
        Simplified::Source(Src::Operand(place)) if whole.inputs[place as usize] == element => None,
        Simplified::Source(_) => return,
    };
    if !edit.preferences.epilogue_chains && operands.is_some() {
        return edit.declined(at, "the device adds only a bias at the end of a product");
    }
    let name = made.name.clone();
    if !taken.biases.is_empty() {
        let earlier = epilogue.bias.then(|| inputs[2]);
        epilogue.bias = true;
        let sum = sum_of(edit, &channels, earlier, &taken.biases);
        inputs.truncate(2);
        inputs.push(match taken.biases[..] {
            [only] if earlier.is_none() => flat(edit, only, channels.count),
            _ => edit.add_floats(&format!("{name}.bias"), &[channels.count], &sum),
        });
    }
    if let Some((chain, others)) = operands {
        epilogue.chain = Some(chain);
        inputs.extend(others);
    }
    let at = edit.take_over(maker, at, op, inputs);
    edit.fused(at);
}

fn bias_known(edit: &Edit<'_>, made: &Node) -> bool {
    made.op.epilogue().is_some_and(|epilogue| !epilogue.bias || edit.is_constant(made.inputs[2]))
}

/// The constant as a list of numbers.
fn flat(edit: &mut Edit<'_>, id: ValueId, count: usize) -> ValueId {
    if edit.shape(id) == [count] { id } else { edit.add_reshaped(id, &[count]) }
}

fn sum_of(edit: &Edit<'_>, channels: &Channels, earlier: Option<ValueId>, biases: &[ValueId]) -> Vec<f32> {
    let mut sum = vec![0.0; channels.count];
    for id in earlier.iter().chain(biases) {
        let floats = edit.value(*id).small_floats(channels.count).unwrap_or_default();
        sum.iter_mut().zip(floats).for_each(|(sum, x)| *sum += x);
    }
    sum
}

/// A chain without the additions of biases that it begins with.
struct Taken {
    chain: Chain,
    biases: Vec<ValueId>,
}

/// Takes the biases out of the sum that a chain begins with; other summands, as of a residual, may stand between.
fn take_biases(
    edit: &Edit<'_>,
    chain: &Chain,
    inputs: &[ValueId],
    element: ValueId,
    channels: &Channels,
) -> Taken {
    let mut instrs = chain.instrs.clone();
    let mut biases = vec![];
    let Some(place) = inputs.iter().position(|id| *id == element) else {
        return Taken { chain: chain.clone(), biases };
    };
    let mut sum = Src::Operand(place as u16);
    loop {
        let reads = |instr: &Instr| instr.sources().filter(|src| *src == sum).count();
        if instrs.iter().map(reads).sum::<usize>() != 1 {
            break;
        }
        let Some(at) = instrs.iter().position(|instr| reads(instr) == 1) else { break };
        let Instr::Binary(Binary::Add, x, y) = instrs[at] else { break };
        if let Src::Operand(other) = if x == sum { y } else { x }
            && let id = inputs[other as usize]
            && edit
                .value(id)
                .small_floats(channels.count)
                .is_some_and(|floats| floats.len() == channels.count)
            && channels.axis.is_some()
            && channels.allow(edit.shape(id))
        {
            // x + 0 goes when the chain is simplified.
            instrs[at] = Instr::Binary(Binary::Add, sum, Src::Const(0.0));
            biases.push(id);
        }
        sum = Src::Reg(at as u16);
    }
    Taken { chain: Chain { instrs }, biases }
}

/// The chain with the product's element as its first operand, and its others in order.
fn from_element(chain: &Chain, inputs: &[ValueId], element: ValueId) -> Option<(Chain, Vec<ValueId>)> {
    let place = inputs.iter().position(|id| *id == element)? as u16;
    let others = inputs.iter().copied().filter(|id| *id != element).collect();
    let instrs = chain.instrs.iter().map(|instr| {
        instr.map(|src| match src {
            Src::Operand(at) if at == place => Src::Operand(0),
            Src::Operand(at) if at < place => Src::Operand(at + 1),
            src => src,
        })
    });
    Some((Chain { instrs: instrs.collect() }, others))
}

//! Multiplications and additions of constants after a product → its weights and its bias.
//!
//! Weights that others read too would have to be copied. Since the ceiling is what counts here, and a
//! multiplication at the product's end is almost free, that is done only up to [`LARGEST_GROWTH_BYTES`].

use super::affine::{Run, Small, run_from};
use super::edit::Edit;
use super::matching::Arg;
use crate::graph::{Binary, Chain, Data, Instr, Node, Op, Src, Value, ValueId};
use crate::tensor::DType;
use std::collections::HashMap;
use std::sync::Arc;

/// By how much all of a model's constants may grow.
const LARGEST_GROWTH_BYTES: usize = 1 << 20;

pub(super) fn run(edit: &mut Edit<'_>) {
    let mut candidates: Vec<Candidate> = edit.places().filter_map(|at| candidate(edit, at)).collect();
    refuse_growth(edit, &mut candidates);
    let mut scaled = HashMap::new();
    for candidate in candidates {
        apply(edit, candidate, &mut scaled);
    }
    for at in edit.places() {
        shorten(edit, at);
    }
}

/// Where a product's channels are.
pub(super) struct Channels {
    /// How many numbers its bias has.
    pub(super) count: usize,
    /// The output's axis, where it is one.
    pub(super) axis: Option<usize>,
    /// The weights' axis.
    weights_axis: Option<usize>,
}

impl Channels {
    /// `None` for what is no product.
    pub(super) fn of(edit: &Edit<'_>, node: &Node) -> Option<Channels> {
        let y = edit.shape(*node.outputs.first()?);
        let (axis, weights_axis) = match &node.op {
            Op::Conv(conv) => (conv.image.channel, Some(0)),
            Op::ConvTranspose(conv) => (conv.image.channel, (conv.groups == 1).then_some(1)),
            Op::Einsum(einsum) => {
                let column = |label: &char| einsum.b.contains(label) && !einsum.a.contains(label);
                let columns: Vec<usize> =
                    (0..y.len()).filter(|at| column(&einsum.c[*at]) && y[*at] != 1).collect();
                let count = columns.iter().map(|at| y[*at]).product();
                let [axis] = columns[..] else {
                    return Some(Channels { count, axis: None, weights_axis: None });
                };
                (axis, einsum.b.iter().position(|label| *label == einsum.c[axis]))
            }
            _ => return None,
        };
        Some(Channels { count: y[axis], axis: Some(axis), weights_axis })
    }

    /// Whether a constant of that shape has one number a channel, or one for all.
    pub(super) fn allow(&self, shape: &[usize]) -> bool {
        shape.iter().enumerate().all(|(at, size)| *size == 1 || Some(at) == self.axis)
    }

    /// One number a channel.
    fn spread(&self, small: &Small) -> Vec<f64> {
        match small.elements[..] {
            [number] => vec![number; self.count],
            _ => small.elements.clone(),
        }
    }
}

/// A product and the run that can go into it.
struct Candidate {
    at: usize,
    channels: Channels,
    run: Run,
    weights: Option<Weights>,
}

/// Constant weights, perhaps behind a permutation that only this product reads.
#[derive(Clone)]
pub(super) struct Weights {
    pub(super) constant: ValueId,
    view: Option<usize>,
    /// The constant's axis along which the channels lie.
    axis: Option<usize>,
}

impl Weights {
    /// Lets the product whose inputs these are read another constant; `false` where its view is gone.
    pub(super) fn replace(&self, edit: &mut Edit<'_>, inputs: &mut [ValueId], id: ValueId) -> bool {
        match self.view {
            None => inputs[1] = id,
            Some(view) => {
                let Some(op) = edit.node(view).map(|node| node.op.clone()) else { return false };
                edit.set(view, op, vec![id]);
            }
        }
        true
    }
}

fn candidate(edit: &Edit<'_>, at: usize) -> Option<Candidate> {
    let node = edit.node(at)?;
    let epilogue = node.op.epilogue()?;
    let bias_known = !epilogue.bias || edit.is_constant(*node.inputs.get(2)?);
    if epilogue.chain.is_some() || !bias_known {
        return None;
    }
    let channels = Channels::of(edit, node)?;
    let weights = weights(edit, at, node, &channels)
        .filter(|weights| weights.axis.is_some() || channels.axis.is_none());
    let y = edit.output(at)?;
    let run = run_from(edit, edit.only_reader(y)?, y, weights.is_some(), |shape| channels.allow(shape))?;
    Some(Candidate { at, channels, run, weights })
}

pub(super) fn weights(edit: &Edit<'_>, at: usize, node: &Node, channels: &Channels) -> Option<Weights> {
    let id = *node.inputs.get(1)?;
    if edit.is_constant(id) {
        return Some(Weights { constant: id, view: None, axis: channels.weights_axis });
    }
    let Node { op: Op::Permute(order), inputs, .. } = edit.made_by(id)? else { return None };
    let constant = *inputs.first().filter(|id| edit.is_constant(**id))?;
    let alone = edit.only_reader(id) == Some(at);
    let axis = channels.weights_axis.map(|axis| order[axis]);
    alone.then_some(Weights { constant, view: edit.maker(id), axis })
}

/// The bits of a scale: products with one scale share their scaled weights.
fn bits(scale: &Small) -> Vec<u64> {
    scale.elements.iter().map(|x| x.to_bits()).collect()
}

/// Lets go of the multiplications for which constants would grow too much.
fn refuse_growth(edit: &mut Edit<'_>, candidates: &mut Vec<Candidate>) {
    let mut groups: HashMap<ValueId, (usize, Vec<Vec<u64>>)> = HashMap::new();
    for candidate in candidates.iter() {
        if let (Some(weights), Some(scale)) = (&candidate.weights, &candidate.run.scale) {
            let (readers, scales) = groups.entry(weights.constant).or_default();
            *readers += 1;
            let bits = bits(scale);
            if !scales.contains(&bits) {
                scales.push(bits);
            }
        }
    }
    let mut growth = 0;
    let mut order: Vec<(ValueId, usize)> = groups
        .into_iter()
        .map(|(id, (readers, scales))| {
            let replaced = usize::from(edit.readers(id).len() == readers && !edit.is_output(id));
            (id, edit.value(id).bytes().saturating_mul(scales.len() - replaced))
        })
        .collect();
    // The cheapest first, so that the most fit.
    order.sort_by_key(|(id, bytes)| (*bytes, id.0));
    let refused: HashMap<ValueId, usize> = order
        .into_iter()
        .filter(|(_, bytes)| {
            let fits = growth + bytes <= LARGEST_GROWTH_BYTES;
            growth += if fits { *bytes } else { 0 };
            !fits
        })
        .collect();
    for mut candidate in std::mem::take(candidates) {
        let constant = candidate.weights.as_ref().map(|weights| weights.constant);
        if let (Some(bytes), true) = (constant.and_then(|id| refused.get(&id)), candidate.run.scale.is_some())
        {
            let reason =
                format!("its weights are read by others too, and copies would take {bytes} bytes more");
            edit.declined(candidate.at, reason);
            let Some(y) = edit.output(candidate.at) else { continue };
            let Some(first) = edit.only_reader(y) else { continue };
            let channels = &candidate.channels;
            let Some(run) = run_from(edit, first, y, false, |shape| channels.allow(shape)) else { continue };
            candidate.run = run;
        }
        candidates.push(candidate);
    }
}

type Scaled = HashMap<(ValueId, Vec<u64>), ValueId>;

fn apply(edit: &mut Edit<'_>, candidate: Candidate, scaled: &mut Scaled) {
    let Candidate { at, channels, run, weights } = candidate;
    let Some(node) = edit.node(at) else { return };
    let (mut op, mut inputs, name) = (node.op.clone(), node.inputs.clone(), node.name.clone());
    let Some(epilogue) = op.epilogue_mut() else { return };
    let mut bias = vec![0.0; channels.count];
    if epilogue.bias
        && let Some(floats) =
            edit.value(inputs[2]).small_floats(bias.len()).filter(|floats| floats.len() == bias.len())
    {
        bias = floats.into_iter().map(f64::from).collect();
    }
    if let Some(scale) = &run.scale {
        bias.iter_mut().zip(channels.spread(scale)).for_each(|(bias, scale)| *bias *= scale);
    }
    if let Some(shift) = &run.shift {
        bias.iter_mut().zip(channels.spread(shift)).for_each(|(bias, shift)| *bias += shift);
    }
    let bias: Vec<f32> = bias.into_iter().map(|x| x as f32).collect();
    if let (Some(scale), Some(weights)) = (&run.scale, &weights) {
        let key = (weights.constant, bits(scale));
        let known = scaled.get(&key).copied().or_else(|| multiplied(edit, weights, scale));
        let Some(id) = known.filter(|_| bias.iter().all(|x| x.is_finite())) else {
            return edit.declined(at, "the scaled weights would not be finite");
        };
        scaled.insert(key, id);
        if !weights.replace(edit, &mut inputs, id) {
            return;
        }
    }
    if epilogue.bias || run.shift.is_some() {
        epilogue.bias = true;
        let id = edit.add_floats(&format!("{name}.bias"), &[channels.count], &bias);
        inputs.truncate(2);
        inputs.push(id);
    }
    let at = edit.take_over(at, run.end, op, inputs);
    edit.fused(at);
    if let Some(weights) = weights {
        edit.drop_unread(weights.constant);
    }
}

/// New weights, all multiplied by a number.
pub(super) fn multiplied_by(edit: &mut Edit<'_>, weights: &Weights, number: f32) -> Option<ValueId> {
    multiplied(edit, weights, &Small { shape: vec![], elements: vec![f64::from(number)] })
}

/// New weights; `None` where one would not be finite.
fn multiplied(edit: &mut Edit<'_>, weights: &Weights, scale: &Small) -> Option<ValueId> {
    let value = edit.value(weights.constant);
    let (factors, inner) = match (scale.elements.as_slice(), weights.axis) {
        ([number], _) => (vec![*number], 1),
        (elements, Some(axis)) if value.shape.get(axis) == Some(&elements.len()) => {
            (elements.to_vec(), value.shape[axis + 1..].iter().product::<usize>().max(1))
        }
        _ => return None,
    };
    let factors: Arc<[f32]> = factors.into_iter().map(|factor| factor as f32).collect();
    if !factors.iter().all(|factor| factor.is_finite()) {
        return None;
    }
    // The weights stay where they are, in memory or in the file, and are multiplied when they are packed.
    let base = Box::new(value.constant.clone().filter(|_| value.dtype == DType::F32)?);
    let constant = Some(Data::Scaled { base, factors, inner });
    let scaled = Value { constant, ..value.clone() };
    Some(edit.add_value(scaled))
}

/// Several multiplications and additions of constants in a row, after no product, as one of each.
fn shorten(edit: &mut Edit<'_>, at: usize) {
    let Some(y) = edit.output(at) else { return };
    let x = match edit.binary(y) {
        Some((_, Arg::Value(x), _)) if !edit.is_constant(x) => x,
        Some((_, _, Arg::Value(x))) if !edit.is_constant(x) => x,
        _ => return,
    };
    let Some(run) = run_from(edit, at, x, true, |_| true) else { return };
    let parts = [(Binary::Mul, &run.scale), (Binary::Add, &run.shift)];
    if run.length <= parts.iter().filter(|(_, part)| part.is_some()).count() {
        return;
    }
    let (mut inputs, mut instrs, mut src) = (vec![x], vec![], Src::Operand(0));
    for (op, part) in parts {
        let Some(part) = part else { continue };
        let other = match part.elements[..] {
            [number] => Src::Const(number as f32),
            _ => {
                inputs.push(edit.add_floats("affine", &part.shape, &part.floats()));
                Src::Operand(inputs.len() as u16 - 1)
            }
        };
        instrs.push(Instr::Binary(op, src, other));
        src = Src::Reg(instrs.len() as u16 - 1);
    }
    edit.set(run.end, Op::Pointwise(Chain { instrs }), inputs);
    edit.fused(run.end);
}

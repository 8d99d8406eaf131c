//! Attention as one kernel. What is done to the scores is a scale and a mask that is added; a mask that is computed
//! from several operands, or lies such that the kernel cannot read it, is made in scratch first.

use super::super::kernels::attention::{self, Pointers};
use super::super::kernels::gemm::Strides;
use super::super::kernels::pointwise::{self, Elements, Pointwise};
use super::super::launch::{Binder, Kernel, Operands, Ways, none};
use super::choice::Choice;
use super::refused;
use crate::device::NoKernel;
use crate::graph::{Additive, Attention, Binary, Instr, Src};
use crate::plan::{Operand, Step, View};
use crate::tensor::{DType, Shape};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;

/// The most tensors: queries, keys, values, output, mask.
const SIDES: usize = 5;
const MASK: usize = 4;

/// An axis: how long it is, and its strides in every tensor, in elements.
type Axis = (usize, [usize; SIDES]);

struct Bound {
    attention: attention::Attention,
    /// Axes of the batch beyond the two that the kernel takes: each position is a launch of its own.
    outer: Vec<Axis>,
    choice: Choice<attention::Candidate>,
    mask: Mask,
}

/// Where the mask is.
enum Mask {
    None,
    /// An input as it is.
    Input(usize),
    /// Made in scratch of so many bytes, from the inputs after the values.
    Made(Box<Pointwise>, usize),
}

pub(super) fn bind(step: &Step, op: &Attention, binder: Binder<'_>) -> Result<Box<dyn Kernel>, NoKernel> {
    let [q, k, v, others @ ..] = &step.inputs[..] else {
        return Err(none(step, "fewer than three inputs"));
    };
    let y = &step.outputs[0];
    if [k, v, y].iter().any(|other| other.dtype != q.dtype) {
        return Err(none(step, "operands of several dtypes"));
    }
    let sizes = op.sizes([&q.shape, &k.shape, &v.shape, &y.shape]).map_err(|fault| none(step, fault))?;
    let roles = op.roles(&sizes).map_err(|fault| none(step, fault))?;
    let additive = op.additive().ok_or_else(|| none(step, "scores that are not scaled and added to"))?;
    let (mask, mask_view, mask_shape) = mask(step, op, &additive, others)?;
    let size = |label: Option<char>| {
        sizes.iter().find(|(known, _)| Some(*known) == label).map_or(1, |(_, size)| *size)
    };
    let sides: [(&[char], &[usize], &View); SIDES] = [
        (&op.q, &q.shape, &q.view),
        (&op.k, &k.shape, &k.view),
        (&op.v, &v.shape, &v.view),
        (&op.y, &y.shape, &y.view),
        (&op.scores, &mask_shape, &mask_view),
    ];
    // The distance of neighbours along a label in each tensor.
    let along = |label: Option<char>| -> [usize; SIDES] {
        sides.map(|(labels, shape, view)| {
            let axis = labels.iter().position(|own| Some(*own) == label);
            axis.filter(|axis| shape[*axis] > 1).map_or(0, |axis| view.strides[axis])
        })
    };
    let (rows, batch) = one_axis(roles.rows, |label| (size(Some(label)), along(Some(label))));
    let batch = roles.batch.iter().map(|label| (size(Some(*label)), along(Some(*label)))).chain(batch);
    let mut outer = merged(batch.collect());
    let inner = outer.split_off(outer.len().saturating_sub(2));
    let axis = |at: usize| match (inner.len(), at) {
        (2, at) => inner[at],
        (1, 1) => inner[0],
        _ => (1, [0; SIDES]),
    };
    let (keys, depth, column) = (along(Some(op.over)), along(roles.depth), along(roles.column));
    // An axis of one element is as good as one without gaps.
    let one = |stride: usize, label: Option<char>| if label.is_none() { 1 } else { stride };
    let strides = |side: usize, row: usize, column: usize| Strides {
        batch: [axis(0).1[side], axis(1).1[side]],
        row,
        column,
    };
    let attention = attention::Attention {
        precision: binder.product(step, q)?,
        batch: [axis(0).0, axis(1).0],
        queries: rows.0,
        keys: size(Some(op.over)),
        depth: size(roles.depth),
        columns: size(roles.column),
        q: strides(0, rows.1[0], one(depth[0], roles.depth)),
        k: strides(1, keys[1], one(depth[1], roles.depth)),
        v: strides(2, keys[2], one(column[2], roles.column)),
        y: strides(3, rows.1[3], one(column[3], roles.column)),
        mask: (!matches!(mask, Mask::None)).then(|| strides(MASK, rows.1[MASK], keys[MASK])),
        scale: additive.scale,
        zeroes: op.zeroes,
    };
    let gpu = binder.modules.gpu();
    let candidates = attention.candidates(gpu);
    if candidates.is_empty() {
        return Err(none(step, format!("queries of {} elements", attention.depth)));
    }
    let made = |candidate: &attention::Candidate| (candidate.kernel(), attention.grid(candidate, gpu));
    let choice = Choice::new(step, binder, &attention, candidates, made)?;
    Ok(Box::new(Bound { attention, outer, choice, mask }))
}

/// Where the mask comes from, and how it lies by the labels of the scores.
fn mask(
    step: &Step,
    op: &Attention,
    additive: &Additive,
    others: &[Operand],
) -> Result<(Mask, View, Shape), NoKernel> {
    let ones: Shape = SmallVec::from_elem(1, op.scores.len());
    let Some(chain) = &additive.mask else { return Ok((Mask::None, View::row_major(&ones), ones)) };
    if chain.instrs.is_empty()
        && let [operand] = others
        && operand.dtype == DType::F32
    {
        return Ok((Mask::Input(3), operand.view.clone(), operand.shape.clone()));
    }
    // As small as its operands allow.
    let mut shape = ones;
    for operand in others {
        shape.iter_mut().zip(&operand.shape).for_each(|(size, own)| *size = (*size).max(*own));
    }
    let made = View::row_major(&shape);
    let views: Vec<View> = others.iter().map(|other| other.view.broadcast(&other.shape, &shape)).collect();
    let mut operands = vec![];
    for (other, view) in others.iter().zip(&views) {
        let elements = Elements::of(other.dtype).map_err(refused(step))?;
        operands.push(pointwise::Operand { strides: &view.strides, elements });
    }
    let mut chain = chain.clone();
    if chain.instrs.is_empty() {
        // The operand as an f32.
        chain.instrs.push(Instr::Binary(Binary::Mul, Src::Operand(0), Src::Const(1.0)));
    }
    let kernel = Pointwise::new(&chain, &shape, &operands, &made.strides, Elements::F32);
    let bytes = shape.iter().product::<usize>() * 4;
    Ok((Mask::Made(Box::new(kernel.map_err(refused(step))?), bytes), made, shape))
}

/// The rows of several labels as one axis, the longest that steps as one in all tensors; the others are a batch.
fn one_axis(labels: Vec<char>, along: impl Fn(char) -> Axis) -> (Axis, Vec<Axis>) {
    let mut merged = merged(labels.into_iter().map(along).collect());
    let longest = (0..merged.len()).max_by_key(|at| merged[*at].0);
    let rows = longest.map_or((1, [0; SIDES]), |at| merged.remove(at));
    (rows, merged)
}

/// Neighbouring axes as one, where all tensors step evenly through both; axes of one element left out.
fn merged(mut axes: Vec<Axis>) -> Vec<Axis> {
    axes.retain(|(len, _)| *len != 1);
    axes.sort_by_key(|(_, strides)| std::cmp::Reverse(strides[3]));
    let mut merged: Vec<Axis> = vec![];
    for (len, strides) in axes {
        match merged.last_mut() {
            Some(outer) if outer.1.iter().zip(&strides).all(|(outer, inner)| *outer == inner * len) => {
                *outer = (outer.0 * len, strides);
            }
            _ => merged.push((len, strides)),
        }
    }
    merged
}

impl Kernel for Bound {
    fn scratch_bytes(&self) -> usize {
        if let Mask::Made(_, bytes) = self.mask { bytes } else { 0 }
    }

    fn ways(&self) -> Option<&dyn Ways> {
        Some(&self.choice)
    }

    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        let mask = match &self.mask {
            Mask::None => 0,
            Mask::Input(at) => on.inputs[*at],
            Mask::Made(kernel, _) => {
                let inputs: SmallVec<[CUdeviceptr; 12]> = on.inputs[3..].iter().copied().collect();
                // SAFETY: the caller's promise; the scratch is as large as was asked for.
                unsafe { kernel.launch(on.queue, &inputs, on.scratch)? };
                on.scratch
            }
        };
        let (_, grid, function) = self.choice.now()?;
        let launches: usize = self.outer.iter().map(|(len, _)| len).product();
        for mut launch in 0..launches {
            let mut moved = [0; SIDES];
            for (len, strides) in self.outer.iter().rev() {
                let at = launch % len;
                launch /= len;
                for (side, (moved, stride)) in moved.iter_mut().zip(strides).enumerate() {
                    let size = if side == MASK { 4 } else { self.attention.precision.bytes() };
                    *moved += (at * stride * size) as u64;
                }
            }
            let pointers = Pointers {
                q: on.inputs[0] + moved[0],
                k: on.inputs[1] + moved[1],
                v: on.inputs[2] + moved[2],
                mask: if mask == 0 { 0 } else { mask + moved[MASK] },
                y: on.outputs[0] + moved[3],
            };
            let args = self.attention.args(&pointers);
            // SAFETY: the caller's promise; the argument is the kernel's struct.
            unsafe { grid.launch(function.0, on.stream(), &args)? };
        }
        Ok(())
    }
}

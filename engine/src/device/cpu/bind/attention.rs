//! Attention.

use super::super::args::{Args, Kernel};
use super::super::kernels::attention::{self, Dims, Strides};
use super::super::kernels::pointwise::{Input, Load, Part};
use super::none;
use crate::device::NoKernel;
use crate::error::Error;
use crate::graph::Attention;
use crate::plan::{Operand, Step};
use crate::tensor::DType;
use smallvec::SmallVec;

#[cfg(test)]
mod tests;

struct Bound {
    kernel: attention::Attention,
    /// How the chain's operands are read.
    loads: SmallVec<[Load; 4]>,
}

impl Kernel for Bound {
    fn scratch_len(&self, threads: usize) -> usize {
        self.kernel.scratch_len(threads)
    }

    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        let others = self.loads.iter().enumerate().map(|(at, load)| match load {
            Load::F32 => Input::F32(args.source(3 + at)),
            Load::I32 => Input::I32(args.source(3 + at)),
            Load::Bool => Input::Bool(args.source(3 + at)),
        });
        let others: SmallVec<[Input<'_>; 4]> = others.collect();
        let (q, k, v) = (args.source(0), args.source(1), args.source(2));
        self.kernel.run(q, k, v, &others, args.target(0), args.scratch(), args.threads);
        Ok(())
    }
}

pub(super) fn bind(step: &Step, attention: &Attention) -> Result<Box<dyn Kernel>, NoKernel> {
    let [q, k, v, ..] = &step.inputs[..] else { return Err(none(step, "fewer than three inputs")) };
    let (y, others) = (&step.outputs[0], &step.inputs[3..]);
    let sizes = attention.sizes([&q.shape, &k.shape, &v.shape, &y.shape]);
    let sizes = sizes.map_err(|fault| none(step, fault))?;
    let roles = attention.roles(&sizes).map_err(|fault| none(step, fault))?;
    let size = |label: Option<char>| {
        sizes.iter().find(|(known, _)| Some(*known) == label).map_or(1, |(_, size)| *size)
    };
    let stride = |labels: &[char], operand: &Operand, label: char| {
        let axis = labels.iter().position(|own| *own == label).filter(|axis| operand.shape[*axis] > 1);
        axis.map_or(0, |axis| operand.view.strides[axis])
    };
    // The distance of neighbours along a label in each tensor.
    let along = |label: Option<char>| -> Strides {
        let mut strides = Strides::default();
        let Some(label) = label else { return strides };
        let sides = [(&attention.q, q), (&attention.k, k), (&attention.v, v), (&attention.y, y)];
        let others = others.iter().map(|operand| (&attention.scores, operand));
        for (to, (labels, operand)) in strides.iter_mut().zip(sides.into_iter().chain(others)) {
            *to = stride(labels, operand, label);
        }
        strides
    };
    let (rows, batch) = one_axis(roles.rows, |label| (size(Some(label)), along(Some(label))));
    let (keys, depth, column) = (along(Some(attention.over)), along(roles.depth), along(roles.column));
    // An axis of one element is as good as one without gaps.
    let one = |stride: usize, label: Option<char>| if label.is_none() { 1 } else { stride };
    let dims = Dims {
        m: rows.0,
        n: size(Some(attention.over)),
        depth: size(roles.depth),
        columns: size(roles.column),
        q: (rows.1[0], one(depth[0], roles.depth)),
        k: (keys[1], one(depth[1], roles.depth)),
        v: (keys[2], one(column[2], roles.column)),
        y: (rows.1[3], one(column[3], roles.column)),
    };
    let batch: Vec<(usize, Strides)> =
        roles.batch.iter().map(|label| (size(Some(*label)), along(Some(*label)))).chain(batch).collect();
    let mut parts = vec![];
    for (at, operand) in others.iter().enumerate() {
        let load = match operand.dtype {
            DType::F32 => Load::F32,
            DType::I32 => Load::I32,
            DType::Bool => Load::Bool,
            other => return Err(none(step, format!("an operand of {other}"))),
        };
        parts.push(Part { load, row_stride: rows.1[4 + at], col_stride: keys[4 + at] });
    }
    let loads = parts.iter().map(|part| part.load).collect();
    let kernel = attention::Attention::new(dims, &batch, attention.chain.as_ref(), &parts);
    let kernel = kernel.map_err(|error| none(step, error.to_string()))?.with_zeroes(attention.zeroes);
    Ok(Box::new(Bound { kernel, loads }))
}

type Axis = (usize, Strides);

/// The rows of several labels as one axis, the longest that steps as one in all tensors; the others are a batch.
fn one_axis(labels: Vec<char>, along: impl Fn(char) -> Axis) -> (Axis, Vec<Axis>) {
    let mut axes: Vec<Axis> = labels.into_iter().map(along).collect();
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
    let longest = (0..merged.len()).max_by_key(|at| merged[*at].0);
    let rows = longest.map_or((1, Strides::default()), |at| merged.remove(at));
    (rows, merged)
}

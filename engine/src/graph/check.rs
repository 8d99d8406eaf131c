//! Whether a graph holds together: values are made before they are read, and shapes are what each op demands.

use super::attention::{Attention, sizes};
use super::op::{Conv, Einsum, Epilogue, Image, Op, Window};
use super::{Graph, Node, ValueId};
use crate::tensor::{DType, volume};

/// A node that does not hold together: a fault of whoever built the graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node `{node}` ({op}): {fault}")]
pub struct GraphError {
    /// The node's name.
    pub node: String,
    /// Its op.
    pub op: String,
    /// What was expected and what is there.
    pub fault: String,
}

impl Graph {
    /// Checks every node.
    ///
    /// # Errors
    /// The first that does not hold together.
    pub fn check(&self) -> Result<(), GraphError> {
        let mut made = vec![false; self.values.len()];
        for (id, value) in self.values.iter().enumerate() {
            made[id] = value.constant.is_some();
        }
        for input in &self.inputs {
            made[input.0 as usize] = true;
        }
        for node in &self.nodes {
            let error =
                |fault: String| GraphError { node: node.name.clone(), op: node.op.name().into(), fault };
            if let Some(input) = node.inputs.iter().find(|id| !made[id.0 as usize]) {
                return Err(error(format!("reads `{}` before it is made", self.value(*input).name)));
            }
            self.check_node(node).map_err(error)?;
            for output in &node.outputs {
                if std::mem::replace(&mut made[output.0 as usize], true) {
                    return Err(error(format!("makes `{}` a second time", self.value(*output).name)));
                }
            }
        }
        match self.outputs.iter().find(|id| !made[id.0 as usize]) {
            None => Ok(()),
            Some(id) => Err(GraphError {
                node: self.value(*id).name.clone(),
                op: "output".into(),
                fault: "nothing makes it".into(),
            }),
        }
    }

    pub(crate) fn check_node(&self, node: &Node) -> Result<(), String> {
        if let Op::Host(_) = node.op {
            return Ok(());
        }
        let [output] = node.outputs[..] else {
            return Err(format!("makes {} values, expected 1", node.outputs.len()));
        };
        let Some(&first) = node.inputs.first() else { return Err("reads nothing".into()) };
        let (x, y) = (self.shape(first), self.shape(output));
        let chained = matches!(node.op, Op::Pointwise(_) | Op::Cast | Op::Reduce(..));
        let (from, to) = (self.value(first).dtype, self.value(output).dtype);
        if !chained && from != to {
            return Err(format!("makes {to} of {from}"));
        }
        let rank = |expected: usize| {
            let fault = format!("the output has shape {y:?}, expected {expected} axes");
            (y.len() == expected).then_some(()).ok_or(fault)
        };
        let shape = |expected: Vec<usize>| {
            let fault = format!("the output has shape {y:?}, expected {expected:?}");
            (y == expected.as_slice()).then_some(()).ok_or(fault)
        };
        match &node.op {
            Op::Conv(conv) => {
                self.check_conv(conv, node, false)?;
                self.check_epilogue(&conv.epilogue, node, 2, y[conv.image.channel])
            }
            Op::ConvTranspose(conv) => {
                self.check_conv(conv, node, true)?;
                self.check_epilogue(&conv.epilogue, node, 2, y[conv.image.channel])
            }
            Op::Einsum(einsum) => {
                let columns = self.check_einsum(einsum, node)?;
                self.check_epilogue(&einsum.epilogue, node, 2, columns)
            }
            Op::Attention(attention) => self.check_attention(attention, node),
            Op::Pointwise(_) => node.inputs.iter().try_for_each(|id| self.check_broadcast(*id, y)),
            Op::Norm(norm) => {
                let expected = 1 + usize::from(norm.scale) + usize::from(norm.shift);
                if node.inputs.len() != expected {
                    return Err(format!("reads {} values, expected {expected}", node.inputs.len()));
                }
                shape(x.to_vec())?;
                node.inputs[1..].iter().try_for_each(|id| self.check_broadcast(*id, y))
            }
            Op::Broadcast => self.check_broadcast(first, y),
            Op::Softmax { .. } | Op::Cast | Op::Copy => shape(x.to_vec()),
            Op::Reduce(_, axes) => shape(
                x.iter().enumerate().map(|(at, &size)| if axes.contains(&at) { 1 } else { size }).collect(),
            ),
            Op::Pool(pool) => {
                rank(x.len())?;
                check_window(&pool.image, &pool.window, x.len())
            }
            Op::Resize(axes) => {
                let mut expected = x.to_vec();
                for (axis, taps) in axes {
                    let indices = taps.0.iter().flatten().map(|(index, _)| *index);
                    if indices.max().is_some_and(|index| index >= x[*axis]) {
                        return Err(format!("reads past the end of axis {axis}"));
                    }
                    expected[*axis] = taps.0.len();
                }
                shape(expected)
            }
            Op::Concat(axis) => {
                let mut expected = x.to_vec();
                expected[*axis] = node.inputs.iter().map(|id| self.shape(*id)[*axis]).sum();
                shape(expected)
            }
            Op::Slice { axis, start, step } => {
                rank(x.len())?;
                let end = start + y[*axis].saturating_sub(1) * step;
                if y[*axis] > 0 && end >= x[*axis] {
                    return Err(format!("reads index {end} of an axis of {}", x[*axis]));
                }
                Ok(())
            }
            Op::Pad(pad) => {
                rank(x.len())?;
                let fits = pad.before.iter().zip(x).zip(y).all(|((before, x), y)| before + x <= *y);
                fits.then_some(())
                    .ok_or_else(|| format!("{x:?} after {:?} does not fit in {y:?}", pad.before))
            }
            Op::Reshape => {
                let same = volume(x) == volume(y);
                same.then_some(()).ok_or_else(|| format!("{x:?} and {y:?} have not the same elements"))
            }
            Op::Permute(order) => shape(order.iter().map(|&axis| x[axis]).collect()),
            Op::Gather(axis) => {
                let Some(&indices) = node.inputs.get(1) else { return Err("reads no indices".into()) };
                let (before, after) = (&x[..*axis], &x[axis + 1..]);
                shape([before, self.shape(indices), after].concat())
            }
            Op::Host(_) => Ok(()),
        }
    }

    fn check_broadcast(&self, id: ValueId, to: &[usize]) -> Result<(), String> {
        let from = self.shape(id);
        let fits = from.len() == to.len() && from.iter().zip(to).all(|(from, to)| from == to || *from == 1);
        fits.then_some(()).ok_or_else(|| {
            format!("`{}` of shape {from:?} does not broadcast to {to:?}", self.value(id).name)
        })
    }

    fn check_epilogue(
        &self,
        epilogue: &Epilogue,
        node: &Node,
        own: usize,
        columns: usize,
    ) -> Result<(), String> {
        let rest = &node.inputs[own..];
        let chained = match epilogue.bias {
            false => rest,
            true => {
                let Some((bias, chained)) = rest.split_first() else { return Err("reads no bias".into()) };
                let value = self.value(*bias);
                if value.elements() != columns || value.dtype != DType::F32 {
                    return Err(format!("a bias of shape {:?}, expected {columns} numbers", value.shape));
                }
                chained
            }
        };
        chained.iter().try_for_each(|id| self.check_broadcast(*id, self.shape(node.outputs[0])))
    }

    fn check_conv(&self, conv: &Conv, node: &Node, transposed: bool) -> Result<(), String> {
        let [x, w, ..] = node.inputs[..] else { return Err("reads no weights".into()) };
        let (x, w, y) = (self.shape(x), self.shape(w), self.shape(node.outputs[0]));
        check_window(&conv.image, &conv.window, x.len())?;
        let (inputs, outputs) = (x[conv.image.channel], y[conv.image.channel]);
        let mut expected = if transposed {
            vec![inputs, outputs / conv.groups]
        } else {
            vec![outputs, inputs / conv.groups]
        };
        expected.extend(&conv.window.size);
        if w != expected.as_slice() || inputs % conv.groups != 0 || outputs % conv.groups != 0 {
            return Err(format!("weights of shape {w:?}, expected {expected:?} in {} groups", conv.groups));
        }
        Ok(())
    }

    fn check_attention(&self, attention: &Attention, node: &Node) -> Result<(), String> {
        let [q, k, v, ref chained @ ..] = node.inputs[..] else {
            return Err("reads fewer than three values".into());
        };
        let sizes = attention.sizes([q, k, v, node.outputs[0]].map(|id| self.shape(id)))?;
        attention.roles(&sizes)?;
        let scores = attention.scores_shape(&sizes);
        chained.iter().try_for_each(|id| self.check_broadcast(*id, &scores))
    }

    /// The number of elements of the labels that only the second input has.
    fn check_einsum(&self, einsum: &Einsum, node: &Node) -> Result<usize, String> {
        let [a, b, ..] = node.inputs[..] else { return Err("reads fewer than two values".into()) };
        let sides = [(&einsum.a, a), (&einsum.b, b), (&einsum.c, node.outputs[0])];
        let sizes = sizes(&sides.map(|(labels, id)| (labels.as_slice(), self.shape(id))))?;
        let columns = sizes
            .iter()
            .filter(|(l, _)| !einsum.a.contains(l) && einsum.b.contains(l) && einsum.c.contains(l));
        Ok(columns.map(|(_, size)| size).product())
    }
}

fn check_window(image: &Image, window: &Window, rank: usize) -> Result<(), String> {
    let axes = window.size.len();
    let same =
        [window.stride.len(), window.dilation.len(), window.before.len()].iter().all(|len| *len == axes);
    let expected = 1 + axes + usize::from(image.batch.is_some());
    if !same || rank != expected {
        return Err(format!("{rank} axes, expected {expected} for a window of {axes}"));
    }
    Ok(())
}

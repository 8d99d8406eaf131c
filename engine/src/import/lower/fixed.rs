//! Nodes that read constants alone, where tract has not seen the values of some: views of a constant in the file, and
//! the little arithmetic that is done as the constant is read. What is more than that needs the values.

use super::super::placeholder::Placeholder;
use super::super::tract::{AxisOp, Cast, MultiBroadcastTo, OutletId, Slice, TVec, TypedBinOp, TypedNode};
use super::{Fact, Lower, Unplannable};
use crate::graph::{Data, Op, ValueId};
use crate::tensor::{DType, Shape};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// A value that depends on constants alone, some of which are in the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Fixed {
    /// Those in the file.
    names: BTreeSet<String>,
    /// Whether its elements follow each other as they do in the file, so that it can take any shape.
    in_order: bool,
}

impl Lower<'_> {
    /// The constant of a placeholder, its axes changed as tract has changed them.
    pub(super) fn placeholder(&mut self, node: &TypedNode, op: &Placeholder) -> Result<(), Unplannable> {
        let unplannable = |reason: &str| Unplannable { node: node.name.clone(), reason: reason.into() };
        let weight = self.weights.get(&op.name).ok_or_else(|| unplannable("nothing makes it"))?;
        let mut shape = weight.shape.clone();
        let mut fixed = Fixed { names: [op.name.clone()].into(), in_order: true };
        let mut id = self.builder.constant(&op.name, weight.dtype, &shape, weight.data.clone());
        let (dtype, mut sound) = (weight.dtype, true);
        for change in &op.changes {
            let mut to: TVec<usize> = shape.iter().copied().collect();
            sound &= change.change_shape_array(&mut to, false).is_ok();
            let to: Shape = to.iter().copied().collect();
            let view = axis_op(change, to.len());
            fixed.in_order &= keeps_order(&view, &shape);
            sound &= fixed.can_become(&view, &shape, &to);
            id = self.builder.node(&node.name, view, &[id], dtype, &to);
            shape = to;
        }
        let outlet = OutletId::new(node.id, 0);
        if !sound || self.fact(outlet)? != (dtype, shape) {
            self.wanted.insert(op.name.clone());
        }
        self.made.insert(outlet, id);
        self.fixed.insert(outlet, fixed);
        Ok(())
    }

    /// The constants in the file on which a node's inputs depend, where those depend on nothing else.
    pub(super) fn fixed_inputs(&self, node: &TypedNode) -> BTreeSet<String> {
        let fixed = node.inputs.iter().filter_map(|input| self.fixed.get(input));
        fixed.flat_map(|fixed| &fixed.names).cloned().collect()
    }

    /// Whether all of a node's inputs are constants, some of them in the file.
    pub(super) fn reads_constants_alone(&self, node: &TypedNode) -> bool {
        let known = |input: &OutletId| {
            self.fixed.contains_key(input)
                || self.model.outlet_fact(*input).is_ok_and(|fact| fact.konst.is_some())
        };
        node.inputs.iter().any(|input| self.fixed.contains_key(input)) && node.inputs.iter().all(known)
    }

    /// A node that reads constants alone, as a view of one or as another constant. Where it can be neither, its
    /// constants are wanted, and what is made is not meant to be used.
    pub(super) fn fixed_node(&mut self, node: &TypedNode, facts: &[Fact]) -> Vec<ValueId> {
        let names = self.fixed_inputs(node);
        let made = self.fixed_view(node, facts).or_else(|| self.fixed_constant(node, facts));
        let (made, in_order) = made.unwrap_or_else(|| {
            self.wanted.extend(names.iter().cloned());
            (self.unusable(node, facts), false)
        });
        for slot in 0..facts.len() {
            let fixed = Fixed { names: names.clone(), in_order };
            self.fixed.insert(OutletId::new(node.id, slot), fixed);
        }
        made
    }

    /// Values in the place of those that a node would make, in a graph that will not be used.
    pub(super) fn unusable(&mut self, node: &TypedNode, facts: &[Fact]) -> Vec<ValueId> {
        facts.iter().map(|(dtype, shape)| self.builder.input(&node.name, *dtype, shape)).collect()
    }

    fn fixed_view(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<(Vec<ValueId>, bool)> {
        let [input] = node.inputs[..] else { return None };
        let fixed = self.fixed.get(&input)?.clone();
        let (_, from) = self.fact(input).ok()?;
        let before = self.builder.graph().nodes.len();
        if !node.op_is::<AxisOp>() && !node.op_is::<Slice>() && !node.op_is::<MultiBroadcastTo>() {
            return None;
        }
        let made = self.native(node, facts)?;
        let graph = self.builder.graph();
        let (mut in_order, mut shape, mut sound) = (fixed.in_order, from, true);
        for made in &graph.nodes[before..] {
            let to: Shape = graph.shape(made.outputs[0]).into();
            let fixed = Fixed { in_order, ..Fixed::default() };
            sound &= graph.check_node(made).is_ok() && fixed.can_become(&made.op, &shape, &to);
            in_order &= keeps_order(&made.op, &shape);
            shape = to;
        }
        sound.then_some((made, in_order))
    }

    /// A constant made of another, in the order of its elements.
    fn fixed_constant(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<(Vec<ValueId>, bool)> {
        let [(dtype, shape)] = facts else { return None };
        let data = self.product(node, facts).or_else(|| self.widened(node, facts))?;
        Some((vec![self.builder.constant(&node.name, *dtype, shape, data)], true))
    }

    /// f16 → f32.
    fn widened(&self, node: &TypedNode, facts: &[Fact]) -> Option<Data> {
        node.op_as::<Cast>()?;
        let value = self.builder.graph().value(*self.made.get(&node.inputs[0])?);
        let data = value.constant.clone()?;
        (value.dtype == DType::F16 && facts[0].0 == DType::F32).then(|| Data::Widened(Box::new(data)))
    }

    /// A constant times or divided by a number for each index of an axis.
    fn product(&self, node: &TypedNode, facts: &[Fact]) -> Option<Data> {
        let op = node.op_as::<TypedBinOp>()?.0.name();
        let (base, factors) = match node.inputs[..] {
            [base, factors] if self.fixed.contains_key(&base) => (base, factors),
            [factors, base] if op == "Mul" => (base, factors),
            _ => return None,
        };
        let value = self.builder.graph().value(*self.made.get(&base)?);
        let data = value
            .constant
            .clone()
            .filter(|_| value.dtype == DType::F32 && facts[0] == (DType::F32, value.shape.clone()))?;
        let tensor = self.model.outlet_fact(factors).ok()?.konst.clone()?;
        let inner = inner_elements(tensor.shape(), &value.shape)?;
        let mut factors: Vec<f32> = tensor.try_as_plain_ram().ok()?.as_slice::<f32>().ok()?.to_vec();
        match op {
            "Mul" => {}
            "Div" => factors.iter_mut().for_each(|factor| *factor = factor.recip()),
            _ => return None,
        }
        Some(Data::Scaled { base: Box::new(data), factors: factors.into(), inner })
    }
}

impl Fixed {
    /// Whether such a view of a value of shape `from` is a view of the constant behind it too.
    fn can_become(&self, view: &Op, from: &[usize], to: &[usize]) -> bool {
        match view {
            Op::Permute(_) | Op::Slice { .. } | Op::Broadcast => true,
            Op::Reshape => self.in_order || long(from).eq(long(to)),
            _ => false,
        }
    }
}

fn long(shape: &[usize]) -> impl Iterator<Item = &usize> {
    shape.iter().filter(|size| **size != 1)
}

/// Whether the elements of a view follow each other as those of a value of shape `from` do.
fn keeps_order(view: &Op, from: &[usize]) -> bool {
    match view {
        Op::Reshape => true,
        Op::Permute(order) => order.iter().filter(|axis| from[**axis] != 1).is_sorted(),
        Op::Slice { axis, step: 1, .. } => long(&from[..*axis]).next().is_none(),
        _ => false,
    }
}

/// The view that a change of axes is, for a value that has `rank` axes afterwards.
pub(super) fn axis_op(op: &AxisOp, rank: usize) -> Op {
    match op {
        AxisOp::Move(from, to) => {
            let mut order: SmallVec<[usize; 6]> = (0..rank).filter(|axis| axis != from).collect();
            order.insert(*to, *from);
            Op::Permute(order)
        }
        AxisOp::Add(_) | AxisOp::Rm(_) | AxisOp::Reshape(..) => Op::Reshape,
    }
}

/// The elements that one factor applies to in a row, where factors of shape `factors` go with neighbouring axes of
/// `shape` and are the same along all others.
fn inner_elements(factors: &[usize], shape: &[usize]) -> Option<usize> {
    if factors.len() != shape.len() {
        return None;
    }
    let own = |axis: &usize| factors[*axis] != 1;
    let Some(first) = (0..shape.len()).find(own) else { return Some(1) };
    let last = (0..shape.len()).rfind(own).unwrap_or(first);
    (factors[first..=last] == shape[first..=last]).then(|| shape[last + 1..].iter().product())
}

//! Which op of ours each of tract's nodes becomes, and those that move elements or reduce them.

use super::super::tract::{
    AxisOp, Cast, Downsample, Gather, MultiBroadcastTo, NearestUpsample, Pad as TractPad,
    PadMode as TractPadMode, Reduce, Reducer as TractReducer, Resize, RmsNorm, Slice, Softmax, SoftmaxKind,
    TypedConcat, TypedNode,
};
use super::{Fact, Lower};
use crate::graph::{Norm, Op, Pad, PadMode, Reducer, Taps, ValueId};
use crate::tensor::DType;
use smallvec::{SmallVec, smallvec};

impl Lower<'_> {
    /// Our nodes for one of tract's; `None` where there is no op of ours that does the same.
    pub(super) fn native(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        if node.op_is::<TypedConcat>() {
            return self.concat(node, facts);
        }
        if let Some(op) = node.op_as::<AxisOp>() {
            return self.axis_op(node, op, facts);
        }
        match node.op.name().as_ref() {
            "Conv" => self.conv(node, facts),
            "Deconv" => self.conv_transpose(node, facts),
            "MaxPool" => self.max_pool(node, facts),
            "SumPool" => self.sum_pool(node, facts),
            "EinSum" => self.einsum(node, facts),
            "Slice" => self.slice(node, facts),
            "Downsample" => self.downsample(node, facts),
            "Pad" => self.pad(node, facts),
            "Gather" => self.gather(node, facts),
            "Cast" => self.cast(node, facts),
            "MultiBroadcastTo" => self.broadcast(node, facts),
            "Softmax" | "LogSoftmax" => self.softmax(node, facts),
            "RmsNorm" => self.rms_norm(node, facts),
            "NearestUpsample" => self.upsample(node, facts),
            "Resize" => self.resize(node, facts),
            "Iff" => self.select(node, facts),
            "LstmEpilogue" => self.lstm(node, facts),
            "Lrn" => self.lrn(node, facts),
            name if name.starts_with("Reduce<") => self.reduce(node, facts),
            _ => self.binary(node, facts).or_else(|| self.unary(node, facts)),
        }
    }

    fn concat(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let axis = node.op_as::<TypedConcat>()?.axis;
        let inputs: Option<Vec<ValueId>> = (0..node.inputs.len()).map(|at| self.input(node, at)).collect();
        Some(self.one(node, Op::Concat(axis), &inputs?, &facts[0]))
    }

    fn axis_op(&mut self, node: &TypedNode, op: &AxisOp, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = super::fixed::axis_op(op, facts[0].1.len());
        let input = self.input(node, 0)?;
        Some(self.one(node, op, &[input], &facts[0]))
    }

    fn slice(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<Slice>()?;
        let start = usize::try_from(op.start.to_i64().ok()?).ok()?;
        let input = self.input(node, 0)?;
        Some(self.one(node, Op::Slice { axis: op.axis, start, step: 1 }, &[input], &facts[0]))
    }

    fn downsample(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<Downsample>()?;
        let step = usize::try_from(op.stride).ok().filter(|step| *step > 0)?;
        let input = self.input(node, 0)?;
        Some(self.one(node, Op::Slice { axis: op.axis, start: op.modulo, step }, &[input], &facts[0]))
    }

    fn pad(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<TractPad>()?;
        let mode = match &op.mode {
            TractPadMode::Constant(value) => {
                let value = value.cast_to_dt(super::super::convert::datum_type(facts[0].0)).ok()?;
                PadMode::Constant(SmallVec::from_slice(value.as_bytes()))
            }
            TractPadMode::Reflect => PadMode::Reflect,
            TractPadMode::Edge => PadMode::Edge,
        };
        let before = op.pads.iter().map(|(before, _)| *before).collect();
        let input = self.input(node, 0)?;
        Some(self.one(node, Op::Pad(Pad { before, mode }), &[input], &facts[0]))
    }

    fn gather(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<Gather>()?;
        let whole = matches!(self.input_fact(node, 1)?.0, DType::I64 | DType::I32);
        if op.output_type.is_some() || !whole || self.input_fact(node, 0)?.0 != facts[0].0 {
            return None;
        }
        let inputs = [self.input(node, 0)?, self.input(node, 1)?];
        Some(self.one(node, Op::Gather(op.axis), &inputs, &facts[0]))
    }

    fn cast(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        node.op_as::<Cast>()?;
        let input = self.input(node, 0)?;
        Some(self.one(node, Op::Cast, &[input], &facts[0]))
    }

    fn broadcast(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        node.op_as::<MultiBroadcastTo>()?;
        let mut input = self.input(node, 0)?;
        let (dtype, shape) = self.input_fact(node, 0)?;
        let missing = facts[0].1.len().checked_sub(shape.len())?;
        if missing > 0 {
            let shape: Vec<usize> = std::iter::repeat_n(1, missing).chain(shape).collect();
            input = self.builder.node(&node.name, Op::Reshape, &[input], dtype, &shape);
        }
        Some(self.one(node, Op::Broadcast, &[input], &facts[0]))
    }

    fn softmax(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<Softmax>()?;
        if !self.all_floats(node, facts) || op.quant_output_dt.is_some() {
            return None;
        }
        let log = matches!(op.kind, SoftmaxKind::LogSoftmax);
        let input = self.input(node, 0)?;
        // Axes of size 1 change nothing; over several others at once there is no op of ours.
        let mut axes: SmallVec<[usize; 4]> =
            op.axes.iter().copied().filter(|&axis| facts[0].1[axis] != 1).collect();
        if axes.len() > 1 {
            return None;
        }
        if axes.is_empty() {
            axes.extend(op.axes.first().copied());
        }
        Some(self.one(node, Op::Softmax { axes, log }, &[input], &facts[0]))
    }

    fn rms_norm(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<RmsNorm>()?;
        if !self.all_floats(node, facts) {
            return None;
        }
        let epsilon = op.eps.cast_to_scalar::<f32>().ok()?;
        let norm = Norm { axes: smallvec![op.axis], epsilon, center: false, scale: false, shift: false };
        let input = self.input(node, 0)?;
        Some(self.one(node, Op::Norm(norm), &[input], &facts[0]))
    }

    fn reduce(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<Reduce>()?;
        let position = match op.reducer {
            TractReducer::ArgMax(last) => Some(Reducer::ArgMax { last }),
            TractReducer::ArgMin(last) => Some(Reducer::ArgMin { last }),
            _ => None,
        };
        if let Some(reducer) = position {
            let floats = self.input_fact(node, 0)?.0 == DType::F32 && facts[0].0 == DType::I64;
            let input = self.input(node, 0).filter(|_| floats && op.axes.len() == 1)?;
            return Some(self.one(node, Op::Reduce(reducer, smallvec![op.axes[0]]), &[input], &facts[0]));
        }
        if !self.all_floats(node, facts) {
            return None;
        }
        let reducer = match op.reducer {
            TractReducer::Sum => Reducer::Sum,
            TractReducer::Prod => Reducer::Product,
            TractReducer::Max => Reducer::Max,
            TractReducer::Min => Reducer::Min,
            TractReducer::MeanOfSquares => Reducer::MeanOfSquares,
            _ => return None,
        };
        let axes = op.axes.iter().copied().collect();
        let input = self.input(node, 0)?;
        Some(self.one(node, Op::Reduce(reducer, axes), &[input], &facts[0]))
    }

    /// Pixels repeated a whole number of times.
    fn upsample(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<NearestUpsample>()?;
        let repeated = op.scales.iter().enumerate().filter(|(_, scale)| **scale != 1);
        let axes = repeated
            .map(|(axis, scale)| {
                (axis, Taps((0..facts[0].1[axis]).map(|at| smallvec![(at / scale, 1.0)]).collect()))
            })
            .collect();
        self.resized(node, axes, facts)
    }

    fn resize(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<Resize>()?;
        let shape = self.input_fact(node, 0)?.1;
        let scales = op.optional_scales_input.and_then(|at| {
            let fact = self.model.outlet_fact(*node.inputs.get(at)?).ok()?;
            let tensor = fact.konst.as_ref()?.cast_to::<f32>().ok()?.into_owned();
            let scales: Vec<f32> = tensor.try_as_plain_ram().ok()?.as_slice::<f32>().ok()?.to_vec();
            (scales.len() == shape.len()).then_some(scales)
        });
        let mut axes = vec![];
        for (axis, (&before, &after)) in shape.iter().zip(&facts[0].1).enumerate() {
            let scale = scales.as_ref().map_or(after as f32 / before as f32, |scales| scales[axis]);
            if before == after && scale == 1.0 {
                continue;
            }
            let plan = op.plan_axis(scale, before, after);
            if plan.extrapolated.contains(&true) {
                return None;
            }
            let windows = plan.indices.chunks_exact(plan.window).zip(plan.weights.chunks_exact(plan.window));
            let taps = windows.map(|(indices, weights)| {
                let pairs = indices.iter().copied().zip(weights.iter().copied());
                pairs.filter(|(_, weight)| *weight != 0.0).collect()
            });
            axes.push((axis, Taps(taps.collect())));
        }
        self.resized(node, axes, facts)
    }

    fn resized(
        &mut self,
        node: &TypedNode,
        axes: Vec<(usize, Taps)>,
        facts: &[Fact],
    ) -> Option<Vec<ValueId>> {
        if self.input_fact(node, 0)?.0 != DType::F32 || facts[0].0 != DType::F32 {
            return None;
        }
        let input = self.input(node, 0)?;
        Some(self.one(node, Op::Resize(axes), &[input], &facts[0]))
    }
}

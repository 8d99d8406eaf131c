//! tract's nodes that slide a window over an image, and its products.

use super::super::tract::{
    AxesMapping, Conv as TractConv, DataFormat, DatumType, Deconv, EinSum, InOut, KernelFormat, Lrn, MaxPool,
    PaddingSpec, PoolSpec, SumPool, TypedNode,
};
use super::{Fact, Lower};
use crate::graph::{
    Binary, Chain, Conv, Einsum, Epilogue, Image, Instr, Op, Pool, PoolKind, Src, Unary, ValueId, Window,
};
use crate::tensor::DType;
use smallvec::{SmallVec, smallvec};

impl Lower<'_> {
    pub(super) fn conv(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<TractConv>()?;
        if op.q_params.is_some() || !self.all_floats(node, facts) || op.pool_spec.rank() > 2 {
            return None;
        }
        let image = image(op.pool_spec.data_format, op.pool_spec.rank());
        let window = window(&op.pool_spec, &self.input_fact(node, 0)?.1, &image);
        let input = self.input(node, 0)?;
        let weights = self.weights(node, op.kernel_fmt)?;
        let bias = self.bias(node, op.pool_spec.output_channels)?;
        let epilogue = Epilogue { bias: bias.is_some(), chain: None };
        let conv = Conv { image, window, groups: op.group, epilogue };
        let inputs: Vec<ValueId> = [input, weights].into_iter().chain(bias).collect();
        Some(self.one(node, Op::Conv(conv), &inputs, &facts[0]))
    }

    pub(super) fn conv_transpose(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<Deconv>()?;
        if !self.all_floats(node, facts) || op.group != 1 || op.pool_spec.rank() > 2 {
            return None;
        }
        let spec = &op.pool_spec;
        let image = image(spec.data_format, spec.rank());
        let mut window = window(spec, &self.input_fact(node, 0)?.1, &image);
        let sizes = &self.input_fact(node, 0)?.1[image.spatial..][..spec.rank()];
        let padding = spec.padding.compute_for_deconv(
            sizes,
            &spec.kernel_shape,
            &spec.dilations(),
            &spec.strides(),
            &op.adjustments,
        );
        window.before = padding.ok()?.iter().map(|dim| dim.pad_before).collect();
        let input = self.input(node, 0)?;
        // Weights [out, in, window…] → [in, out, window…].
        let weights = self.weights(node, op.kernel_format)?;
        let mut shape: SmallVec<[usize; 6]> = self.builder.graph().shape(weights).into();
        shape.swap(0, 1);
        let mut order: SmallVec<[usize; 6]> = (0..shape.len()).collect();
        order.swap(0, 1);
        let weights = self.builder.node(&node.name, Op::Permute(order), &[weights], DType::F32, &shape);
        let bias = self.bias(node, spec.output_channels)?;
        let conv =
            Conv { image, window, groups: 1, epilogue: Epilogue { bias: bias.is_some(), chain: None } };
        let inputs: Vec<ValueId> = [input, weights].into_iter().chain(bias).collect();
        Some(self.one(node, Op::ConvTranspose(conv), &inputs, &facts[0]))
    }

    /// Constant weights as \[out, in, window…].
    fn weights(&mut self, node: &TypedNode, format: KernelFormat) -> Option<ValueId> {
        let id = self.input(node, 1)?;
        // Kernels read packed weights.
        if !self.is_constant(id) {
            return None;
        }
        let shape = self.builder.graph().shape(id);
        let rank = shape.len();
        let order: SmallVec<[usize; 6]> = match format {
            KernelFormat::OIHW => return Some(id),
            KernelFormat::OHWI => [0, rank - 1].into_iter().chain(1..rank - 1).collect(),
            KernelFormat::HWIO => [rank - 1, rank - 2].into_iter().chain(0..rank - 2).collect(),
        };
        let permuted: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
        Some(self.builder.node(&node.name, Op::Permute(order), &[id], DType::F32, &permuted))
    }

    /// `Some(None)` where the bias is nothing; `None` where it is no bias of ours.
    fn bias(&mut self, node: &TypedNode, channels: usize) -> Option<Option<ValueId>> {
        let id = self.input(node, 2)?;
        let value = self.builder.graph().value(id).clone();
        if value.scalar() == Some(0.0) {
            return Some(None);
        }
        if value.elements() == channels {
            return Some(Some(id));
        }
        let number = value.scalar()?;
        Some(Some(self.builder.floats(&value.name, &[channels], &vec![number; channels])))
    }

    pub(super) fn max_pool(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<MaxPool>()?;
        if op.with_index_outputs.is_some() {
            return None;
        }
        self.pool(node, facts, &op.pool_spec, PoolKind::Max)
    }

    pub(super) fn sum_pool(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<SumPool>()?;
        // What a window that was rounded up counts beyond the border is tract's own affair.
        if matches!(op.pool_spec.padding, PaddingSpec::ExplicitOnnxPool(_, _, true)) {
            return None;
        }
        let kind = match (op.normalize, op.count_include_pad) {
            (false, _) => PoolKind::Sum,
            (true, true) => PoolKind::Average,
            (true, false) => PoolKind::AverageInside,
        };
        self.pool(node, facts, &op.pool_spec, kind)
    }

    fn pool(
        &mut self,
        node: &TypedNode,
        facts: &[Fact],
        spec: &PoolSpec,
        kind: PoolKind,
    ) -> Option<Vec<ValueId>> {
        if !self.all_floats(node, facts) || spec.rank() > 2 {
            return None;
        }
        let image = image(spec.data_format, spec.rank());
        let window = window(spec, &self.input_fact(node, 0)?.1, &image);
        let input = self.input(node, 0)?;
        Some(self.one(node, Op::Pool(Pool { image, window, kind }), &[input], &facts[0]))
    }

    /// Local response normalization (Krizhevsky et al. 2012): x / (bias + alpha / size · Σ x²) ^ beta, the sum over
    /// neighbouring channels.
    pub(super) fn lrn(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let Lrn { alpha, beta, bias, size } = *node.op_as::<Lrn>()?;
        let shape = &facts[0].1;
        if !self.all_floats(node, facts) || shape.len() < 2 || size == 0 {
            return None;
        }
        // Channels are what the window slides over, and everything after them lies side by side.
        let flat_shape = [shape[0], shape[1], shape[2..].iter().product()];
        let x = self.input(node, 0)?;
        let mut add = |op: Op, inputs: &[ValueId], shape: &[usize]| {
            self.builder.node(&node.name, op, inputs, DType::F32, shape)
        };
        let flat = add(Op::Reshape, &[x], &flat_shape);
        let square = Chain { instrs: vec![Instr::Unary(Unary::Square, Src::Operand(0))] };
        let squares = add(Op::Pointwise(square), &[flat], &flat_shape);
        let window = Window {
            size: smallvec![size],
            stride: smallvec![1],
            dilation: smallvec![1],
            before: smallvec![(size - 1) / 2],
        };
        let image = Image { batch: Some(0), channel: 2, spatial: 1 };
        let sums = add(Op::Pool(Pool { image, window, kind: PoolKind::Sum }), &[squares], &flat_shape);
        let mut instrs = vec![
            Instr::Binary(Binary::Mul, Src::Operand(1), Src::Const(alpha / size as f32)),
            Instr::Binary(Binary::Add, Src::Reg(0), Src::Const(bias)),
        ];
        if beta == 0.75 {
            // Two square roots are far cheaper than a power.
            instrs.push(Instr::Unary(Unary::Sqrt, Src::Reg(1)));
            instrs.push(Instr::Unary(Unary::Sqrt, Src::Reg(2)));
            instrs.push(Instr::Binary(Binary::Mul, Src::Reg(2), Src::Reg(3)));
        } else {
            instrs.push(Instr::Binary(Binary::Pow, Src::Reg(1), Src::Const(beta)));
        }
        let last = Src::Reg(instrs.len() as u16 - 1);
        instrs.push(Instr::Binary(Binary::Div, Src::Operand(0), last));
        let scaled = add(Op::Pointwise(Chain { instrs }), &[flat, sums], &flat_shape);
        Some(vec![add(Op::Reshape, &[scaled], shape)])
    }

    pub(super) fn einsum(&mut self, node: &TypedNode, facts: &[Fact]) -> Option<Vec<ValueId>> {
        let op = node.op_as::<EinSum>()?;
        let floats =
            op.q_params.is_none() && op.operating_dt == DatumType::F32 && self.all_floats(node, facts);
        if !floats || node.inputs.len() != 2 {
            return None;
        }
        let (left, right) = (self.input(node, 0)?, self.input(node, 1)?);
        let c = labels(&op.axes, InOut::Out(0))?;
        let (a, b) = (labels(&op.axes, InOut::In(0))?, labels(&op.axes, InOut::In(1))?);
        let (sizes_a, sizes_b) = (self.input_fact(node, 0)?.1, self.input_fact(node, 1)?.1);
        // A label that only one input has is summed over in it before the product: only where that changes nothing.
        let alone = |own: &[char], sizes: &[usize], other: &[char]| {
            own.iter()
                .zip(sizes)
                .any(|(label, size)| *size != 1 && !other.contains(label) && !c.contains(label))
        };
        if alone(&a, &sizes_a, &b) || alone(&b, &sizes_b, &a) {
            return None;
        }
        // Weights stand second: they are what gets packed.
        let swap = self.is_constant(left) && !self.is_constant(right);
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let inputs = if swap { [right, left] } else { [left, right] };
        let einsum = Einsum { a, b, c, epilogue: Epilogue::default() };
        Some(self.one(node, Op::Einsum(einsum), &inputs, &facts[0]))
    }
}

/// The labels of a tensor's axes, `None` where an axis has none or a label stands twice.
fn labels(axes: &AxesMapping, side: InOut) -> Option<SmallVec<[char; 6]>> {
    let mut labels = vec![None; axes.rank(side)];
    for axis in axes.iter_all_axes() {
        let places = match side {
            InOut::In(at) => &axis.inputs[at],
            InOut::Out(at) => &axis.outputs[at],
        };
        match places[..] {
            [] => {}
            [place] => labels[place] = Some(axis.repr),
            _ => return None,
        }
    }
    labels.into_iter().collect()
}

fn image(format: DataFormat, spatial_axes: usize) -> Image {
    match format {
        DataFormat::NCHW => Image { batch: Some(0), channel: 1, spatial: 2 },
        DataFormat::CHW => Image { batch: None, channel: 0, spatial: 1 },
        DataFormat::NHWC => Image { batch: Some(0), channel: 1 + spatial_axes, spatial: 1 },
        DataFormat::HWC => Image { batch: None, channel: spatial_axes, spatial: 0 },
    }
}

fn window(spec: &PoolSpec, input: &[usize], image: &Image) -> Window {
    let padding = spec.computed_padding(&input[image.spatial..][..spec.rank()]);
    Window {
        size: spec.kernel_shape.iter().copied().collect(),
        stride: spec.strides().iter().copied().collect(),
        dilation: spec.dilations().iter().copied().collect(),
        before: padding.iter().map(|dim| dim.pad_before).collect(),
    }
}

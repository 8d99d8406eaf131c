//! Graph → steps on views of blocks. One walk over the nodes in order decides how every value lies: what only renames
//! axes is a view and needs no step; what an op cannot read as it lies is copied first; a concatenation is written in
//! place by those who make its parts; a pointwise step overwrites an operand that nobody reads afterwards.

mod placing;

use super::concat::{Home, homes};
use super::product::{Labels, Product, Side, Unsuited};
use super::steps::{BlockId, Layout, Operand, Place};
use super::view::{Order, View};
use crate::graph::{Attention, Conv, Einsum, Graph, Image, Node, Op, ValueId};
use crate::tensor::Shape;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// Lays out a graph that holds together.
pub fn layout(graph: &Graph) -> Layout {
    let mut walk = Walk {
        graph,
        homes: homes(graph),
        at_home: HashSet::new(),
        placed: HashMap::new(),
        pending: vec![],
        reads: graph.readers().iter().map(Vec::len).collect(),
        done: Layout::default(),
    };
    for output in &graph.outputs {
        walk.reads[output.0 as usize] += 1;
    }
    for input in &graph.inputs {
        let operand = walk.fresh(*input, &row_major(graph.shape(*input)));
        if let Placed { at: At::Block(block), .. } = walk.placed[input] {
            walk.done.blocks[block.0 as usize].input = true;
        }
        walk.done.inputs.push(operand);
    }
    for node in &graph.nodes {
        walk.node(node);
    }
    for output in &graph.outputs {
        walk.output(*output);
    }
    walk.finish()
}

fn row_major(shape: &[usize]) -> Order {
    (0..shape.len()).collect()
}

/// Where a value of the graph is.
#[derive(Clone, Debug)]
struct Placed {
    at: At,
    view: View,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Block(BlockId),
    /// A constant of the graph as it is there.
    Constant(ValueId),
}

struct Walk<'a> {
    graph: &'a Graph,
    homes: HashMap<ValueId, Home>,
    at_home: HashSet<ValueId>,
    placed: HashMap<ValueId, Placed>,
    /// For every block the reads that are still to come.
    pending: Vec<usize>,
    /// For every value the nodes that read it, and one for an output.
    reads: Vec<usize>,
    done: Layout,
}

impl Walk<'_> {
    fn node(&mut self, node: &Node) {
        match &node.op {
            Op::Reshape => self.reshape(node),
            Op::Permute(order) => self.alias(node, |view| view.permute(order)),
            Op::Slice { axis, start, step } => self.alias(node, |view| view.slice(*axis, *start, *step)),
            Op::Broadcast => {
                let (from, to) = (self.graph.shape(node.inputs[0]), self.graph.shape(node.outputs[0]));
                self.alias(node, |view| view.broadcast(from, to));
            }
            Op::Concat(axis) => self.concat(node, *axis),
            Op::Conv(conv) | Op::ConvTranspose(conv) => self.conv(node, conv),
            Op::Pool(pool) => self.image(node, &pool.image),
            Op::Resize(axes) => {
                let resized: SmallVec<[usize; 4]> = axes.iter().map(|(axis, _)| *axis).collect();
                self.resize(node, &resized);
            }
            Op::Einsum(einsum) => self.einsum(node, einsum),
            Op::Attention(attention) => self.attention(node, attention),
            Op::Pointwise(_) => self.pointwise(node),
            Op::Gather(_) | Op::Host(_) => self.rows(node),
            Op::Reduce(..) | Op::Softmax { .. } | Op::Norm(_) | Op::Pad(_) | Op::Cast | Op::Copy => {
                self.like_first(node)
            }
        }
        for input in &node.inputs {
            if let Some(Placed { at: At::Block(block), .. }) = self.placed.get(input) {
                self.pending[block.0 as usize] -= 1;
            }
        }
    }

    /// A value that is another view of what the node reads.
    fn alias(&mut self, node: &Node, change: impl Fn(&View) -> View) {
        let Placed { at, view } = self.place(node.inputs[0]);
        self.put(node.outputs[0], Placed { at, view: change(&view) });
    }

    fn reshape(&mut self, node: &Node) {
        let (from, to) = (self.graph.shape(node.inputs[0]), self.graph.shape(node.outputs[0]));
        let Placed { at, view } = self.place(node.inputs[0]);
        if let Some(view) = view.reshape(from, to) {
            return self.put(node.outputs[0], Placed { at, view });
        }
        let copy = self.copied(node, node.inputs[0], &view.order_for_reshape(from, to));
        let Place::Workspace(block) = copy.place else { return };
        let view = copy.view.reshape(from, to).unwrap_or_else(|| View::row_major(to));
        self.put(node.outputs[0], Placed { at: At::Block(block), view });
    }

    fn concat(&mut self, node: &Node, axis: usize) {
        let output = node.outputs[0];
        if !self.placed.contains_key(&output) {
            let largest = node.inputs.iter().max_by_key(|id| self.graph.value(**id).elements());
            let order = largest.map_or_else(Order::new, |id| self.order(*id));
            self.fresh(output, &order);
        }
        let whole = self.operand(output, None);
        let mut start = 0;
        for input in &node.inputs {
            let shape: Shape = self.graph.shape(*input).into();
            if !self.at_home.contains(input) {
                let view = whole.view.slice(axis, start, 1);
                let part = Operand { shape: shape.clone(), view, ..whole.clone() };
                let order = part.view.order(&shape);
                let source = self.operand(*input, Some(&order));
                self.step(node, Op::Copy, vec![source], vec![part], None);
            }
            start += shape[axis];
        }
    }

    fn conv(&mut self, node: &Node, conv: &Conv) {
        let order = image_order(&conv.image, self.graph.shape(node.inputs[0]).len());
        let mut inputs = vec![self.image_operand(node, node.inputs[0], &order)];
        // Weights go [out, window…, in]; those of a transposed convolution [in, window…, out].
        let rank = self.graph.shape(node.inputs[1]).len();
        let weights: Order = [0].into_iter().chain(2..rank).chain([1]).collect();
        inputs.push(self.operand(node.inputs[1], Some(&weights)));
        let output = self.fresh_image(node.outputs[0], &order);
        inputs.extend(node.inputs[2..].iter().map(|id| self.operand(*id, Some(&order))));
        self.step(node, node.op.clone(), inputs, vec![output], None);
    }

    fn image(&mut self, node: &Node, image: &Image) {
        let order = image_order(image, self.graph.shape(node.inputs[0]).len());
        let input = self.image_operand(node, node.inputs[0], &order);
        let output = self.fresh_image(node.outputs[0], &order);
        self.step(node, node.op.clone(), vec![input], vec![output], None);
    }

    /// Resized axes lie like an image's spatial ones: the last of the others is the channel.
    fn resize(&mut self, node: &Node, resized: &[usize]) {
        let rank = self.graph.shape(node.inputs[0]).len();
        let mut others: Order = (0..rank).filter(|axis| !resized.contains(axis)).collect();
        let channel = others.pop();
        let order: Order = others.into_iter().chain(resized.iter().copied()).chain(channel).collect();
        let input = self.image_operand(node, node.inputs[0], &order);
        let output = self.fresh_image(node.outputs[0], &order);
        self.step(node, node.op.clone(), vec![input], vec![output], None);
    }

    fn einsum(&mut self, node: &Node, einsum: &Einsum) {
        let (a, b, c) = (node.inputs[0], node.inputs[1], node.outputs[0]);
        let (shape_a, shape_b, shape_c) = (self.graph.shape(a), self.graph.shape(b), self.graph.shape(c));
        let labels = Labels::of(einsum, shape_a, shape_b);
        let mut first = self.operand(a, Some(&labels.order_of_a(einsum)));
        // Constants without a batch are packed in whatever order suits.
        let packed = matches!(self.place(b).at, At::Constant(_)) && labels.batch.is_empty();
        let mut second = (!packed).then(|| self.operand(b, Some(&labels.order_of_b(einsum))));
        // At most each of the two is copied once; a copy always suits.
        let mut output = None;
        let product = loop {
            let side_a = Side { labels: &einsum.a, shape: shape_a, view: &first.view };
            let output = output.get_or_insert_with(|| {
                let order = labels.output_order(einsum, side_a);
                self.fresh(c, &order)
            });
            let side_b =
                second.as_ref().map(|second| Side { labels: &einsum.b, shape: shape_b, view: &second.view });
            let side_c = Side { labels: &einsum.c, shape: shape_c, view: &output.view };
            match Product::new(&labels, side_a, side_b, side_c) {
                Ok(product) => break product,
                Err(Unsuited::A) => first = self.copied(node, a, &labels.order_of_a(einsum)),
                Err(Unsuited::B) => second = Some(self.copied(node, b, &labels.order_of_b(einsum))),
            }
        };
        let Some(output) = output else { return };
        let order = output.view.order(shape_c);
        let second = second.unwrap_or_else(|| {
            let side_a = Side { labels: &einsum.a, shape: shape_a, view: &first.view };
            let side_c = Side { labels: &einsum.c, shape: shape_c, view: &output.view };
            self.operand(b, Some(&labels.packed_order_of_b(einsum, side_a, side_c)))
        });
        let mut inputs = vec![first, second];
        for (at, id) in node.inputs[2..].iter().enumerate() {
            let bias = at == 0 && einsum.epilogue.bias;
            let own = row_major(self.graph.shape(*id));
            inputs.push(self.operand(*id, Some(if bias { &own } else { &order })));
        }
        self.step(node, node.op.clone(), inputs, vec![output], Some(product));
    }

    /// Operands are read as they lie: what is summed over, and what a row of the output is made of, is one axis each.
    /// The output's rows lie as it names them, since what follows often merges them so.
    fn attention(&mut self, node: &Node, attention: &Attention) {
        let rank = attention.y.len();
        let is_column = |axis: &usize| {
            attention.v.contains(&attention.y[*axis]) && !attention.scores.contains(&attention.y[*axis])
        };
        let rows = (0..rank).filter(|axis| !is_column(axis));
        let order: Order = rows.chain((0..rank).filter(is_column)).collect();
        let output = self.fresh(node.outputs[0], &order);
        let inputs = node.inputs.iter().map(|id| self.operand(*id, None)).collect();
        self.step(node, node.op.clone(), inputs, vec![output], None);
    }

    fn pointwise(&mut self, node: &Node) {
        let (value, shape) = (node.outputs[0], self.graph.shape(node.outputs[0]));
        // The first operand that is as large as the output and no constant tells how the output lies.
        let whole = |id: &&ValueId| {
            self.graph.shape(**id) == shape && !matches!(self.place(**id).at, At::Constant(_))
        };
        let model = node.inputs.iter().find(whole).copied();
        let order = model.map_or_else(|| row_major(shape), |id| self.order(id));
        let output = match self.overwritten(node) {
            Some(placed) => {
                self.put(value, placed);
                self.operand(value, None)
            }
            None => self.fresh(value, &order),
        };
        let inputs = node.inputs.iter().map(|id| self.operand(*id, Some(&order))).collect();
        self.step(node, node.op.clone(), inputs, vec![output], None);
    }

    /// The operand that a pointwise node may overwrite: it fills a block of the output's dtype that nobody reads
    /// after this node.
    fn overwritten(&self, node: &Node) -> Option<Placed> {
        let value = self.graph.value(node.outputs[0]);
        if self.homes.contains_key(&node.outputs[0]) {
            return None;
        }
        node.inputs.iter().find_map(|id| {
            let placed = self.placed.get(id)?;
            let At::Block(block) = placed.at else { return None };
            let here = node
                .inputs
                .iter()
                .filter(|other| self.placed.get(other).is_some_and(|other| other.at == placed.at));
            let (mut reads, mut alike) = (0, true);
            for other in here {
                reads += 1;
                alike &= self.graph.shape(*other) == value.shape.as_slice()
                    && self.placed[other].view == placed.view;
            }
            let own = &self.done.blocks[block.0 as usize];
            let fills = placed.view.offset == 0 && placed.view.span(&value.shape) == own.elements;
            let last = self.pending[block.0 as usize] == reads;
            (alike && last && fills && own.dtype == value.dtype && own.elements == value.elements())
                .then(|| placed.clone())
        })
    }

    /// Ops that read and write row-major.
    fn rows(&mut self, node: &Node) {
        let mut inputs = vec![];
        for (at, id) in node.inputs.iter().enumerate() {
            let order = row_major(self.graph.shape(*id));
            let operand = self.operand(*id, Some(&order));
            // A table that is gathered from may lie anyhow.
            let anyhow = matches!(node.op, Op::Gather(_)) && at == 0;
            let suits = anyhow || operand.view.is_row_major(&operand.shape);
            inputs.push(if suits { operand } else { self.copied(node, *id, &order) });
        }
        let outputs =
            node.outputs.iter().map(|id| self.fresh(*id, &row_major(self.graph.shape(*id)))).collect();
        self.step(node, node.op.clone(), inputs, outputs, None);
    }

    /// Ops whose kernels take any strides: the output lies like the first input.
    fn like_first(&mut self, node: &Node) {
        let order = self.order(node.inputs[0]);
        let inputs = node.inputs.iter().map(|id| self.operand(*id, Some(&order))).collect();
        let output = self.fresh(node.outputs[0], &order);
        self.step(node, node.op.clone(), inputs, vec![output], None);
    }

    /// A caller gets its results row-major, each in a block of its own.
    fn output(&mut self, id: ValueId) {
        let shape = self.graph.shape(id);
        let mut operand = self.operand(id, Some(&row_major(shape)));
        let whole = operand.view.is_row_major(shape) && matches!(operand.place, Place::Workspace(_));
        if !whole {
            let node = Node {
                name: self.graph.value(id).name.clone(),
                op: Op::Copy,
                inputs: vec![id],
                outputs: vec![],
            };
            operand = self.copied(&node, id, &row_major(shape));
        }
        if let Place::Workspace(block) = operand.place {
            self.done.blocks[block.0 as usize].output = true;
        }
        self.done.outputs.push(operand);
    }

    fn finish(mut self) -> Layout {
        let end = self.done.steps.len();
        for block in &mut self.done.blocks {
            if block.input {
                block.first_step = 0;
            }
            if block.output {
                block.last_step = end;
            }
            // A block that no step touches (an input that nobody reads) still has its place.
            if block.first_step == usize::MAX {
                block.first_step = 0;
            }
        }
        self.done
    }
}

/// Batch, spatial axes, channel.
fn image_order(image: &Image, rank: usize) -> Order {
    let spatial = (0..rank).filter(|axis| *axis != image.channel && Some(*axis) != image.batch);
    image.batch.into_iter().chain(spatial).chain([image.channel]).collect()
}

/// The distance between pixels of an image whose axes lie in `order`, channel last and without gaps; `None` where
/// they do not. Rows and images follow each other without gaps but those between pixels.
pub(crate) fn pixel_stride(view: &View, shape: &[usize], order: &[usize]) -> Option<usize> {
    let (&channel, pixels) = order.split_last()?;
    if shape[channel] > 1 && view.strides[channel] != 1 {
        return None;
    }
    let (mut stride, mut inner) = (None, 1);
    for &axis in pixels.iter().rev().filter(|axis| shape[**axis] > 1) {
        let own = *stride.get_or_insert(view.strides[axis]);
        if view.strides[axis] != own * inner {
            return None;
        }
        inner *= shape[axis];
    }
    let stride = stride.unwrap_or(shape[channel]);
    (stride >= shape[channel]).then_some(stride)
}

//! Where values go: blocks of their own, homes inside concatenations, copies, constants.

use super::super::steps::{Block, BlockId, Constant, ConstantId, Operand, Place, Step};
use super::super::view::{Order, View};
use super::super::{Product, pixel_stride};
use super::{At, Placed, Walk, row_major};
use crate::graph::{Node, Op, ValueId};
use crate::tensor::{DType, Shape, volume};

impl Walk<'_> {
    pub(super) fn place(&self, id: ValueId) -> Placed {
        self.placed.get(&id).cloned().unwrap_or_else(|| {
            // Constants are where the graph has them until a step asks for them.
            Placed { at: At::Constant(id), view: View::row_major(self.graph.shape(id)) }
        })
    }

    pub(super) fn order(&self, id: ValueId) -> Order {
        self.place(id).view.order(self.graph.shape(id))
    }

    pub(super) fn put(&mut self, id: ValueId, placed: Placed) {
        if let At::Block(block) = placed.at {
            self.pending[block.0 as usize] += self.reads[id.0 as usize];
        }
        self.placed.insert(id, placed);
    }

    /// The value as an operand; a constant is laid out in `order`.
    pub(super) fn operand(&mut self, id: ValueId, order: Option<&Order>) -> Operand {
        let (placed, value) = (self.place(id), self.graph.value(id));
        let (dtype, shape) = (value.dtype, value.shape.clone());
        match placed.at {
            At::Block(block) => Operand { place: Place::Workspace(block), dtype, shape, view: placed.view },
            At::Constant(origin) => {
                let order = order.filter(|order| order.len() == shape.len()).cloned();
                let order = order.unwrap_or_else(|| row_major(&shape));
                let view = View::contiguous(&shape, &order);
                let constant =
                    Constant { value: origin, dtype, shape: shape.clone(), source: placed.view, order };
                let known = self.done.constants.iter().position(|known| *known == constant);
                let at = known.unwrap_or_else(|| {
                    self.done.constants.push(constant);
                    self.done.constants.len() - 1
                });
                Operand { place: Place::Constant(ConstantId(at as u32)), dtype, shape, view }
            }
        }
    }

    /// A block of its own for what a node makes, or its home inside a concatenation.
    pub(super) fn fresh(&mut self, id: ValueId, order: &[usize]) -> Operand {
        if let Some(home) = self.homes.get(&id).copied() {
            if !self.placed.contains_key(&home.inside) {
                self.fresh(home.inside, order);
            }
            let Placed { at, view } = self.place(home.inside);
            self.put(id, Placed { at, view: view.slice(home.axis, home.start, 1) });
            self.at_home.insert(id);
            return self.operand(id, None);
        }
        let value = self.graph.value(id);
        let at = At::Block(self.block(&value.name, value.dtype, &value.shape));
        self.put(id, Placed { at, view: View::contiguous(&value.shape, order) });
        self.operand(id, None)
    }

    /// As [`Walk::fresh`] for an image; a home that does not suit one is given up.
    pub(super) fn fresh_image(&mut self, id: ValueId, order: &[usize]) -> Operand {
        if let Some(home) = self.homes.get(&id).copied() {
            let shape: Shape = self.graph.shape(id).into();
            let inside = self.placed.get(&home.inside).map(|placed| placed.view.clone());
            let inside = inside.unwrap_or_else(|| View::contiguous(self.graph.shape(home.inside), order));
            if pixel_stride(&inside.slice(home.axis, home.start, 1), &shape, order).is_none() {
                self.homes.remove(&id);
            }
        }
        self.fresh(id, order)
    }

    pub(super) fn block(&mut self, name: &str, dtype: DType, shape: &[usize]) -> BlockId {
        let elements = volume(shape).unwrap_or(usize::MAX);
        let block = Block {
            name: name.into(),
            dtype,
            elements,
            first_step: usize::MAX,
            last_step: 0,
            input: false,
            output: false,
        };
        self.done.blocks.push(block);
        self.pending.push(0);
        BlockId((self.done.blocks.len() - 1) as u32)
    }

    /// The value as an image in `order` (channel last), copied where it does not lie so.
    pub(super) fn image_operand(&mut self, node: &Node, id: ValueId, order: &Order) -> Operand {
        let operand = self.operand(id, Some(order));
        match pixel_stride(&operand.view, &operand.shape, order) {
            Some(_) => operand,
            None => self.copied(node, id, order),
        }
    }

    /// A copy of the value in `order`, by a step of its own.
    pub(super) fn copied(&mut self, node: &Node, id: ValueId, order: &Order) -> Operand {
        let source = self.operand(id, Some(order));
        let block = self.block(&self.graph.value(id).name, source.dtype, &source.shape);
        let view = View::contiguous(&source.shape, order);
        let copy = Operand { place: Place::Workspace(block), view, ..source.clone() };
        self.step(node, Op::Copy, vec![source], vec![copy.clone()], None);
        copy
    }

    pub(super) fn step(
        &mut self,
        node: &Node,
        op: Op,
        inputs: Vec<Operand>,
        outputs: Vec<Operand>,
        product: Option<Product>,
    ) {
        let at = self.done.steps.len();
        for operand in inputs.iter().chain(&outputs) {
            if let Place::Workspace(block) = operand.place {
                let block = &mut self.done.blocks[block.0 as usize];
                block.first_step = block.first_step.min(at);
                block.last_step = block.last_step.max(at);
            }
        }
        self.done.steps.push(Step { name: node.name.clone(), op, inputs, outputs, product });
    }
}

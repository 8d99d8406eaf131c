//! A graph under change: who makes and who reads each value, kept true through every change.
//!
//! A pattern is rewritten where its last node stands, so that what it reads has been made and the order of nodes
//! stays one in which they can run. A node that nobody reads any more is dead at once, and dropped after the pass.

use super::{Fused, Note, Outcome, Preferences};
use crate::graph::{Data, Graph, Node, Op, Value, ValueId};
use crate::tensor::DType;
use bytes::Bytes;
use std::collections::HashSet;

pub(super) struct Edit<'a> {
    graph: Graph,
    pub(super) preferences: &'a Preferences,
    notes: Vec<Note>,
    pass: &'static str,
    makers: Vec<Option<usize>>,
    readers: Vec<Vec<usize>>,
    outputs: Vec<bool>,
    dead: Vec<bool>,
    /// Nodes to stand before others, from the end of the pass on.
    pending: Vec<(usize, Node)>,
}

impl<'a> Edit<'a> {
    pub(super) fn new(graph: Graph, preferences: &'a Preferences) -> Edit<'a> {
        let mut edit = Edit {
            graph,
            preferences,
            notes: vec![],
            pass: "",
            makers: vec![],
            readers: vec![],
            outputs: vec![],
            dead: vec![],
            pending: vec![],
        };
        edit.graph.prune();
        edit.index();
        edit
    }

    fn index(&mut self) {
        self.makers = self.graph.makers();
        self.readers = self.graph.readers();
        self.outputs = vec![false; self.graph.values.len()];
        for output in &self.graph.outputs {
            self.outputs[output.0 as usize] = true;
        }
        self.dead = vec![false; self.graph.nodes.len()];
    }

    /// Starts a pass.
    pub(super) fn begin(&mut self, pass: &'static str) {
        self.pass = pass;
    }

    /// Ends a pass: new nodes take their places, dead nodes and unread constants go.
    pub(super) fn end(&mut self) {
        // From behind, so that places before an insertion hold.
        self.pending.sort_by_key(|(at, _)| *at);
        for (at, node) in std::mem::take(&mut self.pending).into_iter().rev() {
            self.graph.nodes.insert(at, node);
        }
        self.graph.prune();
        self.index();
        debug_assert!(
            self.graph.check().is_ok(),
            "after {}: {:?}\n{}",
            self.pass,
            self.graph.check(),
            self.graph
        );
    }

    pub(super) fn finish(mut self) -> Fused {
        // A pass may come by a node several times, for the same reason.
        let mut seen = HashSet::new();
        self.notes.retain(|note| seen.insert(note.clone()));
        Fused { graph: self.graph, notes: self.notes }
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(super) fn value(&self, id: ValueId) -> &Value {
        self.graph.value(id)
    }

    pub(super) fn shape(&self, id: ValueId) -> &[usize] {
        self.graph.shape(id)
    }

    pub(super) fn is_constant(&self, id: ValueId) -> bool {
        self.value(id).constant.is_some()
    }

    /// Places of nodes, the dead ones among them.
    pub(super) fn places(&self) -> std::ops::Range<usize> {
        0..self.graph.nodes.len()
    }

    /// The node at a place, unless it is dead.
    pub(super) fn node(&self, at: usize) -> Option<&Node> {
        self.graph.nodes.get(at).filter(|_| !self.dead[at])
    }

    /// What the node makes; the first of several.
    pub(super) fn output(&self, at: usize) -> Option<ValueId> {
        self.node(at)?.outputs.first().copied()
    }

    /// The place of the node that makes a value.
    pub(super) fn maker(&self, id: ValueId) -> Option<usize> {
        self.makers[id.0 as usize]
    }

    /// The node that makes a value.
    pub(super) fn made_by(&self, id: ValueId) -> Option<&Node> {
        self.node(self.maker(id)?)
    }

    /// The places of those who read a value; one that reads it twice stands twice.
    pub(super) fn readers(&self, id: ValueId) -> &[usize] {
        &self.readers[id.0 as usize]
    }

    pub(super) fn is_output(&self, id: ValueId) -> bool {
        self.outputs[id.0 as usize]
    }

    /// The one node that reads a value which is no output.
    pub(super) fn only_reader(&self, id: ValueId) -> Option<usize> {
        let (first, rest) = self.readers(id).split_first()?;
        (!self.is_output(id) && rest.iter().all(|reader| reader == first)).then_some(*first)
    }

    fn note(&mut self, at: usize, outcome: Outcome) {
        let node = self.graph.nodes[at].name.clone();
        self.notes.push(Note { pass: self.pass, node, outcome });
    }

    pub(super) fn fused(&mut self, at: usize) {
        self.note(at, Outcome::Fused);
    }

    pub(super) fn declined(&mut self, at: usize, reason: impl Into<String>) {
        self.note(at, Outcome::Declined(reason.into()));
    }

    pub(super) fn add_value(&mut self, value: Value) -> ValueId {
        self.makers.push(None);
        self.readers.push(vec![]);
        self.outputs.push(false);
        self.graph.add_value(value)
    }

    /// A new value like another, with another shape.
    pub(super) fn add_like(&mut self, id: ValueId, shape: &[usize]) -> ValueId {
        let value = Value { shape: shape.into(), constant: None, ..self.value(id).clone() };
        self.add_value(value)
    }

    /// The same constant under another shape of as many elements; the bytes are shared.
    pub(super) fn add_reshaped(&mut self, id: ValueId, shape: &[usize]) -> ValueId {
        let value = Value { shape: shape.into(), ..self.value(id).clone() };
        self.add_value(value)
    }

    pub(super) fn add_floats(&mut self, name: &str, shape: &[usize], floats: &[f32]) -> ValueId {
        let constant = Some(Data::Bytes(Bytes::copy_from_slice(bytemuck::cast_slice(floats))));
        self.add_value(Value { name: name.into(), dtype: DType::F32, shape: shape.into(), constant })
    }

    /// Gives a value the elements that it was found to have; whoever makes it dies.
    pub(super) fn make_constant(&mut self, id: ValueId, data: Data) {
        self.graph.values[id.0 as usize].constant = Some(data);
        if let Some(at) = self.makers[id.0 as usize] {
            self.kill(at);
        }
    }

    /// Has a value stored otherwise; its elements are rounded to that.
    pub(super) fn retype(&mut self, id: ValueId, dtype: DType) {
        self.graph.values[id.0 as usize].dtype = dtype;
    }

    /// Gives a node another op and other inputs; it makes what it made.
    pub(super) fn set(&mut self, at: usize, op: Op, inputs: Vec<ValueId>) {
        let outputs = self.graph.nodes[at].outputs.clone();
        self.put(at, op, inputs, outputs);
    }

    /// Gives a node another op, other inputs and outputs.
    pub(super) fn put(&mut self, at: usize, op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>) {
        for id in &inputs {
            self.readers[id.0 as usize].push(at);
        }
        let node = &mut self.graph.nodes[at];
        node.op = op;
        let before = std::mem::replace(&mut node.inputs, inputs);
        for id in std::mem::replace(&mut node.outputs, outputs.clone()) {
            if self.makers[id.0 as usize] == Some(at) {
                self.makers[id.0 as usize] = None;
            }
        }
        for id in outputs {
            self.makers[id.0 as usize] = Some(at);
        }
        self.forget(at, &before);
    }

    /// Puts a new node before the one at `at`, which is to read what it makes. Patterns see it after the pass.
    pub(super) fn insert_before(&mut self, at: usize, op: Op, inputs: Vec<ValueId>, output: ValueId) {
        for id in &inputs {
            self.readers[id.0 as usize].push(at);
        }
        let name = self.graph.nodes[at].name.clone();
        self.pending.push((at, Node { name, op, inputs, outputs: vec![output] }));
    }

    /// Puts a new node behind the one at `at`, which makes its input. Patterns see it after the pass.
    pub(super) fn insert_after(&mut self, at: usize, op: Op, input: ValueId, output: ValueId) {
        let name = self.graph.nodes[at].name.clone();
        self.pending.push((at + 1, Node { name, op, inputs: vec![input], outputs: vec![output] }));
    }

    /// Gives the bytes of a constant back at once where nobody reads it any more.
    pub(super) fn drop_unread(&mut self, id: ValueId) {
        if self.readers(id).is_empty() && !self.is_output(id) {
            self.graph.values[id.0 as usize].constant = None;
        }
    }

    /// Lets the node at `from`, changed so, make what the one at `to` makes. It stays where it is if what it reads
    /// has been made by then, for so long as it waits its inputs are kept; else it moves to `to`. Returns where.
    pub(super) fn take_over(&mut self, from: usize, to: usize, op: Op, inputs: Vec<ValueId>) -> usize {
        if inputs.iter().any(|id| self.maker(*id).is_some_and(|maker| maker >= from)) {
            self.graph.nodes[to].name = self.graph.nodes[from].name.clone();
            self.set(to, op, inputs);
            return to;
        }
        let outputs = std::mem::take(&mut self.graph.nodes[to].outputs);
        self.put(from, op, inputs, outputs);
        self.kill(to);
        from
    }

    /// Lets every reader of a value read another, outputs included. `false`, and nothing changed, where an output
    /// would become an input, a constant or another output, which callers expect in memory of its own.
    pub(super) fn replace_value(&mut self, from: ValueId, to: ValueId) -> bool {
        if self.is_output(from) {
            if self.is_output(to) || self.maker(to).is_none() {
                return false;
            }
            self.graph.outputs.iter_mut().filter(|id| **id == from).for_each(|id| *id = to);
            self.outputs[from.0 as usize] = false;
            self.outputs[to.0 as usize] = true;
        }
        let readers = std::mem::take(&mut self.readers[from.0 as usize]);
        for &at in &readers {
            self.graph.nodes[at].inputs.iter_mut().filter(|id| **id == from).for_each(|id| *id = to);
        }
        self.readers[to.0 as usize].extend(readers);
        self.release(from);
        true
    }

    /// The node reads those values no more.
    fn forget(&mut self, at: usize, inputs: &[ValueId]) {
        for id in inputs {
            let readers = &mut self.readers[id.0 as usize];
            if let Some(place) = readers.iter().position(|reader| *reader == at) {
                readers.swap_remove(place);
            }
        }
        for id in inputs {
            self.release(*id);
        }
    }

    /// Kills the maker of a value that nobody reads.
    fn release(&mut self, id: ValueId) {
        let Some(at) = self.makers[id.0 as usize] else { return };
        let unread = |id: &ValueId| !self.is_output(*id) && self.readers(*id).is_empty();
        if self.graph.nodes[at].outputs.iter().all(unread) {
            self.kill(at);
        }
    }

    fn kill(&mut self, at: usize) {
        if std::mem::replace(&mut self.dead[at], true) {
            return;
        }
        let node = &mut self.graph.nodes[at];
        let inputs = std::mem::take(&mut node.inputs);
        for id in std::mem::take(&mut node.outputs) {
            self.makers[id.0 as usize] = None;
        }
        self.forget(at, &inputs);
    }
}

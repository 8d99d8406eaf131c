//! Graph → Graph: fewer and larger steps that compute the same.
//!
//! The passes stand in `PASSES`, in the order in which they run and with the reason for it. Each looks for one
//! kind of pattern, rewrites it in place and, where it almost did, says why it did not: the `Note`s are what
//! `plimsoll plan --explain` shows. Nothing here knows a device; what one can do comes in as `Preferences`.

mod activations;
mod affine;
mod attention;
mod casts;
mod chains;
mod concats;
mod constants;
mod edit;
mod epilogues;
mod evaluate;
mod halves;
mod inputs;
mod matching;
mod means;
mod merge;
mod noops;
mod norms;
mod one_hot;
mod scales;
mod siblings;
mod simplify;
mod softmax;
mod tables;
#[cfg(test)]
mod tests;
mod views;

use crate::graph::Graph;
use edit::Edit;
use std::collections::BTreeSet;

/// What a device's chains can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// The most operands that a chain reads. Default: 12.
    pub chain_operands: usize,
    /// The most results of a chain that are live at once. Default: 8.
    pub chain_registers: usize,
    /// Whether products run a chain on each element while it is at hand, or only add a bias. Default: true.
    pub epilogue_chains: bool,
    /// For how many keys attention is faster as one step; `None` where there is no kernel for it.
    pub attention: Option<AttentionKeys>,
    /// Whether products of one value with several constants are faster as one. Default: false.
    pub joined_products: bool,
    /// How numbers are stored and multiplied. Default: as f32.
    pub precision: Precision,
    /// The names of nodes whose results are stored as f32 all the same. Default: none.
    pub wide: BTreeSet<String>,
}

/// How f32 numbers of a model are stored and multiplied; sums are f32 always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// As they are.
    #[default]
    F32,
    /// Stored as they are, and rounded to eleven bits where a device multiplies matrices.
    Tf32,
    /// Stored as f16 where their range allows it.
    F16,
}

impl Precision {
    /// The word that configuration and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "fp32",
            Precision::Tf32 => "tf32",
            Precision::F16 => "fp16",
        }
    }
}

/// For how many keys attention as one step pays, and what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionKeys {
    /// Where scores are scaled, added to, or changed by any function. Default: 64.
    pub fewest: usize,
    /// Where a mask selects scores. Default: 256.
    pub fewest_selected: usize,
    /// The most elements of a query, key or value. Default: no limit.
    pub deepest: usize,
    /// Whether nothing but a scale and a mask that is added may stand between scores and softmax. Default: false.
    pub additive: bool,
}

impl Default for AttentionKeys {
    fn default() -> AttentionKeys {
        AttentionKeys { fewest: 64, fewest_selected: 256, deepest: usize::MAX, additive: false }
    }
}

impl Default for Preferences {
    fn default() -> Preferences {
        let attention = Some(AttentionKeys::default());
        Preferences {
            chain_operands: 12,
            chain_registers: 8,
            epilogue_chains: true,
            attention,
            joined_products: false,
            precision: Precision::F32,
            wide: BTreeSet::new(),
        }
    }
}

/// A fused graph, and what was and was not done to it.
#[derive(Clone, Debug)]
pub struct Fused {
    /// The graph.
    pub graph: Graph,
    /// In the order of the passes.
    pub notes: Vec<Note>,
}

/// What a pass did at a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// The pass's name in `PASSES`.
    pub pass: &'static str,
    /// The node's name in the model's file.
    pub node: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was rewritten.
    Fused,
    /// It was left as it is, and why.
    Declined(String),
}

/// A pass: its name in notes, and what it does.
type Pass = (&'static str, fn(&mut Edit<'_>));

/// The passes in order. All are linear in the nodes but for the patterns' own lengths.
const PASSES: &[Pass] = &[
    // Numbers into the operations that read them, and what is known ahead computed: every later pattern is then
    // written with numbers where models write them, and never meets two copies of one constant.
    ("constants", constants::run),
    // What changes nothing, so that patterns are not interrupted by it; and again, for the operations and views
    // that by now stand next to each other.
    ("no-ops", noops::run),
    ("concats", concats::run),
    ("views", views::run),
    ("no-ops", noops::run),
    // Before the norms and softmaxes, which are made of means.
    ("means", means::run),
    // The longest patterns first: chains would swallow their middles.
    ("norms", norms::run),
    ("softmax", softmax::run),
    // Before scales and epilogues, which would give the product, which goes away, what follows it.
    ("one-hot", one_hot::run),
    // Before chains, while a multiplication by a constant is still a node of its own.
    ("scales", scales::run),
    // After scales, which leave weights that a number can still multiply.
    ("inputs", inputs::run),
    // Conversions of bools and whole numbers become part of the chains.
    ("casts", casts::run),
    // As much as fits into one step, and then the activations that this brings together.
    ("chains", chains::run),
    // Chains on rows of a table, as a whole.
    ("tables", tables::run),
    // A chain moves into a product as a whole.
    ("epilogues", epilogues::run),
    // Last: what is done to the scores stands at the end of their product.
    ("attention", attention::run),
    // When every product has the epilogue that it will have.
    ("siblings", siblings::run),
    // When all steps are what they will be.
    ("halves", halves::run),
];

/// Fuses a graph that holds together into one that computes the same, up to rounding.
pub fn fuse(graph: Graph, preferences: &Preferences) -> Fused {
    let mut edit = Edit::new(graph, preferences);
    for (name, pass) in PASSES {
        edit.begin(name);
        pass(&mut edit);
        edit.end();
    }
    edit.finish()
}

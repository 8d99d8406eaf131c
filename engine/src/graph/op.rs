//! The ops, and in which order each reads its inputs.

use super::attention::Attention;
use super::chain::Chain;
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// What a node does. Shapes are those of the values; nothing here broadcasts but what says so.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Op {
    /// Cross-correlation: image, weights \[out, in / groups, window…], then the [`Epilogue`]'s inputs.
    Conv(Conv),
    /// Its transpose: image, weights \[in, out / groups, window…], then the [`Epilogue`]'s inputs.
    ConvTranspose(Conv),
    /// A product of two tensors summed over labels, then the [`Epilogue`]'s inputs.
    Einsum(Einsum),
    /// Attention: queries, keys and values, then the operands of its chain from the second on.
    Attention(Box<Attention>),
    /// A chain over operands of equal rank that broadcast against each other.
    Pointwise(Chain),
    /// A reduction; the reduced axes stay, with size 1.
    Reduce(Reducer, SmallVec<[usize; 4]>),
    /// exp(x − max) / Σ over the axes; the logarithm of that where `log`.
    Softmax {
        /// Over which axes together.
        axes: SmallVec<[usize; 4]>,
        /// Whether the logarithm is wanted.
        log: bool,
    },
    /// (x − mean) / √(variance + ε), or without the mean; then scale and shift where given, which broadcast.
    Norm(Norm),
    /// Maximum or average over windows of an image.
    Pool(Pool),
    /// Linear interpolation along some axes by tables.
    Resize(Vec<(usize, Taps)>),
    /// Inputs one after the other along an axis.
    Concat(usize),
    /// Every `step`th index from `start` on along an axis; the output's size says how many.
    Slice {
        /// Along which axis.
        axis: usize,
        /// The first index taken.
        start: usize,
        /// The distance between indices taken, 1 or more.
        step: usize,
    },
    /// A border around the input.
    Pad(Pad),
    /// The same elements in row-major order under another shape.
    Reshape,
    /// Output axis i is input axis `order[i]`.
    Permute(SmallVec<[usize; 6]>),
    /// Axes of size 1 repeated to the output's shape; ranks are equal.
    Broadcast,
    /// Slices of the first input along an axis at the whole numbers of the second; its axes take the axis's place.
    Gather(usize),
    /// Elements converted as Rust's `as` converts; to bool by comparing with 0.
    Cast,
    /// The same elements in memory of their own, in the order that the plan gives them.
    Copy,
    /// Something that only the importer's library can compute, on the host.
    #[serde(skip)]
    Host(Arc<dyn HostStep>),
}

/// Which axes of a tensor are those of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The batch axis, where there is one.
    pub batch: Option<usize>,
    /// The channel axis.
    pub channel: usize,
    /// The first of the spatial axes, which follow each other; as many as the window has.
    pub spatial: usize,
}

/// A window that slides over an image. One entry a spatial axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Its size.
    pub size: SmallVec<[usize; 3]>,
    /// How far it moves, in elements.
    pub stride: SmallVec<[usize; 3]>,
    /// The distance between its elements, 1 where they touch.
    pub dilation: SmallVec<[usize; 3]>,
    /// Elements of border before the image; the output's size tells how many come after.
    pub before: SmallVec<[usize; 3]>,
}

/// A convolution.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conv {
    /// The axes of input and output.
    pub image: Image,
    /// The window.
    pub window: Window,
    /// Channels are convolved in so many groups apart.
    pub groups: usize,
    /// What follows at once.
    pub epilogue: Epilogue,
}

/// What a product does with each element while it is at hand. Inputs: the bias where there is one, then the
/// chain's operands from the second on (the first is the element itself).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Epilogue {
    /// Whether a bias, one number a channel (or label `n`), is added first.
    pub bias: bool,
    /// What follows; its operands broadcast against the output.
    pub chain: Option<Chain>,
}

/// A sum of products over labelled axes: a label on both inputs and not on the output is summed over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Einsum {
    /// The labels of the first input's axes.
    pub a: SmallVec<[char; 6]>,
    /// The labels of the second input's axes.
    pub b: SmallVec<[char; 6]>,
    /// The labels of the output's axes; one that no input has is of size 1.
    pub c: SmallVec<[char; 6]>,
    /// What follows at once; the bias runs along the labels that only `b` has.
    pub epilogue: Epilogue,
}

/// What a reduction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Reducer {
    Sum,
    Mean,
    Max,
    Min,
    Product,
    SumOfSquares,
    MeanOfSquares,
    /// The position of the largest element as I64, over one axis: the first of equals, or the last.
    ArgMax {
        last: bool,
    },
    /// The position of the smallest.
    ArgMin {
        last: bool,
    },
}

/// A normalization over axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Norm {
    /// Over which axes together.
    pub axes: SmallVec<[usize; 4]>,
    /// ε.
    pub epsilon: f32,
    /// Whether the mean is taken off (layer norm) or not (root-mean-square norm).
    pub center: bool,
    /// Whether the second input is a scale.
    pub scale: bool,
    /// Whether the next input is a shift.
    pub shift: bool,
}

/// Pooling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The axes of input and output.
    pub image: Image,
    /// The window.
    pub window: Window,
    /// What is computed.
    pub kind: PoolKind,
}

/// What pooling computes of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolKind {
    /// The largest element; the border does not count.
    Max,
    /// The sum.
    Sum,
    /// The sum over the window's size, border included.
    Average,
    /// The sum over the number of elements that lie inside the image.
    AverageInside,
}

/// For every output index along an axis the input indices that it is made of, with their weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Taps(pub Vec<SmallVec<[(usize, f32); 2]>>);

/// A border.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pad {
    /// Elements before each axis; the output's shape tells how many come after.
    pub before: SmallVec<[usize; 6]>,
    /// What it is made of.
    pub mode: PadMode,
}

/// What a border is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PadMode {
    /// One element, as bytes.
    Constant(SmallVec<[u8; 8]>),
    /// The element next to it.
    Edge,
    /// The input mirrored about its first and last element, which are not repeated.
    Reflect,
}

/// A step that runs on the host, on tensors of its own.
pub trait HostStep: fmt::Debug + Send + Sync {
    /// The op's name in the importer's library.
    fn op(&self) -> &str;

    /// Bytes of constants that the step holds.
    fn constant_bytes(&self) -> usize;

    /// Computes the outputs.
    ///
    /// # Errors
    /// The library's words.
    fn run(&self, inputs: &[Tensor], outputs: &mut Vec<Tensor>) -> Result<(), crate::error::Error>;
}

impl Op {
    /// The op's name in dumps and reports.
    pub fn name(&self) -> &str {
        match self {
            Op::Conv(_) => "Conv",
            Op::ConvTranspose(_) => "ConvTranspose",
            Op::Einsum(_) => "Einsum",
            Op::Attention(_) => "Attention",
            Op::Pointwise(_) => "Pointwise",
            Op::Reduce(..) => "Reduce",
            Op::Softmax { .. } => "Softmax",
            Op::Norm(norm) if norm.center => "LayerNorm",
            Op::Norm(_) => "RmsNorm",
            Op::Pool(_) => "Pool",
            Op::Resize(_) => "Resize",
            Op::Concat(_) => "Concat",
            Op::Slice { .. } => "Slice",
            Op::Pad(_) => "Pad",
            Op::Reshape => "Reshape",
            Op::Permute(_) => "Permute",
            Op::Broadcast => "Broadcast",
            Op::Gather(_) => "Gather",
            Op::Cast => "Cast",
            Op::Copy => "Copy",
            Op::Host(_) => "Host",
        }
    }

    /// The epilogue of an op that has one.
    pub fn epilogue(&self) -> Option<&Epilogue> {
        match self {
            Op::Conv(conv) | Op::ConvTranspose(conv) => Some(&conv.epilogue),
            Op::Einsum(einsum) => Some(&einsum.epilogue),
            _ => None,
        }
    }

    /// As [`Op::epilogue`], to change it.
    pub fn epilogue_mut(&mut self) -> Option<&mut Epilogue> {
        match self {
            Op::Conv(conv) | Op::ConvTranspose(conv) => Some(&mut conv.epilogue),
            Op::Einsum(einsum) => Some(&mut einsum.epilogue),
            _ => None,
        }
    }
}

impl Window {
    /// Elements of the image that the window spans along spatial axis `at`.
    pub fn span(&self, at: usize) -> usize {
        (self.size[at] - 1) * self.dilation[at] + 1
    }
}

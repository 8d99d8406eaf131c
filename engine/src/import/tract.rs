//! The names of tract that the importer uses, in one place.

use std::sync::Arc;
use tract_onnx::data_resolver::FopenDataResolver;

pub(super) use tract_onnx::Onnx;
pub(super) use tract_onnx::pb;
pub(super) use tract_onnx::prelude::{
    DatumType, InferenceFact, InferenceModel, InferenceModelExt, IntoArcTensor, IntoTensor, TDim, TValue,
    TVec, Tensor, TractResult, TypedFact, TypedModel, TypedOp, tract_data::TooEarly,
};
pub(super) use tract_onnx::tract_hir::infer::{Factoid, InferenceModelPatch, InferenceNode, InferenceOp};
pub(super) use tract_onnx::tract_hir::internal::bail;
pub(super) use tract_onnx::tract_hir::ops::scan::InferenceScan;
pub(super) use tract_onnx::tract_hir::ops::source::Source as InferenceSource;
pub(super) use tract_onnx::tract_hir::tract_core::axes::AxesMapping;
pub(super) use tract_onnx::tract_hir::tract_core::internal::{OpState, StaticName, TypedNode, Validation};
pub(super) use tract_onnx::tract_hir::tract_core::model::{Fact, Graph, InletId, OutletId, SpecialOps};
pub(super) use tract_onnx::tract_hir::tract_core::ops::array::{
    Gather, MultiBroadcastTo, Pad, PadMode, Slice, TypedConcat,
};
pub(super) use tract_onnx::tract_hir::tract_core::ops::binary::TypedBinOp;
pub(super) use tract_onnx::tract_hir::tract_core::ops::cast::Cast;
pub(super) use tract_onnx::tract_hir::tract_core::ops::change_axes::{AxisChangeConsequence, AxisOp, InOut};
pub(super) use tract_onnx::tract_hir::tract_core::ops::cnn::{
    Conv, Deconv, KernelFormat, MaxPool, PaddingSpec, PoolSpec, SumPool,
};
pub(super) use tract_onnx::tract_hir::tract_core::ops::downsample::Downsample;
pub(super) use tract_onnx::tract_hir::tract_core::ops::einsum::EinSum;
pub(super) use tract_onnx::tract_hir::tract_core::ops::element_wise::ElementWiseOp;
pub(super) use tract_onnx::tract_hir::tract_core::ops::konst::Const;
pub(super) use tract_onnx::tract_hir::tract_core::ops::lstm_cell::LstmEpilogue;
pub(super) use tract_onnx::tract_hir::tract_core::ops::nn::resize::{NearestUpsample, Resize};
pub(super) use tract_onnx::tract_hir::tract_core::ops::nn::{
    DataFormat, LeakyRelu, Reduce, Reducer, RmsNorm, Softmax, SoftmaxKind,
};
pub(super) use tract_onnx::tract_hir::tract_core::ops::source::TypedSource;
pub(super) use tract_onnx::tract_hir::tract_core::ops::{EvalOp, Op};
pub(super) use tract_onnx::tract_hir::tract_core::optim::CONST_FOLD_MEM_BUDGET;
pub(super) use tract_onnx::tract_hir::tract_core::plan::{EvalContext, SimplePlan, SimpleState};
pub(super) use tract_onnx::tract_hir::tract_ndarray as ndarray;
pub(super) use tract_onnx_opl::lrn::Lrn;

/// tract's reader, with a file's own notes about inner and output shapes ignored: they speak of a symbolic batch
/// and conflict with the concrete shapes that we set.
pub(super) fn reader() -> Onnx {
    let mut onnx = tract_onnx::onnx().with_ignore_value_info(true).with_ignore_output_shapes(true);
    // Where tract itself reads data beside the model (that of nested graphs), it is not to map the file.
    onnx.provider = Arc::new(FopenDataResolver);
    onnx
}

/// An error of tract's as one line of bounded length; its chain can carry whole debug dumps.
pub(super) fn one_line(error: &anyhow::Error) -> String {
    const LONGEST: usize = 600;
    let mut text = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
    if text.len() > LONGEST {
        let cut = (0..=LONGEST).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// What tract asks of the ops of any graph, in one word.
pub(super) trait AnyOp:
    std::fmt::Debug + std::fmt::Display + AsRef<dyn Op> + AsMut<dyn Op> + Clone + 'static
{
}

impl<O: std::fmt::Debug + std::fmt::Display + AsRef<dyn Op> + AsMut<dyn Op> + Clone + 'static> AnyOp for O {}

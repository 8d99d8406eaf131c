//! The names of tract that the importer uses, in one place.

pub(super) use tract_onnx::Onnx;
pub(super) use tract_onnx::pb;
pub(super) use tract_onnx::prelude::{
    DatumType, InferenceFact, InferenceModel, InferenceModelExt, IntoArcTensor, IntoTensor, TDim, TValue,
    TVec, Tensor, TractResult, TypedModel,
};
pub(super) use tract_onnx::tract_hir::infer::Factoid;
pub(super) use tract_onnx::tract_hir::internal::bail;
pub(super) use tract_onnx::tract_hir::tract_core::model::{Fact, Graph, InletId, OutletId};
pub(super) use tract_onnx::tract_hir::tract_core::ops::Op;
pub(super) use tract_onnx::tract_hir::tract_core::ops::konst::Const;
pub(super) use tract_onnx::tract_hir::tract_core::plan::{SimplePlan, SimpleState};
pub(super) use tract_onnx::tract_hir::tract_ndarray as ndarray;

/// tract's reader, with a file's own notes about inner and output shapes ignored: they speak of a symbolic batch
/// and conflict with the concrete shapes that we set.
pub(super) fn reader() -> Onnx {
    tract_onnx::onnx().with_ignore_value_info(true).with_ignore_output_shapes(true)
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

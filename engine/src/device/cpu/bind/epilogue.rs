//! What follows a product: a bias and a clamp or a residual in registers, chains on rows still in the cache, or, where
//! an operand does not lie as rows, a pass of its own.

use super::super::args::Args;
use super::super::kernels::matmul::Epilogue;
use super::super::kernels::pointwise::{RowChain, RowOperand};
use super::super::memory::Source;
use super::pointwise::Whole;
use crate::device::NoKernel;
use crate::graph::{self, Binary, Chain, Instr, Src};
use crate::plan::{Operand, Step, View};
use crate::tensor::DType;
use smallvec::SmallVec;

/// How a step's epilogue is computed.
pub(super) struct Tail {
    bias: Option<usize>,
    residual: Option<(usize, usize)>,
    clamp: Option<(f32, f32)>,
    rows: Option<RowChain>,
    after: Option<Whole>,
    row_stride: usize,
    /// Which input the chain's second operand is.
    first: usize,
    operands: usize,
}

impl Tail {
    /// The epilogue of a step whose output's rows run along the axes `rows`, outermost first, and whose columns along
    /// `columns`; `None` where the kernel's rows are not that simple.
    pub(super) fn new(
        step: &Step,
        epilogue: &graph::Epilogue,
        axes: Option<(&[usize], &[usize])>,
    ) -> Result<Tail, NoKernel> {
        let bias = epilogue.bias.then_some(2);
        let first = 2 + usize::from(epilogue.bias);
        let operands = &step.inputs[first..];
        let mut tail = Tail {
            bias,
            residual: None,
            clamp: None,
            rows: None,
            after: None,
            row_stride: 0,
            first,
            operands: operands.len(),
        };
        let Some(chain) = &epilogue.chain else { return Ok(tail) };
        let output = &step.outputs[0];
        let kinds: Option<Vec<RowOperand>> = axes.and_then(|axes| {
            tail.row_stride = linear(&output.view, &output.shape, axes.0)?;
            operands.iter().map(|operand| kind(operand, output, axes)).collect()
        });
        if let Some((residual, clamp)) = in_registers(chain) {
            let stride = match (residual, kinds.as_deref()) {
                (false, _) => Some(None),
                (true, Some([RowOperand::Full { row_stride }])) => Some(Some((first, *row_stride))),
                _ => None,
            };
            if let Some(residual) = stride {
                (tail.residual, tail.clamp) = (residual, clamp);
                return Ok(tail);
            }
        }
        if let Some(rows) = kinds.and_then(|kinds| RowChain::new(chain, &kinds).ok()) {
            tail.rows = Some(rows);
            return Ok(tail);
        }
        let all: Vec<&Operand> = std::iter::once(output).chain(operands).collect();
        tail.after = Some(Whole::new(step, chain, &all)?);
        Ok(tail)
    }

    /// Runs the product with its epilogue.
    pub(super) fn run(&self, args: &Args<'_>, product: impl FnOnce(&Epilogue<'_>)) {
        let inputs = self.first..self.first + self.operands;
        let sources: SmallVec<[Source<'_, f32>; 8]> = match self.rows {
            Some(_) => inputs.clone().map(|at| args.source(at)).collect(),
            None => SmallVec::new(),
        };
        let target = args.target(0);
        let rows = |first_row: usize, rows: usize, _: &mut [f32], _: usize, first_col: usize, cols: usize| {
            if let Some(chain) = &self.rows {
                chain.run(&sources, target, self.row_stride, first_row, rows, first_col, cols);
            }
        };
        product(&Epilogue {
            bias: self.bias.map(|at| args.constant(at)),
            residual: self.residual.map(|(at, stride)| (args.source(at).as_slice(), stride)),
            clamp: self.clamp,
            rows: self.rows.as_ref().map(|_| &rows as _),
        });
        if let Some(after) = &self.after {
            after.run(args, std::iter::once(None).chain(inputs.map(Some)));
        }
    }
}

/// Whether the chain is a residual's addition, a clamp, or the one and then the other: (residual, clamp).
fn in_registers(chain: &Chain) -> Option<(bool, Option<(f32, f32)>)> {
    let mut instrs = chain.instrs.as_slice();
    let mut last = Src::Operand(0);
    let mut residual = false;
    if let [Instr::Binary(Binary::Add, x, y), rest @ ..] = instrs
        && [(*x, *y), (*y, *x)].contains(&(Src::Operand(0), Src::Operand(1)))
    {
        (residual, last, instrs) = (true, Src::Reg(0), rest);
    }
    let (mut low, mut high) = (f32::NEG_INFINITY, f32::INFINITY);
    for (at, instr) in instrs.iter().enumerate() {
        let number = |x: Src, y: Src| match (x, y) {
            (x, Src::Const(number)) if x == last => Some(number),
            (Src::Const(number), y) if y == last => Some(number),
            _ => None,
        };
        match *instr {
            // A maximum after a minimum could lift what was cut: only the usual order is a clamp.
            Instr::Binary(Binary::Max, x, y) if at == 0 => low = number(x, y)?,
            Instr::Binary(Binary::Min, x, y) if at <= 1 && high == f32::INFINITY => high = number(x, y)?,
            _ => return None,
        }
        last = Src::Reg((at + usize::from(residual)) as u16);
    }
    let clamp = (low > f32::NEG_INFINITY || high < f32::INFINITY).then_some((low, high));
    (low <= high && (residual || clamp.is_some())).then_some((residual, clamp))
}

/// The one stride along axes that step as one, outermost first; 0 where all repeat the same element.
fn linear(view: &View, shape: &[usize], axes: &[usize]) -> Option<usize> {
    let (mut stride, mut inner) = (None, 1);
    for &axis in axes.iter().rev().filter(|axis| shape[**axis] > 1) {
        let own = *stride.get_or_insert(view.strides[axis]);
        if view.strides[axis] != own * inner {
            return None;
        }
        inner *= shape[axis];
    }
    Some(stride.unwrap_or(0))
}

/// What an operand is to the rows and columns of the output.
fn kind(operand: &Operand, output: &Operand, (rows, columns): (&[usize], &[usize])) -> Option<RowOperand> {
    if operand.dtype != DType::F32 {
        return None;
    }
    let view = operand.view.broadcast(&operand.shape, &output.shape);
    let row = linear(&view, &output.shape, rows)?;
    let column = linear(&view, &output.shape, columns)?;
    let wide = columns.iter().any(|&axis| output.shape[axis] > 1);
    let long = rows.iter().any(|&axis| output.shape[axis] > 1);
    match (row, column) {
        (0, 0) => Some(RowOperand::Scalar),
        (0, 1) => Some(if long || wide { RowOperand::Column } else { RowOperand::Scalar }),
        (row_stride, 1) => Some(RowOperand::Full { row_stride }),
        (stride, 0) if wide => Some(RowOperand::Row { stride }),
        (row_stride, 0) => Some(RowOperand::Full { row_stride }),
        _ => None,
    }
}

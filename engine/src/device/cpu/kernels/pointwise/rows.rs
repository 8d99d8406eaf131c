//! Chains over blocks of rows that were just written, and are still in the nearest cache.

use super::OPERANDS;
use super::operand::{Block, Load, Store, gather, scatter};
use super::program::{Access, Program, Scratch, TILE, TooLong};
use crate::device::cpu::memory::{Source, Target};
use crate::graph::chain::Chain;
use smallvec::SmallVec;

/// What an operand of a [`RowChain`] is to the rows and columns; all are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOperand {
    /// An element for each, `row_stride` from row to row, those of a row contiguous.
    Full {
        /// In elements.
        row_stride: usize,
    },
    /// An element per column, contiguous.
    Column,
    /// An element per row, `stride` apart.
    Row {
        /// In elements.
        stride: usize,
    },
    /// One element.
    Scalar,
}

/// A chain that replaces rows of a matrix: operand 0 is the element's present value, the others as given.
#[derive(Debug)]
pub(crate) struct RowChain {
    operands: SmallVec<[RowOperand; 4]>,
    /// For rows that fill a tile or more: one row at a time.
    wide: Program,
    /// For shorter ones: several rows in a tile.
    narrow: Program,
}

impl RowChain {
    /// `chain`, whose operand 0 is the matrix and whose operand `i + 1` is `operands[i]`.
    pub(crate) fn new(chain: &Chain, operands: &[RowOperand]) -> Result<RowChain, TooLong> {
        let access = |row: Access| -> SmallVec<[Access; 4]> {
            let others = operands.iter().map(|operand| match operand {
                RowOperand::Full { .. } | RowOperand::Column if row == Access::Uniform => Access::Direct,
                RowOperand::Full { .. } | RowOperand::Column => Access::Gathered,
                RowOperand::Row { .. } => row,
                RowOperand::Scalar => Access::Uniform,
            });
            let own = if row == Access::Uniform { Access::Direct } else { Access::Gathered };
            std::iter::once(own).chain(others).collect()
        };
        if operands.len() >= OPERANDS {
            return Err(TooLong::Operands(operands.len() + 1));
        }
        Ok(RowChain {
            operands: operands.into(),
            wide: Program::new(chain, &access(Access::Uniform))?,
            narrow: Program::new(chain, &access(Access::Gathered))?,
        })
    }

    /// Replaces the elements of `rows` × `cols`, the first in row `first_row` and column `first_col`, of the
    /// matrix `target`, whose rows are `row_stride` apart. `sources` are the other operands, each from its row 0
    /// and column 0 on; one that shares memory with the target must be [`RowOperand::Full`] with its row stride.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn run(
        &self,
        sources: &[Source<'_, f32>],
        target: Target<'_, f32>,
        row_stride: usize,
        first_row: usize,
        rows: usize,
        first_col: usize,
        cols: usize,
    ) {
        if rows == 0 || cols == 0 {
            return;
        }
        let first = first_row * row_stride + first_col;
        assert!(first < target.len(), "rows beyond the target");
        // SAFETY: what follows an element of the target is as valid as the whole.
        let block = unsafe { Target::new(target.as_ptr().add(first), target.len() - first) };
        self.run_block(sources, block, row_stride, first_row, rows, first_col, cols);
    }

    /// As [`run`](RowChain::run), where `block` begins with the first element that is replaced.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn run_block(
        &self,
        sources: &[Source<'_, f32>],
        block: Target<'_, f32>,
        row_stride: usize,
        first_row: usize,
        rows: usize,
        first_col: usize,
        cols: usize,
    ) {
        assert_eq!(sources.len(), self.operands.len(), "one source per operand");
        if rows == 0 || cols == 0 {
            return;
        }
        let (last_row, last_col) = (first_row + rows - 1, first_col + cols - 1);
        assert!(rows == 1 || row_stride >= cols, "rows that overlap");
        assert!((rows - 1) * row_stride + cols <= block.len(), "rows beyond the target");
        for (operand, source) in self.operands.iter().zip(sources) {
            let last = match *operand {
                RowOperand::Full { row_stride } => last_row * row_stride + last_col,
                RowOperand::Column => last_col,
                RowOperand::Row { stride } => last_row * stride,
                RowOperand::Scalar => 0,
            };
            assert!(last < source.len(), "rows beyond an operand");
        }
        let mut scratch = Scratch::new();
        // SAFETY: every element of the rows and columns was just found within its source or the block.
        unsafe {
            if cols > TILE / 2 || rows == 1 {
                self.wide(&mut scratch, sources, block, row_stride, first_row, rows, first_col, cols);
            } else {
                self.narrow(&mut scratch, sources, block, row_stride, first_row, rows, first_col, cols);
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    unsafe fn wide(
        &self,
        scratch: &mut Scratch,
        sources: &[Source<'_, f32>],
        target: Target<'_, f32>,
        row_stride: usize,
        first_row: usize,
        rows: usize,
        first_col: usize,
        cols: usize,
    ) {
        let piece = if self.wide.tiled { super::even(cols, TILE) } else { cols };
        let mut direct = [std::ptr::null(); OPERANDS];
        for row in first_row..first_row + rows {
            let mut col = first_col;
            while col < first_col + cols {
                let n = (first_col + cols - col).min(piece);
                // SAFETY: `run` checked every offset; the uniforms are written before the program reads them.
                unsafe {
                    let out = target.as_ptr().add((row - first_row) * row_stride + (col - first_col));
                    direct[0] = out.cast_const();
                    for (t, (operand, source)) in self.operands.iter().zip(sources).enumerate() {
                        let first = source.as_ptr();
                        let slot = self.wide.slots[t + 1];
                        match *operand {
                            RowOperand::Full { row_stride } => {
                                direct[t + 1] = first.add(row * row_stride + col);
                            }
                            RowOperand::Column => direct[t + 1] = first.add(col),
                            RowOperand::Row { stride } => scratch.spread(slot, *first.add(row * stride)),
                            RowOperand::Scalar => scratch.spread(slot, *first),
                        }
                    }
                    self.wide.run(scratch, &direct, out, n);
                }
                col += n;
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    unsafe fn narrow(
        &self,
        scratch: &mut Scratch,
        sources: &[Source<'_, f32>],
        target: Target<'_, f32>,
        row_stride: usize,
        first_row: usize,
        rows: usize,
        first_col: usize,
        cols: usize,
    ) {
        let direct = [std::ptr::null(); OPERANDS];
        let piece = super::even(rows, TILE / cols);
        let mut row = first_row;
        while row < first_row + rows {
            let n = (first_row + rows - row).min(piece);
            let block = |row_stride, col_stride| Block { rows: n, cols, row_stride, col_stride };
            // SAFETY: `run` checked every offset; what the program reads is gathered before, from a block of at
            // most TILE elements.
            unsafe {
                let out = target.as_ptr().add((row - first_row) * row_stride).cast::<u8>();
                let own = scratch.tile(self.narrow.slots[0]);
                gather(Load::F32, out, block(row_stride, 1), own);
                for (t, (operand, source)) in self.operands.iter().zip(sources).enumerate() {
                    let first = source.as_ptr();
                    let slot = self.narrow.slots[t + 1];
                    let (offset, block) = match *operand {
                        RowOperand::Full { row_stride } => {
                            (row * row_stride + first_col, block(row_stride, 1))
                        }
                        // The columns of the first rows serve all that follow.
                        RowOperand::Column if row > first_row => continue,
                        RowOperand::Column => (first_col, block(0, 1)),
                        RowOperand::Row { stride } => (row * stride, block(stride, 0)),
                        RowOperand::Scalar => {
                            scratch.spread(slot, *first);
                            continue;
                        }
                    };
                    gather(Load::F32, first.add(offset).cast(), block, scratch.tile(slot));
                }
                let result = scratch.tile(self.narrow.result);
                self.narrow.run(scratch, &direct, result, n * cols);
                scatter(Store::F32, result, out, block(row_stride, 1));
            }
            row += n;
        }
    }
}

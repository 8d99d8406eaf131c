//! Chains over blocks of a matrix that were just written, with other operands of any dtype and layout.

use super::OPERANDS;
use super::operand::{Block, Load, Store, gather, scatter};
use super::program::{Access, Program, Scratch, TILE, TooLong};
use crate::graph::chain::Chain;
use smallvec::SmallVec;

/// How an operand of a [`BlockChain`] lies along the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its dtype.
    pub(crate) load: Load,
    /// From row to row, in elements; 0 where all rows read the same.
    pub(crate) row_stride: usize,
    /// From column to column.
    pub(crate) col_stride: usize,
}

/// A chain over blocks of any size.
#[derive(Debug)]
pub(crate) struct BlockChain {
    parts: SmallVec<[Part; 4]>,
    program: Program,
}

impl BlockChain {
    /// `chain`, whose operands lie as `parts` says.
    pub(crate) fn new(chain: &Chain, parts: &[Part]) -> Result<BlockChain, TooLong> {
        if parts.len() > OPERANDS {
            return Err(TooLong::Operands(parts.len()));
        }
        let access = parts.iter().map(|part| match (part.row_stride, part.col_stride) {
            (0, 0) => Access::Uniform,
            _ => Access::Gathered,
        });
        let access: SmallVec<[Access; 4]> = access.collect();
        Ok(BlockChain { parts: parts.into(), program: Program::new(chain, &access)? })
    }

    /// Computes `rows` × `cols` elements from `out` on, rows `out_stride` apart. `first` are the operands' elements
    /// of the block's first row and column.
    ///
    /// # Safety
    /// The block's elements are valid, of the operands for reads and of `out` for writes; an operand that overlaps
    /// `out` lies as `out` does.
    pub(crate) unsafe fn run(
        &self,
        first: &[*const u8],
        out: *mut f32,
        out_stride: usize,
        rows: usize,
        cols: usize,
    ) {
        assert_eq!(first.len(), self.parts.len(), "one pointer per operand");
        let mut scratch = Scratch::new();
        for col in (0..cols).step_by(TILE) {
            let cols = (cols - col).min(TILE);
            let most = TILE / cols;
            for row in (0..rows).step_by(most) {
                let n = (rows - row).min(most);
                // SAFETY: the caller's promise; a tile has room for `n` rows.
                unsafe {
                    self.gather(&mut scratch, first, (row, n), (col, cols));
                    let result = scratch.tile(self.program.result);
                    self.program.run(&mut scratch, &[std::ptr::null(); OPERANDS], result, n * cols);
                    let to = out.add(row * out_stride + col).cast();
                    let block = Block { rows: n, cols, row_stride: out_stride, col_stride: 1 };
                    scatter(Store::F32, result, to, block);
                }
            }
        }
    }

    /// Brings the operands of some rows and columns, each a first one and a count, into tiles.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn gather(
        &self,
        scratch: &mut Scratch,
        first: &[*const u8],
        (row, rows): (usize, usize),
        (col, cols): (usize, usize),
    ) {
        for (t, (part, first)) in self.parts.iter().zip(first).enumerate() {
            let Part { load, row_stride, col_stride } = *part;
            let slot = self.program.slots[t];
            // What is the same in all rows stays gathered from the first of them, which are the most.
            if row > 0 && row_stride == 0 {
                continue;
            }
            // SAFETY: the caller's promise.
            unsafe {
                let from = first.add((row * row_stride + col * col_stride) * load.size());
                if row_stride == 0 && col_stride == 0 {
                    scratch.spread(slot, load.read(from));
                } else {
                    gather(load, from, Block { rows, cols, row_stride, col_stride }, scratch.tile(slot));
                }
            }
        }
    }
}

impl Part {
    /// Copies `rows` × `cols` elements, converted as a chain loads them, to rows that are `stride` apart.
    ///
    /// # Safety
    /// The elements from `first` on are valid for reads, and those of `out` for writes.
    pub(crate) unsafe fn copy(
        &self,
        first: *const u8,
        out: *mut f32,
        stride: usize,
        rows: usize,
        cols: usize,
    ) {
        let Part { load, row_stride, col_stride } = *self;
        for row in 0..rows {
            for col in (0..cols).step_by(TILE) {
                let block = Block { rows: 1, cols: (cols - col).min(TILE), row_stride: 0, col_stride };
                // SAFETY: the caller's promise.
                unsafe {
                    let from = first.add((row * row_stride + col * col_stride) * load.size());
                    gather(load, from, block, out.add(row * stride + col));
                }
            }
        }
    }
}

//! Chains of pointwise operations over strided tensors.
//!
//! The innermost axes are cut into tiles of a few hundred elements. Each operation of the chain runs over a whole
//! tile, so that its interpretation costs little, and the tiles between operations stay in the nearest cache. The
//! first operation reads operands where they are, the last one writes the output where it is to be, if they are
//! contiguous there. Each tile's operands are read before its output is written, so the output may be an operand.

mod block;
mod join;
mod operand;
mod program;
mod rows;
mod tile;

#[cfg(test)]
mod tests;

pub(crate) use block::{BlockChain, Part};
pub(crate) use operand::{Input, Load, Operand, Output, Store};
pub(crate) use program::{OPERANDS, TooLong};
pub(crate) use rows::{RowChain, RowOperand};

use super::walk::{self, Axes, Axis, Cursor};
use crate::device::cpu::threads::Threads;
use crate::graph::chain::Chain;
use operand::{Block, gather, scatter};
use program::{Access, Program, Scratch, TILE};
use smallvec::SmallVec;
use std::ops::Range;

/// The strides of all operands and, last, of the output.
const TENSORS: usize = OPERANDS + 1;
const OUT: usize = OPERANDS;
/// Elements per piece where results are kept in no tile; pieces are what threads share.
const PIECE: usize = 8 << 10;

/// A chain, made for one output shape.
#[derive(Debug)]
pub(crate) struct Pointwise {
    outer: Axes<TENSORS>,
    rows: Axis<TENSORS>,
    cols: Axis<TENSORS>,
    /// How many rows or, if there is but one, columns a piece has.
    piece: usize,
    program: Program,
    operands: SmallVec<[(Load, Access); 4]>,
    store: Store,
    /// Whether the last operation can write the output itself.
    direct_out: bool,
    extents: [usize; TENSORS],
    bytes: usize,
}

impl Pointwise {
    /// `chain` for every element of an output of that shape.
    pub(crate) fn new(
        chain: &Chain,
        shape: &[usize],
        operands: &[Operand<'_>],
        out_strides: &[usize],
        store: Store,
    ) -> Result<Pointwise, TooLong> {
        if operands.len() > OPERANDS {
            return Err(TooLong::Operands(operands.len()));
        }
        let still: SmallVec<[usize; 6]> = SmallVec::from_elem(0, shape.len());
        let strides: [&[usize]; TENSORS] = std::array::from_fn(|t| match t {
            OUT => out_strides,
            _ => operands.get(t).map_or(&still[..], |operand| operand.strides),
        });
        let mut outer = walk::collapse(shape, strides, OUT);
        let extents = std::array::from_fn(|t| walk::extent(&outer, t));
        let elements = walk::count(&outer);
        let cols = outer.pop().unwrap_or(Axis::ONCE);
        // Short rows are taken several at a time.
        let rows = if cols.len <= TILE / 2 { outer.pop() } else { None }.unwrap_or(Axis::ONCE);
        let contiguous = |t: usize| {
            (cols.strides[t] == 1 || cols.len == 1) && (rows.len == 1 || rows.strides[t] == cols.len)
        };
        let operands: SmallVec<[(Load, Access); 4]> = operands
            .iter()
            .enumerate()
            .map(|(t, operand)| {
                let access = if cols.strides[t] == 0 && rows.strides[t] == 0 {
                    Access::Uniform
                } else if contiguous(t) && operand.dtype != Load::Bool {
                    Access::Direct
                } else {
                    Access::Gathered
                };
                (operand.dtype, access)
            })
            .collect();
        let access: SmallVec<[Access; 4]> = operands.iter().map(|&(_, access)| access).collect();
        let program = Program::new(chain, &access)?;
        let direct_out = store == Store::F32 && contiguous(OUT);
        let limit = if program.tiled || !direct_out { TILE } else { PIECE };
        let piece = if rows.len > 1 {
            even(rows.len, (limit / cols.len.max(1)).max(1))
        } else {
            even(cols.len, limit)
        };
        let moved = 1 + access.iter().filter(|&&access| access != Access::Uniform).count();
        let bytes = 4 * elements * moved * (1 + program.len() / 4);
        Ok(Pointwise { outer, rows, cols, piece, program, operands, store, direct_out, extents, bytes })
    }

    /// Computes the output. An operand that shares memory with the output must have the same strides and dtype;
    /// no other may overlap it.
    pub(crate) fn run(&self, sources: &[Input<'_>], target: Output<'_>, threads: &Threads) {
        assert_eq!(sources.len(), self.operands.len(), "one source per operand");
        let mut first = [std::ptr::null::<u8>(); OPERANDS];
        for (t, (source, &(load, _))) in sources.iter().zip(&self.operands).enumerate() {
            let (pointer, len) = source.expect(load);
            assert!(len >= self.extents[t], "operand {t} has {len} elements, {} are read", self.extents[t]);
            first[t] = pointer;
        }
        let (out, len) = target.expect(self.store);
        assert!(len >= self.extents[OUT], "a target of {len} elements, {} are written", self.extents[OUT]);
        if self.extents[OUT] == 0 {
            return;
        }
        let bases = Bases { first, out };
        let units = walk::count(&self.outer) * self.pieces();
        walk::share(threads, units, self.bytes, &|units| self.pieces_of(&bases, units));
    }

    /// How many pieces the innermost block of rows and columns has.
    fn pieces(&self) -> usize {
        let len = if self.rows.len > 1 { self.rows.len } else { self.cols.len };
        len.div_ceil(self.piece)
    }

    fn pieces_of(&self, bases: &Bases, units: Range<usize>) {
        let Bases { first, out } = *bases;
        let pieces = self.pieces();
        let mut scratch = Scratch::new();
        let mut direct = [std::ptr::null::<f32>(); OPERANDS];
        let mut cursor = Cursor::new(&self.outer, units.start / pieces);
        let mut piece = units.start % pieces;
        // What is the same in each row stays gathered for as many rows as it has been.
        let mut gathered_rows = 0;
        for _ in units {
            let start = piece * self.piece;
            let (rows, cols, along) = if self.rows.len > 1 {
                ((self.rows.len - start).min(self.piece), self.cols.len, &self.rows)
            } else {
                (1, (self.cols.len - start).min(self.piece), &self.cols)
            };
            let n = rows * cols;
            let offset = |t: usize| cursor.at[t] + start * along.strides[t];
            for (t, &(load, access)) in self.operands.iter().enumerate() {
                let block = self.block(t, rows, cols);
                if access == Access::Gathered && block.row_stride == 0 && rows <= gathered_rows && rows > 1 {
                    continue;
                }
                // SAFETY: `run` checked that the operand's elements up to its extent are valid; the offset and
                // the block stay within the axes that gave the extent. A uniform or gathered tile is written
                // whole; it has TILE elements, and so many a piece has at most if anything is gathered.
                unsafe {
                    let from = first[t].add(offset(t) * load.size());
                    match access {
                        Access::Direct => direct[t] = from.cast(),
                        Access::Uniform => scratch.spread(self.program.slots[t], load.read(from)),
                        Access::Gathered => gather(load, from, block, scratch.tile(self.program.slots[t])),
                    }
                }
            }
            gathered_rows = gathered_rows.max(rows);
            // SAFETY: as above; every operand is ready, and the tile of the result is free.
            unsafe {
                let to = out.add(offset(OUT) * self.store.size());
                if self.direct_out {
                    self.program.run(&mut scratch, &direct, to.cast(), n);
                } else {
                    let tile = scratch.tile(self.program.result);
                    self.program.run(&mut scratch, &direct, tile, n);
                    scatter(self.store, tile, to, self.block(OUT, rows, cols));
                }
            }
            piece += 1;
            if piece == pieces {
                piece = 0;
                gathered_rows = 0;
                cursor.advance();
            }
        }
    }

    fn block(&self, t: usize, rows: usize, cols: usize) -> Block {
        Block { rows, cols, row_stride: self.rows.strides[t], col_stride: self.cols.strides[t] }
    }
}

/// Where the elements of a run begin, in bytes.
#[derive(Clone, Copy)]
struct Bases {
    first: [*const u8; OPERANDS],
    out: *mut u8,
}

// SAFETY: made of sources and a target, which may themselves be shared; threads write distinct pieces.
unsafe impl Sync for Bases {}

/// The length of pieces of at most `limit` that cut `len` into about equal ones, in whole vectors where it can.
fn even(len: usize, limit: usize) -> usize {
    if len <= limit {
        return len.max(1);
    }
    let piece = len.div_ceil(len.div_ceil(limit));
    piece.next_multiple_of(super::lanes::LANES).min(limit)
}

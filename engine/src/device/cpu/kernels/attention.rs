//! Attention: the softmax of products of queries and keys, times values, without ever having all scores.
//!
//! Some rows of queries meet some keys at a time (Dao 2022, FlashAttention: Fast and Memory-Efficient Exact Attention
//! with IO-Awareness): their scores fit in the cache, where the softmax finds them and the product with the values
//! reads them. Keys are the outer loop, so that each is packed once for all rows of a task; what a row remembers
//! between two blocks of keys is in `rows`.

use super::pointwise::{Input, OPERANDS, Part, TooLong};
use super::walk::{self, Axes, Axis};
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;
use crate::graph::chain::Chain;
use plan::{Plan, block_keys};
use run::Run;
use scores::Change;
use smallvec::SmallVec;

mod block;
mod plan;
mod product;
mod rows;
mod run;
mod scores;
#[cfg(test)]
mod tests;
mod vectors;

/// Queries, keys, values, output, and the operands of the chain.
const TENSORS: usize = 4 + OPERANDS;

/// Elements from a position to the next in each tensor.
pub(crate) type Strides = [usize; TENSORS];

/// Sizes of one item of the batch, and strides in elements, (row, column).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dims {
    /// Queries.
    pub(crate) m: usize,
    /// Keys, and values.
    pub(crate) n: usize,
    /// Elements of a query and of a key.
    pub(crate) depth: usize,
    /// Elements of a value and of a row of the output.
    pub(crate) columns: usize,
    pub(crate) q: (usize, usize),
    pub(crate) k: (usize, usize),
    pub(crate) v: (usize, usize),
    pub(crate) y: (usize, usize),
}

/// Attention over all items of a batch.
#[derive(Debug)]
pub(crate) struct Attention {
    dims: Dims,
    /// Keys of a block, and the distance of rows of scores.
    keys: usize,
    stride: usize,
    items: Axes<TENSORS>,
    change: Change,
    /// Whether rows whose weights are no numbers become 0.
    zeroes: bool,
    operands: SmallVec<[Part; 4]>,
    extents: Strides,
}

impl Attention {
    /// Attention for a batch of so many items along each of its axes, so many elements apart. `chain` is done to each
    /// score first: its operands from the second on lie as `operands` says, rows being queries and columns keys.
    pub(crate) fn new(
        dims: Dims,
        batch: &[(usize, Strides)],
        chain: Option<&Chain>,
        operands: &[Part],
    ) -> Result<Attention, TooLong> {
        if operands.len() > OPERANDS {
            return Err(TooLong::Operands(operands.len()));
        }
        let items: Axes<TENSORS> = batch.iter().map(|&(len, strides)| Axis { len, strides }).collect();
        let mut extents = std::array::from_fn(|t| walk::extent(&items, t));
        let Dims { m, n, depth, columns, q, k, v, y } = dims;
        let sides = [(m, depth, q), (n, depth, k), (n, columns, v), (m, columns, y)];
        let others = operands.iter().map(|part| (m, n, (part.row_stride, part.col_stride)));
        for (extent, (rows, columns, strides)) in extents.iter_mut().zip(sides.into_iter().chain(others)) {
            let last = rows.saturating_sub(1) * strides.0 + columns.saturating_sub(1) * strides.1;
            *extent = if rows * columns == 0 { 0 } else { *extent + last };
        }
        // Scores lie as densely as whole vectors allow.
        let (keys, stride) = block_keys(n);
        let change = Change::new(chain, operands, stride)?;
        Ok(Attention { dims, keys, stride, items, change, zeroes: false, operands: operands.into(), extents })
    }

    /// The same, where rows whose weights are no numbers become 0 or not.
    pub(crate) fn with_zeroes(self, zeroes: bool) -> Attention {
        Attention { zeroes, ..self }
    }

    /// The elements of scratch that `run` needs with so many threads.
    pub(crate) fn scratch_len(&self, threads: usize) -> usize {
        let plan = Plan::new(self, threads);
        plan.shared + plan.worker * threads.max(1)
    }

    /// Computes it. `scratch` has `scratch_len` elements of any value; `others` are the chain's operands.
    #[expect(clippy::too_many_arguments, reason = "each is an operand of another kind")]
    pub(crate) fn run(
        &self,
        q: Source<'_, f32>,
        k: Source<'_, f32>,
        v: Source<'_, f32>,
        others: &[Input<'_>],
        y: Target<'_, f32>,
        scratch: &mut [f32],
        threads: &Threads,
    ) {
        if self.extents[3] == 0 {
            return;
        }
        let lens = [q.len(), k.len(), v.len(), y.len()];
        for (len, extent) in lens.into_iter().zip(self.extents) {
            assert!(len >= extent, "{len} elements, {extent} are touched");
        }
        assert_eq!(others.len(), self.operands.len(), "one source per operand");
        let mut first = [std::ptr::null(); OPERANDS];
        for (t, (other, part)) in others.iter().zip(&self.operands).enumerate() {
            let (pointer, len) = other.expect(part.load);
            assert!(len >= self.extents[4 + t], "operand {t} has {len} elements of {}", self.extents[4 + t]);
            first[t] = pointer;
        }
        let plan = Plan::new(self, threads.count());
        let needed = plan.shared + plan.worker * threads.count();
        assert!(scratch.len() >= needed, "a scratch of {} elements, not {needed}", scratch.len());
        Run::new(self, &plan, [q, k, v], first, y, scratch).all(threads);
    }
}

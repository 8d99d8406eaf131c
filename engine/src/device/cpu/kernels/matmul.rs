//! Matrix multiplication of f32: `C[b][m][n] = epilogue(sum over k of A[b][m][k] · B[b][k][n])`.
//!
//! Blocking after Goto and van de Geijn 2008 (Anatomy of High-Performance Matrix Multiplication), less one loop: a
//! block of rows of A is small enough for the L2 cache and meets all panels of B one after the other, in steps of K
//! after which a panel's part of B leaves the L1 cache.

mod block;
mod epilogue;
mod panels;
mod plan;
mod steps;
#[cfg(test)]
pub(crate) mod tests;
mod tile;

pub(crate) use epilogue::Epilogue;
pub(crate) use panels::Panels;
pub(crate) use plan::{Split, split};
pub(crate) use steps::{Step, steps};
pub(crate) use tile::{MAX_ROWS, Panel, lanes};

use crate::device::cpu::threads::Threads;
use block::Run;
use plan::BMode;

/// A batch dimension: how many items, and the elements from one item to the next in A, B and C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) count: usize,
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) c: usize,
}

impl Batch {
    /// No batch dimension.
    pub(crate) const ONE: Batch = Batch { count: 1, a: 0, b: 0, c: 0 };
}

/// A multiplication of matrices A (m × k) and B (k × n) into C (m × n), for all items of a batch. Strides are in
/// elements, (row, column). Elements of C may not overlap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatMul {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) batch: [Batch; 4],
    pub(crate) a_strides: (usize, usize),
    pub(crate) b_strides: (usize, usize),
    pub(crate) c_strides: (usize, usize),
}

/// The second matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) enum B<'a> {
    /// As `pack_b` wrote it.
    Packed(&'a [f32]),
    /// As the strides say.
    Plain(&'a [f32]),
}

impl MatMul {
    /// A multiplication of row-major matrices without gaps.
    #[cfg(test)]
    pub(crate) fn dense(m: usize, k: usize, n: usize) -> MatMul {
        MatMul { m, n, k, batch: [Batch::ONE; 4], a_strides: (k, 1), b_strides: (n, 1), c_strides: (n, 1) }
    }

    /// The elements that `pack_b` writes.
    pub(crate) fn packed_len(&self) -> usize {
        self.distinct_b() * Panels::new(self.k, self.n).len()
    }

    /// Lays a constant B out for this machine: for each distinct item of the batch, panels of columns (`Panels`).
    pub(crate) fn pack_b(&self, b: &[f32], out: &mut [f32]) {
        self.check_b(b);
        let panels = Panels::new(self.k, self.n);
        assert!(
            out.len() >= self.packed_len(),
            "packed B has {} of {} elements",
            out.len(),
            self.packed_len()
        );
        for item in 0..self.items() {
            let (offset, index) = self.b_item(item);
            let out = &mut out[index * panels.len()..][..panels.len()];
            (0..panels.count()).for_each(|panel| self.pack_panel(&panels, panel, &b[offset..], out));
        }
    }

    /// Packs a panel of an item's B to its place in `out`.
    fn pack_panel(&self, panels: &Panels, panel: usize, b: &[f32], out: &mut [f32]) {
        let out = &mut out[panels.range(panel)];
        self.pack_one(panels, panel, b, out);
    }

    /// Packs a panel of an item's B.
    fn pack_one(&self, panels: &Panels, panel: usize, b: &[f32], out: &mut [f32]) {
        panels.pack_strided(panel, out, b, self.b_strides);
    }

    /// The elements of scratch that `run` needs with so many threads and with B packed or not.
    pub(crate) fn scratch_len(&self, packed: bool, threads: usize) -> usize {
        let plan = self.plan(packed, threads);
        plan.shared + plan.worker * threads.max(1)
    }

    /// Multiplies. Allocates nothing; `scratch` has `scratch_len` elements of any value.
    pub(crate) fn run(
        &self,
        a: &[f32],
        b: B,
        epilogue: &Epilogue,
        c: &mut [f32],
        scratch: &mut [f32],
        threads: &Threads,
    ) {
        if self.m == 0 || self.n == 0 || self.items() == 0 {
            return;
        }
        let plan = self.plan(matches!(b, B::Packed(_)), threads.count());
        self.check(a.len(), c.len(), epilogue);
        let needed = plan.shared + plan.worker * threads.count();
        assert!(scratch.len() >= needed, "a scratch of {} elements, not {needed}", scratch.len());
        let (shared, workers) = scratch.split_at_mut(plan.shared);
        let packed: &[f32] = match b {
            B::Packed(packed) => {
                let needed = self.packed_len();
                assert!(packed.len() >= needed, "packed B has {} of {needed} elements", packed.len());
                packed
            }
            B::Plain(b) => {
                self.check_b(b);
                if plan.b == BMode::PackAll {
                    self.pack_shared(&plan, b, shared, threads);
                }
                shared
            }
        };
        let plain = if let B::Plain(b) = b { b } else { &[] };
        Run::new(self, &plan, a, plain, packed, epilogue, c, workers).all(threads);
    }

    fn items(&self) -> usize {
        self.batch.iter().map(|dim| dim.count).product()
    }

    /// How many different matrices B there are.
    fn distinct_b(&self) -> usize {
        self.batch.iter().filter(|dim| dim.b != 0).map(|dim| dim.count).product()
    }

    /// The position of an item in each batch dimension.
    fn position(&self, item: usize) -> [usize; 4] {
        let mut left = item;
        let mut at = [0; 4];
        for (at, dim) in at.iter_mut().zip(&self.batch).rev() {
            (*at, left) = (left % dim.count, left / dim.count);
        }
        at
    }

    /// Where B begins for an item of the batch, and its number among the distinct ones.
    fn b_item(&self, item: usize) -> (usize, usize) {
        let (mut offset, mut index) = (0, 0);
        for (at, dim) in self.position(item).into_iter().zip(&self.batch).filter(|(_, dim)| dim.b != 0) {
            offset += at * dim.b;
            index = index * dim.count + at;
        }
        (offset, index)
    }

    fn check_b(&self, b: &[f32]) {
        let needed = self.extent(self.b_strides, (self.k, self.n), |dim| dim.b);
        assert!(b.len() >= needed, "B has {} of {needed} elements", b.len());
    }

    /// The elements from the first to the last that a matrix of the batch has, both included.
    fn extent(
        &self,
        strides: (usize, usize),
        size: (usize, usize),
        stride: impl Fn(&Batch) -> usize,
    ) -> usize {
        if size.0 == 0 || size.1 == 0 || self.items() == 0 {
            return 0;
        }
        let batch: usize = self.batch.iter().map(|dim| (dim.count - 1) * stride(dim)).sum();
        batch + (size.0 - 1) * strides.0 + (size.1 - 1) * strides.1 + 1
    }

    fn check(&self, a: usize, c: usize, epilogue: &Epilogue) {
        let needed = self.extent(self.a_strides, (self.m, self.k), |dim| dim.a);
        assert!(a >= needed, "A has {a} of {needed} elements");
        let needed = self.extent(self.c_strides, (self.m, self.n), |dim| dim.c);
        assert!(c >= needed, "C has {c} of {needed} elements");
        epilogue.check(self.items() * self.m, self.n);
        // Threads write different elements of C: it is sound only if these are at different places.
        let mut dims =
            [(self.n, self.c_strides.1), (self.m, self.c_strides.0), (1, 0), (1, 0), (1, 0), (1, 0)];
        for (dim, batch) in dims[2..].iter_mut().zip(&self.batch) {
            *dim = (batch.count, batch.c);
        }
        dims.sort_unstable_by_key(|dim| dim.1);
        let mut extent = 1;
        for (count, stride) in dims.into_iter().filter(|dim| dim.0 > 1) {
            assert!(stride >= extent, "elements of C overlap");
            extent += (count - 1) * stride;
        }
    }
}

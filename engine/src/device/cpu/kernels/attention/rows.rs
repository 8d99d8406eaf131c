//! The softmax of rows of scores, one block of keys after the other (Milakov and Gimelshein 2018, Online normalizer
//! calculation for softmax): each row keeps its largest score so far and the sum of the exponentials less that, and
//! when a block has a larger one, the sum and what was made of the values shrink by the same factor.

use super::vectors::{Add, Change, Nothing, Select, exponentials, most, times};
use rten_simd::{Isa, SimdOp};

/// What is done to a score before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Nothing,
    /// The mask is added.
    Add,
    /// The score stays where (mask ≠ 0) is `kept`.
    Select {
        other: f32,
        kept: bool,
    },
    /// The same, of a mask of bools.
    Bytes {
        other: f32,
        kept: bool,
    },
}

/// Rows of scores of a block of keys.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) step: Step,
    /// The first score, the distance of rows, and how many rows and keys there are.
    pub(super) scores: *mut f32,
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) keys: usize,
    /// A number a score, for a step that has a mask; and how many of them lie from row to row.
    pub(super) mask: *const u8,
    pub(super) mask_stride: usize,
    /// The largest score of each row, and the sum of the exponentials.
    pub(super) most: *mut f32,
    pub(super) sum: *mut f32,
    /// Whether these are the first keys.
    pub(super) first: bool,
    /// Whether the exponentials are divided by their sum here, which then is 1.
    pub(super) divides: bool,
    /// Whether rows whose weights are no numbers become 0.
    pub(super) zeroes: bool,
    /// What has been made of the values, so many columns a row.
    pub(super) y: *mut f32,
    pub(super) y_stride: usize,
    pub(super) columns: usize,
}

impl Rows {
    /// Scores become exponentials.
    ///
    /// # Safety
    /// All that the fields say is valid and nobody else's.
    pub(super) unsafe fn run(self) {
        self.dispatch();
    }
}

impl SimdOp for Rows {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        // SAFETY: what `run` demands.
        unsafe {
            match self.step {
                Step::Nothing => self.all(isa, Nothing),
                Step::Add => self.all(isa, Add),
                Step::Select { other, kept: true } => self.all(isa, Select::<true>(other)),
                Step::Select { other, kept: false } => self.all(isa, Select::<false>(other)),
                Step::Bytes { other, kept } => {
                    self.pick(other, kept);
                    self.all(isa, Nothing);
                }
            }
        }
    }
}

impl Rows {
    #[inline(always)]
    unsafe fn all<I: Isa, C: Change>(&self, isa: I, change: C) {
        for row in 0..self.rows {
            // SAFETY: what `run` demands.
            unsafe {
                let scores = self.scores.add(row * self.stride);
                let mask = self.mask.cast::<f32>().wrapping_add(row * self.mask_stride);
                let most = most(isa, scores, self.keys, mask, change);
                let base = self.settle(isa, row, most);
                let sum = exponentials(isa, scores, self.keys, base);
                if self.divides {
                    divide(isa, scores, self.keys, sum, self.zeroes);
                } else {
                    *self.sum.add(row) += sum;
                }
            }
        }
    }

    /// Keeps the scores whose byte of the mask is or is not 0. No vectors are named: the compiler makes them of the
    /// instructions at hand.
    #[inline(always)]
    unsafe fn pick(&self, other: f32, kept: bool) {
        for row in 0..self.rows {
            // SAFETY: what `run` demands.
            unsafe {
                let (scores, mask) =
                    (self.scores.add(row * self.stride), self.mask.add(row * self.mask_stride));
                for key in 0..self.keys {
                    let at = scores.add(key);
                    *at = if (*mask.add(key) != 0) == kept { *at } else { other };
                }
            }
        }
    }

    /// Takes the largest score of a block into account; returns what is taken off each score.
    #[inline(always)]
    unsafe fn settle<I: Isa>(&self, isa: I, row: usize, most: f32) -> f32 {
        // A row that is -∞ so far has nothing to take off. If it stays so its sum is 0, and the result NaN, as it is
        // where all scores are known at once.
        let base = |most: f32| if most == f32::NEG_INFINITY { 0.0 } else { most };
        // SAFETY: what `run` demands.
        unsafe {
            let (known, sum) = (self.most.add(row), self.sum.add(row));
            if self.first {
                (*known, *sum) = (most, 0.0);
                return base(most);
            }
            if most > *known {
                let factor = (*known - base(most)).exp();
                *known = most;
                *sum *= factor;
                times(isa, self.y.add(row * self.y_stride), self.columns, factor);
            }
            base(*known)
        }
    }
}

/// Divides rows of the output by the sums of their weights.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    pub(super) y: *mut f32,
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) sum: *const f32,
    /// Whether rows whose weights are no numbers become 0.
    pub(super) zeroes: bool,
}

impl Finish {
    /// Divides.
    ///
    /// # Safety
    /// All that the fields say is valid and nobody else's.
    pub(super) unsafe fn run(self) {
        self.dispatch();
    }
}

impl SimdOp for Finish {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        for row in 0..self.rows {
            // SAFETY: what `run` demands.
            unsafe {
                divide(isa, self.y.add(row * self.stride), self.columns, *self.sum.add(row), self.zeroes)
            };
        }
    }
}

/// Divides `n` elements by the sum of a row's weights, which is 0 or no number where those are no numbers.
///
/// # Safety
/// `y` has the elements, and they are nobody else's.
#[inline(always)]
unsafe fn divide<I: Isa>(isa: I, y: *mut f32, n: usize, sum: f32, zeroes: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        if zeroes && (sum == 0.0 || sum.is_nan()) {
            std::slice::from_raw_parts_mut(y, n).fill(0.0);
        } else {
            times(isa, y, n, 1.0 / sum);
        }
    }
}

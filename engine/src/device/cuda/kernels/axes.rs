//! Loops over strided elements as the kernels walk them: sorted, merged and made ready for a division-free
//! descent.

use super::launch::Unsupported;
use smallvec::SmallVec;

/// One loop over `N` tensors at once: how often, and by how many elements each tensor moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis<const N: usize> {
    /// How many positions there are.
    pub(crate) len: usize,
    /// The distance of neighbouring positions in each tensor, in elements.
    pub(crate) strides: [usize; N],
}

/// Nested loops, the outermost first.
pub(crate) type Loops<const N: usize> = SmallVec<[Axis<N>; 6]>;

/// Positions and distances that a kernel reckons with must be below this.
const LIMIT: usize = 1 << 31;

impl<const N: usize> Axis<N> {
    /// A loop that runs once.
    pub(crate) const ONCE: Axis<N> = Axis { len: 1, strides: [0; N] };
}

/// The loops over `shape`: those of length 1 left out, the others ordered by the stride of tensor `by`
/// (largest outermost; broadcast axes are outermost of all), neighbours merged where every tensor allows it.
pub(crate) fn collapse<const N: usize>(shape: &[usize], strides: [&[usize]; N], by: usize) -> Loops<N> {
    let mut loops: Loops<N> = (0..shape.len())
        .filter(|&axis| shape[axis] != 1)
        .map(|axis| Axis { len: shape[axis], strides: strides.map(|tensor| tensor[axis]) })
        .collect();
    loops.sort_by_key(|axis| {
        let rest = axis.strides.iter().copied().max().unwrap_or(0);
        let first = if axis.strides[by] == 0 { usize::MAX } else { axis.strides[by] };
        std::cmp::Reverse((first, rest))
    });
    merge(loops)
}

/// Neighbouring loops as one where every tensor steps evenly through both.
pub(crate) fn merge<const N: usize>(loops: Loops<N>) -> Loops<N> {
    let mut merged: Loops<N> = SmallVec::new();
    for axis in loops {
        match merged.last_mut() {
            Some(outer) if (0..N).all(|t| outer.strides[t] == axis.strides[t] * axis.len) => {
                *outer = Axis { len: outer.len * axis.len, strides: axis.strides };
            }
            _ => merged.push(axis),
        }
    }
    merged
}

/// How many positions the loops visit.
pub(crate) fn count<const N: usize>(loops: &[Axis<N>]) -> usize {
    loops.iter().map(|axis| axis.len).product()
}

/// How many elements of tensor `t` the loops span, the first and the last included; 0 if they visit none.
pub(crate) fn extent<const N: usize>(loops: &[Axis<N>], t: usize) -> usize {
    if count(loops) == 0 {
        return 0;
    }
    1 + loops.iter().map(|axis| (axis.len - 1) * axis.strides[t]).sum::<usize>()
}

/// Refuses loops whose positions do not fit in what the kernels reckon with.
pub(crate) fn check<const N: usize>(loops: &[Axis<N>]) -> Result<(), Unsupported> {
    let most = (0..N).map(|t| extent(loops, t)).max().unwrap_or(0).max(count(loops));
    if most < LIMIT { Ok(()) } else { Err(Unsupported::TooLarge(most)) }
}

/// A division by a number that is known before the launch; `Divider` of the kernels' prelude.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divider {
    divisor: u32,
    magic: u32,
    shift: u32,
}

impl Divider {
    /// By `divisor`, 1 or more and below 2^31.
    pub(crate) fn new(divisor: usize) -> Divider {
        let divisor = divisor.max(1) as u64;
        let shift = 64 - (divisor - 1).leading_zeros();
        let magic = (((1u64 << shift) - divisor) << 32) / divisor + 1;
        Divider { divisor: divisor as u32, magic: magic as u32, shift }
    }

    /// What it divides by.
    pub(crate) fn number(self) -> u32 {
        self.divisor
    }
}

/// Loops as a kernel takes them, the innermost first; `Axes` of the kernels' prelude.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes<const N: usize, const A: usize> {
    count: u32,
    len: [Divider; A],
    strides: [[u32; N]; A],
}

impl<const N: usize, const A: usize> Axes<N, A> {
    /// Of loops that the outermost comes first of.
    pub(crate) fn new(loops: &[Axis<N>]) -> Result<Axes<N, A>, Unsupported> {
        check(loops)?;
        if loops.len() > A {
            return Err(Unsupported::Axes { have: loops.len(), most: A });
        }
        let mut axes = Axes { count: loops.len() as u32, len: [Divider::new(1); A], strides: [[0; N]; A] };
        for (at, axis) in loops.iter().rev().enumerate() {
            axes.len[at] = Divider::new(axis.len);
            axes.strides[at] = axis.strides.map(|stride| stride as u32);
        }
        Ok(axes)
    }
}

impl<const N: usize, const A: usize> Axes<N, A> {
    /// The same loops for some of the tensors.
    pub(crate) fn select<const M: usize>(&self, tensors: [usize; M]) -> Axes<M, A> {
        let strides = self.strides.map(|strides| tensors.map(|t| strides[t]));
        Axes { count: self.count, len: self.len, strides }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_step_as_one_are_one() {
        let dense = collapse(&[2, 3, 1, 4], [&[12, 4, 4, 1], &[12, 4, 9, 1]], 1);
        assert_eq!(dense.as_slice(), [Axis { len: 24, strides: [1, 1] }]);
        // The order in memory is that of the tensor asked for; a broadcast axis stays one of its own.
        let turned = collapse(&[2, 3], [&[0, 1], &[1, 2]], 1);
        let expected = [Axis { len: 3, strides: [1, 2] }, Axis { len: 2, strides: [0, 1] }];
        assert_eq!(turned.as_slice(), expected);
    }

    #[test]
    fn what_does_not_fit_in_31_bits_is_refused() {
        assert!(check(&[Axis { len: (1 << 16) + 2, strides: [1 << 15] }]).is_err());
        assert!(check(&[Axis { len: 1 << 15, strides: [1 << 15] }]).is_ok());
    }

    #[test]
    fn a_divider_divides() {
        let dividends = [0u32, 1, 2, 3, 6, 7, 99, 1000, (1 << 30) - 1, 1 << 30, (1 << 31) - 1];
        for divisor in [1, 2, 3, 5, 7, 12, 49, 1000, 65_537, (1 << 30) + 1, (1 << 31) - 1] {
            let Divider { magic, shift, .. } = Divider::new(divisor);
            for n in dividends {
                let high = (u64::from(n) * u64::from(magic)) >> 32;
                let quotient = (high + u64::from(n)) >> shift;
                assert_eq!(quotient, u64::from(n) / divisor as u64, "{n} / {divisor}");
            }
        }
    }
}

//! How a value's logical axes lie in a block of elements: an offset and a stride an axis. Pure arithmetic.

use crate::tensor::Shape;
use smallvec::SmallVec;

/// The order of axes in memory, outermost first.
pub type Order = SmallVec<[usize; 6]>;

/// A value inside a block of elements. Offset and strides count elements; a stride of 0 repeats an element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The first element.
    pub offset: usize,
    /// The distance between neighbours along each logical axis.
    pub strides: Shape,
}

impl View {
    /// A view without gaps whose axes lie in `order`.
    pub fn contiguous(shape: &[usize], order: &[usize]) -> View {
        let mut strides: Shape = SmallVec::from_elem(0, shape.len());
        let mut stride = 1usize;
        for &axis in order.iter().rev() {
            strides[axis] = stride;
            stride = stride.saturating_mul(shape[axis]);
        }
        View { offset: 0, strides }
    }

    /// A view without gaps in row-major order.
    pub fn row_major(shape: &[usize]) -> View {
        let order: Order = (0..shape.len()).collect();
        View::contiguous(shape, &order)
    }

    /// Whether the elements lie in row-major order without gaps; axes of size 1 do not matter.
    pub fn is_row_major(&self, shape: &[usize]) -> bool {
        let order: Order = (0..shape.len()).collect();
        self.is_contiguous(shape, &order)
    }

    /// Whether the elements lie without gaps in `order`; axes of size 1 do not matter.
    pub fn is_contiguous(&self, shape: &[usize], order: &[usize]) -> bool {
        let wanted = View::contiguous(shape, order);
        self.same_strides(&wanted, shape)
    }

    /// Whether both views step alike along every axis that is longer than 1.
    pub fn same_strides(&self, other: &View, shape: &[usize]) -> bool {
        shape.iter().zip(&self.strides).zip(&other.strides).all(|((size, a), b)| *size <= 1 || a == b)
    }

    /// The axes from the outermost in memory to the innermost. Axes of size 1 and those that repeat an element have
    /// no place of their own: they stay next to their logical neighbour.
    pub fn order(&self, shape: &[usize]) -> Order {
        let mut keyed: SmallVec<[(usize, usize); 6]> = SmallVec::new();
        let mut last = usize::MAX;
        for (axis, (&stride, &size)) in self.strides.iter().zip(shape).enumerate() {
            if size > 1 && stride > 0 {
                last = stride;
            }
            keyed.push((last, axis));
        }
        keyed.sort_by_key(|(stride, _)| std::cmp::Reverse(*stride));
        keyed.into_iter().map(|(_, axis)| axis).collect()
    }

    /// Elements from the first to the last that the view reaches, both included; 0 for an empty view.
    pub fn span(&self, shape: &[usize]) -> usize {
        if shape.contains(&0) {
            return 0;
        }
        1 + shape.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum::<usize>()
    }

    /// Every `step`th index from `start` on along an axis.
    pub fn slice(&self, axis: usize, start: usize, step: usize) -> View {
        let mut view = self.clone();
        view.offset += start * view.strides[axis];
        view.strides[axis] *= step;
        view
    }

    /// Output axis i is this view's axis `order[i]`.
    pub fn permute(&self, order: &[usize]) -> View {
        View { offset: self.offset, strides: order.iter().map(|&axis| self.strides[axis]).collect() }
    }

    /// Axes of size 1 repeated.
    pub fn broadcast(&self, from: &[usize], to: &[usize]) -> View {
        let strides = from.iter().zip(to).zip(&self.strides);
        View {
            offset: self.offset,
            strides: strides.map(|((f, t), s)| if f == t { *s } else { 0 }).collect(),
        }
    }

    /// The same elements under another shape, row-major in both; `None` where no strides do that.
    pub fn reshape(&self, from: &[usize], to: &[usize]) -> Option<View> {
        let mut strides: Shape = SmallVec::from_elem(0, to.len());
        for (inner, outer) in factors(from, to) {
            let axes: SmallVec<[usize; 6]> = inner.filter(|&axis| from[axis] != 1).collect();
            // The axes of the group must step as one.
            for pair in axes.windows(2) {
                if self.strides[pair[0]] != self.strides[pair[1]] * from[pair[1]] {
                    return None;
                }
            }
            let mut stride = axes.last().map_or(1, |&axis| self.strides[axis]);
            for axis in outer.rev() {
                strides[axis] = stride;
                stride *= to[axis];
            }
        }
        Some(View { offset: self.offset, strides })
    }

    /// The order in which a copy must lie so that it can be reshaped in place, with as little moved as may be: the
    /// groups of axes that the reshape treats as one stay where the innermost of them lies now.
    pub fn order_for_reshape(&self, from: &[usize], to: &[usize]) -> Order {
        let mut groups: Vec<(usize, Vec<usize>)> = factors(from, to)
            .map(|(axes, _)| {
                let axes: Vec<usize> = axes.collect();
                let long = axes.iter().filter(|&&axis| from[axis] > 1);
                (long.map(|&axis| self.strides[axis]).min().unwrap_or(usize::MAX), axes)
            })
            .collect();
        groups.sort_by_key(|(stride, _)| std::cmp::Reverse(*stride));
        groups.into_iter().flat_map(|(_, axes)| axes).collect()
    }
}

type Axes = std::ops::Range<usize>;

/// The smallest groups of neighbouring axes of both shapes that have the same number of elements.
fn factors(from: &[usize], to: &[usize]) -> impl Iterator<Item = (Axes, Axes)> {
    let mut groups = vec![];
    // An empty tensor has no elements to be misplaced.
    if from.contains(&0) || to.contains(&0) {
        groups.push((0..from.len(), 0..to.len()));
        return groups.into_iter();
    }
    let (mut f, mut t) = (0, 0);
    while f < from.len() || t < to.len() {
        let (first_f, first_t) = (f, t);
        let (mut have, mut want) = (1, 1);
        if f < from.len() {
            have = from[f];
            f += 1;
        }
        if t < to.len() && (have != 1 || first_f == f) {
            want = to[t];
            t += 1;
        }
        while have != want {
            if have < want && f < from.len() {
                have *= from[f];
                f += 1;
            } else if t < to.len() {
                want *= to[t];
                t += 1;
            } else {
                break;
            }
        }
        groups.push((first_f..f, first_t..t));
    }
    groups.into_iter()
}

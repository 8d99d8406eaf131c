//! Elements moved as larger units: neighbours that stay neighbours, up to 16 bytes at once.

use super::axes::{self, Axes, Loops};
use super::launch::Unsupported;
use smallvec::SmallVec;

/// Threads of a block, and units that each of them moves.
pub(super) const BLOCK: usize = 128;
const EACH: usize = 4;

/// One way of moving the elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units<const N: usize, const A: usize> {
    /// Bytes of a unit, to which addresses must be multiples.
    pub(super) bytes: usize,
    /// How many there are.
    pub(super) count: usize,
    /// The loops over them, strides in units.
    pub(super) axes: Axes<N, A>,
}

impl<const N: usize, const A: usize> Units<N, A> {
    /// Blocks that move them.
    pub(super) fn grid(&self) -> u32 {
        super::launch::blocks(self.count, BLOCK * EACH)
    }
}

/// The ways to move elements of so many bytes, the widest first. Of the tensors those `moved` hold the
/// elements; along the innermost loop only they may move where units are wider than an element. `others` are
/// distances in elements that must be whole units as well.
pub(super) fn units<const N: usize, const A: usize>(
    loops: &Loops<N>,
    elem_bytes: usize,
    moved: [bool; N],
    others: &[usize],
) -> Result<SmallVec<[Units<N, A>; 5]>, Unsupported> {
    axes::check(loops)?;
    let mut ways = SmallVec::new();
    for bytes in [16, 8, 4, 2, 1] {
        let elements = bytes / elem_bytes;
        let widened = match elements {
            0 => None,
            1 => Some(loops.clone()),
            _ if !others.iter().all(|distance| distance.is_multiple_of(elements)) => None,
            _ => widen(loops, elements, moved),
        };
        if let Some(loops) = widened {
            ways.push(Units { bytes, count: axes::count(&loops), axes: Axes::new(&loops)? });
        }
    }
    if ways.is_empty() { Err(Unsupported::Other("elements of an odd size")) } else { Ok(ways) }
}

/// The loops over units of so many elements, where those are whole.
fn widen<const N: usize>(loops: &Loops<N>, elements: usize, moved: [bool; N]) -> Option<Loops<N>> {
    let mut loops = loops.clone();
    let inner = loops.pop()?;
    let along = (0..N).all(|t| inner.strides[t] == usize::from(moved[t]));
    if !along || !inner.len.is_multiple_of(elements) {
        return None;
    }
    for axis in &mut loops {
        for t in (0..N).filter(|&t| moved[t]) {
            if !axis.strides[t].is_multiple_of(elements) {
                return None;
            }
            axis.strides[t] /= elements;
        }
    }
    loops.push(axes::Axis { len: inner.len / elements, ..inner });
    Some(loops)
}

#[cfg(test)]
mod tests {
    use super::super::axes::collapse;
    use super::*;

    fn widest(shape: &[usize], from: &[usize], to: &[usize], elem_bytes: usize) -> (usize, usize) {
        let loops = collapse(shape, [from, to], 1);
        let ways: SmallVec<[Units<2, 6>; 5]> = units(&loops, elem_bytes, [true; 2], &[]).unwrap();
        (ways[0].bytes, ways[0].count)
    }

    #[test]
    fn neighbours_are_moved_as_the_widest_units() {
        assert_eq!(widest(&[4, 64], &[128, 1], &[64, 1], 2), (16, 32));
        // A row begins at every 66th element on one side.
        assert_eq!(widest(&[4, 64], &[66, 1], &[64, 1], 2), (4, 128));
        assert_eq!(widest(&[4, 63], &[64, 1], &[63, 1], 2), (2, 252));
        // Neighbours on one side only.
        assert_eq!(widest(&[4, 64], &[1, 4], &[64, 1], 2), (2, 256));
    }
}

//! Padding of any axes: with a constant, with the edge, or with reflections.

use super::copy::{Copy, Fill};
use super::walk;
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;
use smallvec::SmallVec;

#[cfg(test)]
mod tests;

/// What stands beyond the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PadMode {
    /// The element whose bits are the lowest ones.
    Constant(u64),
    /// The nearest element.
    Edge,
    /// The elements mirrored at the first and the last one, which are not repeated.
    Reflect,
}

/// A region of the target.
#[derive(Debug)]
struct Region {
    /// Offsets of its first element, in elements.
    from: usize,
    to: usize,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Copy(Copy),
    Fill(Fill, u64),
}

/// A padding, made for one shape: regions of the target that are copied or filled.
#[derive(Debug)]
pub(crate) struct Pad {
    elem_bytes: usize,
    regions: Vec<Region>,
    extents: [usize; 2],
}

/// Positions along one axis: where they begin in source (`None`: beyond it) and target, and how many there are.
/// The source moves with the target.
type Run = (Option<usize>, usize, usize);

impl Pad {
    /// Of a source of that shape; `before` and `after` are elements per axis, where negative ones cut. Strides
    /// are in elements of `elem_bytes` (1, 2, 4 or 8). Reflection needs a source of at least one element per axis.
    pub(crate) fn new(
        elem_bytes: usize,
        shape: &[usize],
        source_strides: &[usize],
        target_strides: &[usize],
        before: &[isize],
        after: &[isize],
        mode: PadMode,
    ) -> Pad {
        let out: Vec<usize> = (0..shape.len())
            .map(|axis| (shape[axis] as isize + before[axis] + after[axis]).max(0) as usize)
            .collect();
        let runs: Vec<Vec<Run>> =
            (0..shape.len()).map(|axis| runs(shape[axis], out[axis], before[axis], mode)).collect();
        let mut regions = vec![];
        let mut chosen: SmallVec<[usize; 6]> = SmallVec::from_elem(0, shape.len());
        let count = runs.iter().map(Vec::len).product::<usize>();
        for _ in 0..count {
            let (mut from, mut to) = (0, 0);
            let mut size = vec![];
            let mut inside = true;
            for axis in 0..shape.len() {
                let (source, target, len) = runs[axis][chosen[axis]];
                inside &= source.is_some();
                from += source.unwrap_or(0) * source_strides[axis];
                to += target * target_strides[axis];
                size.push(len);
            }
            let work = match mode {
                PadMode::Constant(bits) if !inside => {
                    Work::Fill(Fill::new(elem_bytes, &size, target_strides), bits)
                }
                _ => Work::Copy(Copy::new(elem_bytes, &size, source_strides, target_strides)),
            };
            regions.push(Region { from: if inside { from } else { 0 }, to, work });
            for axis in (0..shape.len()).rev() {
                chosen[axis] += 1;
                if chosen[axis] < runs[axis].len() {
                    break;
                }
                chosen[axis] = 0;
            }
        }
        let extents = [walk::span(shape, source_strides), walk::span(&out, target_strides)];
        Pad { elem_bytes, regions, extents }
    }

    /// Pads. Source and target are in bytes and must not overlap.
    pub(crate) fn run(&self, source: Source<'_, u8>, target: Target<'_, u8>, threads: &Threads) {
        let [from, to] = self.extents.map(|extent| extent * self.elem_bytes);
        assert!(source.len() >= from, "a source of {} bytes, {from} are read", source.len());
        assert!(target.len() >= to, "a target of {} bytes, {to} are written", target.len());
        for region in &self.regions {
            let (from, to) = (region.from * self.elem_bytes, region.to * self.elem_bytes);
            // SAFETY: an offset is that of an element of the tensor, or 0, so that what follows it is as valid as
            // the whole; the kernels check their own extents against what is left.
            unsafe {
                let target = Target::new(target.as_ptr().wrapping_add(to), target.len() - to);
                match &region.work {
                    Work::Copy(copy) => {
                        let source = Source::new(source.as_ptr().wrapping_add(from), source.len() - from);
                        copy.run(source, target, threads);
                    }
                    Work::Fill(fill, bits) => fill.run(*bits, target, threads),
                }
            }
        }
    }
}

/// The positions `0..out` of the target along an axis, in runs whose source positions ascend by 1.
fn runs(len: usize, out: usize, before: isize, mode: PadMode) -> Vec<Run> {
    let mut runs: Vec<Run> = vec![];
    for target in 0..out {
        let position = target as isize - before;
        let inside = (0..len as isize).contains(&position);
        let source = match mode {
            _ if inside => Some(position as usize),
            PadMode::Constant(_) => None,
            _ if len == 0 => None,
            PadMode::Edge => Some(position.clamp(0, len as isize - 1) as usize),
            PadMode::Reflect => {
                let period = (2 * len as isize - 2).max(1);
                let position = position.rem_euclid(period);
                Some(if position < len as isize { position } else { period - position } as usize)
            }
        };
        match runs.last_mut() {
            Some((first, _, count)) if first.map(|first| first + *count) == source && source.is_some() => {
                *count += 1;
            }
            Some((None, _, count)) if source.is_none() => *count += 1,
            _ => runs.push((source, target, 1)),
        }
    }
    runs
}

//! A constant's elements in the order that the plan asks for, read in pieces.

use crate::graph::Data;
use crate::plan::Constant;
use std::io;

/// Bytes that are read from a constant at a time.
const PIECE_BYTES: usize = 1 << 20;

/// An axis of a constant: its size, and the distance in bytes between neighbours where it comes from and where it is
/// to lie.
#[derive(Clone, Copy, Debug)]
struct Axis {
    size: usize,
    from: usize,
    to: usize,
}

/// Puts the constant's elements, of `size` bytes each, into `laid` in the order that the plan asks for.
pub(in crate::device) fn gather(
    data: &Data,
    size: usize,
    constant: &Constant,
    laid: &mut [u8],
) -> io::Result<()> {
    if laid.is_empty() {
        return Ok(());
    }
    let mut axes = vec![];
    let mut inner = size;
    for &axis in constant.order.iter().rev() {
        let from = constant.source.strides[axis] * size;
        if constant.shape[axis] != 1 {
            axes.push(Axis { size: constant.shape[axis], from, to: inner });
        }
        inner *= constant.shape[axis];
    }
    // As they lie in the source, outermost first; those that repeat an element come last.
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.from));
    axes.dedup_by(|inner, outer| {
        let one = outer.from == inner.from * inner.size && outer.to == inner.to * inner.size;
        if one {
            *outer = Axis { size: outer.size * inner.size, ..*inner };
        }
        one
    });
    stream(data, size, &axes, constant.source.offset * size, 0, laid, &mut vec![])
}

/// Has `each` see parts of the constant of at most `most` bytes, which follow each other where it is to lie, with the
/// byte that each begins at.
pub(in crate::device) fn in_parts<E>(
    size: usize,
    constant: &Constant,
    most: usize,
    start: usize,
    each: &mut impl FnMut(&Constant, usize, usize) -> Result<(), E>,
) -> Result<(), E> {
    let bytes = constant.shape.iter().product::<usize>() * size;
    let outermost = constant.order.iter().copied().find(|axis| constant.shape[*axis] > 1);
    let Some(axis) = outermost.filter(|_| bytes > most) else { return each(constant, start, bytes) };
    let all = constant.shape[axis];
    let row = bytes / all;
    let (mut part, many) = (constant.clone(), (most / row).max(1));
    for first in (0..all).step_by(many) {
        part.shape[axis] = many.min(all - first);
        part.source = constant.source.slice(axis, first, 1);
        in_parts(size, &part, most, start + first * row, each)?;
    }
    Ok(())
}

/// Reads what `axes` span from `from` on, in pieces along the outermost, and spreads it from `to` on.
fn stream(
    data: &Data,
    size: usize,
    axes: &[Axis],
    from: usize,
    to: usize,
    laid: &mut [u8],
    piece: &mut Vec<u8>,
) -> io::Result<()> {
    // One run that lies alike on both sides needs no piece between.
    if let [] | [Axis { .. }] = axes
        && axes.iter().all(|axis| axis.from == size && axis.to == size)
    {
        let end = to + axes.iter().map(|axis| axis.size).product::<usize>() * size;
        for (at, part) in laid[to..end].chunks_mut(PIECE_BYTES).enumerate() {
            data.read(from + at * PIECE_BYTES, part)?;
        }
        return Ok(());
    }
    let span = size + axes.iter().map(|axis| (axis.size - 1) * axis.from).sum::<usize>();
    if span <= PIECE_BYTES {
        piece.resize(span, 0);
        data.read(from, piece)?;
        spread(piece, size, axes, 0, to, laid);
        return Ok(());
    }
    let Some((outer, rest)) = axes.split_first() else { return Ok(()) };
    // Never the whole axis again, whatever the strides.
    let many = (PIECE_BYTES / outer.from.max(1)).clamp(1, (outer.size - 1).max(1));
    let mut part = axes.to_vec();
    for first in (0..outer.size).step_by(many) {
        let (from, to) = (from + first * outer.from, to + first * outer.to);
        if many == 1 {
            stream(data, size, rest, from, to, laid, piece)?;
        } else {
            part[0].size = many.min(outer.size - first);
            stream(data, size, &part, from, to, laid, piece)?;
        }
    }
    Ok(())
}

/// Copies elements from where they lie in a piece to where they are to lie.
fn spread(piece: &[u8], size: usize, axes: &[Axis], from: usize, to: usize, laid: &mut [u8]) {
    match axes {
        [] => laid[to..to + size].copy_from_slice(&piece[from..from + size]),
        [axis] if axis.from == size && axis.to == size => {
            let run = axis.size * size;
            laid[to..to + run].copy_from_slice(&piece[from..from + run]);
        }
        [axis] if size == 4 => {
            for at in 0..axis.size {
                let (from, to) = (from + at * axis.from, to + at * axis.to);
                laid[to..to + 4].copy_from_slice(&piece[from..from + 4]);
            }
        }
        [axis, rest @ ..] => {
            for at in 0..axis.size {
                spread(piece, size, rest, from + at * axis.from, to + at * axis.to, laid);
            }
        }
    }
}

#[cfg(test)]
mod tests;

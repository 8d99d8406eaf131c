//! A model's constants as its kernels want them, shared by its programs: another shape adds only what is new.
//!
//! A constant that is still in a file is read from there in pieces and put straight where it is to lie. Memory beyond
//! what is kept: one piece, and for a constant that a kernel packs that constant once more, unpacked, or where it is
//! large and a kernel allows it (every product and every convolution in one group does) a part of it.

use super::ALIGNMENT;
use super::args::Kernel;
use super::block::{Block, Held, Room};
use crate::error::Error;
use crate::graph::{Data, Identity, Value};
use crate::plan::{Constant, Order, View};
use crate::tensor::Shape;
use bytes::Bytes;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Packed constants of one program, in one extent; those that it shares lie with the program that came first.
pub(crate) struct Weights {
    room: Room,
}

impl Weights {
    /// Keeps the constants where they are; `now` is a count that goes up with time.
    pub(super) fn hold(&self, now: u64) -> Held<'_> {
        self.room.hold(now)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.room.bytes()
    }
}

/// One packed constant.
#[derive(Clone)]
pub(crate) struct Piece {
    /// What it lies in.
    pub(super) weights: Arc<Weights>,
    /// From which byte on.
    pub(super) offset: usize,
    /// How many bytes it has.
    pub(super) bytes: usize,
}

/// A constant and the kernel that reads it.
pub(super) struct Wanted<'a> {
    pub(super) value: &'a Value,
    pub(super) constant: &'a Constant,
    pub(super) kernel: &'a dyn Kernel,
    pub(super) input: usize,
}

/// What tells one packed constant from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    content: Identity,
    layout: (Shape, View, Order),
    form: Option<String>,
}

/// The packed constants of one model that some program still holds.
#[derive(Default)]
pub(crate) struct WeightStore {
    known: Mutex<HashMap<Key, Found>>,
}

/// A constant that is there as long as somebody holds it.
struct Found {
    weights: Weak<Weights>,
    offset: usize,
    bytes: usize,
}

impl WeightStore {
    /// The constants as their kernels want them: those that are there, and the others packed now into one room.
    ///
    /// # Errors
    /// There is no room for them, or a constant cannot be read.
    pub(super) fn packed(
        &self,
        wanted: &[Wanted<'_>],
        room: impl FnOnce(u64) -> Result<Room, Error>,
    ) -> Result<Vec<Piece>, Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, found| found.weights.strong_count() > 0);
        let mut pieces: Vec<Option<Piece>> = vec![None; wanted.len()];
        // Where each new constant goes, by key: the same may be wanted twice.
        let mut fresh: HashMap<Key, usize> = HashMap::new();
        let mut places: Vec<(usize, usize, usize)> = vec![];
        let mut end = 0;
        let mut of_fresh = vec![];
        for (at, want) in wanted.iter().enumerate() {
            let key = want.key();
            let shared = known.get(&key).and_then(|found| {
                Some(Piece { weights: found.weights.upgrade()?, offset: found.offset, bytes: found.bytes })
            });
            if shared.is_some() {
                pieces[at] = shared;
                continue;
            }
            let place = *fresh.entry(key).or_insert_with(|| {
                let bytes = want.bytes();
                places.push((at, end, bytes));
                end += bytes.next_multiple_of(ALIGNMENT as usize);
                places.len() - 1
            });
            of_fresh.push((at, place));
        }
        if !places.is_empty() {
            let weights = Arc::new(Weights { room: room(end as u64)? });
            let held = weights.hold(0);
            for (at, offset, bytes) in &places {
                // SAFETY: the room is new, so nobody else uses it, and it is as large as the places' end.
                let to = unsafe { std::slice::from_raw_parts_mut(held.first.add(*offset), *bytes) };
                wanted[*at].write(to)?;
            }
            drop(held);
            for (key, place) in fresh {
                let (_, offset, bytes) = places[place];
                known.insert(key, Found { weights: Arc::downgrade(&weights), offset, bytes });
            }
            for (at, place) in of_fresh {
                let (_, offset, bytes) = places[place];
                pieces[at] = Some(Piece { weights: Arc::clone(&weights), offset, bytes });
            }
        }
        Ok(pieces.into_iter().flatten().collect())
    }
}

impl Wanted<'_> {
    fn data(&self) -> Data {
        self.value.constant.clone().unwrap_or(Data::Bytes(Bytes::new()))
    }

    fn key(&self) -> Key {
        let Constant { shape, source, order, .. } = self.constant;
        Key {
            content: self.data().identity(),
            layout: (shape.clone(), source.clone(), order.clone()),
            form: self.kernel.packing(self.input).map(|packing| packing.form),
        }
    }

    /// Bytes of an element.
    fn size(&self) -> usize {
        self.value.dtype.size_bytes().unwrap_or(1)
    }

    /// Bytes of the packed constant.
    fn bytes(&self) -> usize {
        let laid = self.constant.shape.iter().product::<usize>() * self.size();
        self.kernel.packing(self.input).map_or(laid, |packing| packing.len * 4)
    }

    /// Reads the constant and packs it to where it is to lie.
    fn write(&self, to: &mut [u8]) -> Result<(), Error> {
        let failed = |source| Error::Weights { name: self.value.name.clone(), source };
        let (data, size) = (self.data(), self.size());
        let Some(packing) = self.kernel.packing(self.input) else {
            return gather(&data, size, self.constant, to).map_err(failed);
        };
        // SAFETY: rooms and places are aligned, and any four bytes are an f32.
        let packed = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<f32>(), to.len() / 4) };
        let whole = self.constant.shape.iter().product::<usize>() * size;
        let Some(columns) = packing.columns.filter(|_| whole > UNPACKED_BYTES) else {
            let mut laid = Block::staging(whole)?;
            gather(&data, size, self.constant, laid.bytes_mut()).map_err(failed)?;
            self.kernel.pack(self.input, None, floats(&laid), packed);
            return Ok(());
        };
        let all = self.constant.shape[columns.axis];
        let most = UNPACKED_BYTES / (columns.height * size).max(1) / columns.unit * columns.unit;
        let mut part = self.constant.clone();
        let mut start = 0;
        while start < all {
            // The last cut leaves a whole unit at least, since the last panels depend on what is left.
            let rest = all - start;
            let count =
                if rest < most.max(columns.unit) + columns.unit { rest } else { most.max(columns.unit) };
            part.shape[columns.axis] = count;
            part.source = self.constant.source.slice(columns.axis, start, 1);
            let mut laid = Block::staging(part.shape.iter().product::<usize>() * size)?;
            gather(&data, size, &part, laid.bytes_mut()).map_err(failed)?;
            self.kernel.pack(self.input, Some(count), floats(&laid), &mut packed[start * columns.height..]);
            start += count;
        }
        Ok(())
    }
}

fn floats(block: &Block) -> &[f32] {
    // SAFETY: the block is aligned and initialized, and any four bytes are an f32.
    unsafe { std::slice::from_raw_parts(block.as_ptr().cast::<f32>(), block.len() / 4) }
}

/// Bytes of a constant that are unpacked beside the packed ones, where it can be packed in parts.
const UNPACKED_BYTES: usize = 16 << 20;

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
fn gather(data: &Data, size: usize, constant: &Constant, laid: &mut [u8]) -> io::Result<()> {
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

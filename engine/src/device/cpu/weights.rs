//! A model's constants as its kernels want them, shared by its programs: another shape adds only what is new.
//!
//! A constant that is still in a file is read from there in pieces and put straight where it is to lie. Memory beyond
//! what is kept: one piece, and for a constant that a kernel packs that constant once more, unpacked, or where it is
//! large and a kernel allows it (every product and every convolution in one group does) a part of it.

mod gather;

use super::ALIGNMENT;
use super::args::Kernel;
use super::block::Block;
use crate::cache::Piece as KeptPiece;
use crate::device::{GiveRoom, Held, Kept, Room};
use crate::error::Error;
use crate::graph::{Data, DataFile, Identity, Value};
use crate::plan::{Constant, Order, View};
use crate::tensor::Shape;
use bytes::Bytes;
use gather::gather;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use xxhash_rust::xxh3::Xxh3;

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
pub(super) struct WeightStore {
    known: Mutex<HashMap<Key, Found>>,
}

/// A constant that is there as long as somebody holds it.
struct Found {
    weights: Weak<Weights>,
    offset: usize,
    bytes: usize,
}

impl WeightStore {
    /// The constants as their kernels want them: those that are there, and the others brought into one room now, as
    /// they were kept or packed from the model's file and then kept.
    ///
    /// # Errors
    /// There is no room for them, or a constant cannot be read.
    pub(super) fn packed(
        &self,
        wanted: &[Wanted<'_>],
        kept: Option<&Kept<'_>>,
        room: &GiveRoom<'_>,
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
            let mut packed = vec![];
            for (at, offset, bytes) in &places {
                // SAFETY: the room is new, so nobody else uses it, and it is as large as the places' end, which do
                // not overlap.
                let to = unsafe { std::slice::from_raw_parts_mut(held.first.add(*offset), *bytes) };
                let key = kept.and_then(|kept| wanted[*at].key().among(kept.files));
                if kept.zip(key).is_some_and(|(kept, key)| kept.pieces.read(key, to)) {
                    continue;
                }
                wanted[*at].write(to)?;
                packed.extend(key.map(|key| KeptPiece { key, bytes: to }));
            }
            if let Some(kept) = kept
                && let Err(error) = kept.pieces.write(&packed)
            {
                kept.cache.report(&format!("packed weights are not kept for the next start: {error}"));
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

impl Key {
    /// The same in every process of this build to which these are the model's files.
    fn among(&self, files: &[Arc<DataFile>]) -> Option<u128> {
        let mut hash = Xxh3::new();
        self.content.among(files)?.hash(&mut hash);
        (&self.layout, &self.form).hash(&mut hash);
        Some(hash.digest128())
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

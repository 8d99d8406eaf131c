//! A model's constants as its kernels want them, shared by its programs: another shape adds only what is new. What is
//! kept of them here is where they lie; how they are packed and brought there is the device's.

mod gather;

pub(super) use gather::{gather, in_parts};

use super::{GiveRoom, Held, Room};
use crate::error::Error;
use crate::graph::{Data, DataFile, Graph, Identity};
use crate::plan::{Constant, Order, View};
use crate::tensor::Shape;
use bytes::Bytes;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use xxhash_rust::xxh3::Xxh3;

/// Packed constants of one program, in one extent; those that it shares lie with the program that came first.
pub(super) struct Weights {
    room: Room,
}

impl Weights {
    /// Keeps the constants where they are; `now` is a count that goes up with time.
    pub(super) fn hold(&self, now: u64) -> Held<'_> {
        self.room.hold(now)
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.room.bytes()
    }
}

/// One packed constant.
#[derive(Clone)]
pub(super) struct Piece {
    /// What it lies in.
    pub(super) weights: Arc<Weights>,
    /// From which byte on.
    pub(super) offset: usize,
    /// How many bytes it has.
    pub(super) bytes: usize,
}

/// A constant that a kernel reads.
pub(super) struct Wanted<'a> {
    /// For reports.
    pub(super) name: &'a str,
    /// Its elements.
    pub(super) data: Data,
    /// Bytes of an element.
    pub(super) size: usize,
    /// How it is to lie, before it is packed.
    pub(super) constant: &'a Constant,
    /// How it is packed, where it is.
    pub(super) packing: Option<Packing>,
}

/// How a constant is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packing {
    /// Constants with equal contents and form are packed once.
    pub(super) form: String,
    /// Bytes that the packed constant takes.
    pub(super) bytes: usize,
}

/// A constant that is to be brought to its place.
pub(super) struct Fresh {
    /// Which of those that were wanted.
    pub(super) at: usize,
    /// From which byte of the room on.
    pub(super) offset: usize,
    /// How many bytes it has.
    pub(super) bytes: usize,
}

/// Brings constants into a new room, which nobody else uses yet.
pub(super) type Bring<'a> = dyn FnMut(&Held<'_>, &[Fresh]) -> Result<(), Error> + 'a;

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
    /// The constants as their kernels want them: those that are there, and the others, which `bring` brings into one
    /// room now, each at a multiple of `alignment` bytes.
    ///
    /// # Errors
    /// There is no room for them, or a constant cannot be read.
    pub(super) fn packed(
        &self,
        wanted: &[Wanted<'_>],
        alignment: usize,
        room: &GiveRoom<'_>,
        bring: &mut Bring<'_>,
    ) -> Result<Vec<Piece>, Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, found| found.weights.strong_count() > 0);
        let mut pieces: Vec<Option<Piece>> = vec![None; wanted.len()];
        // Where each new constant goes, by key: the same may be wanted twice.
        let mut fresh: HashMap<Key, usize> = HashMap::new();
        let mut places: Vec<Fresh> = vec![];
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
                places.push(Fresh { at, offset: end, bytes });
                end += bytes.next_multiple_of(alignment);
                places.len() - 1
            });
            of_fresh.push((at, place));
        }
        if !places.is_empty() {
            let weights = Arc::new(Weights { room: room(end as u64)? });
            bring(&weights.hold(0), &places)?;
            for (key, place) in fresh {
                let Fresh { offset, bytes, .. } = places[place];
                known.insert(key, Found { weights: Arc::downgrade(&weights), offset, bytes });
            }
            for (at, place) in of_fresh {
                let Fresh { offset, bytes, .. } = places[place];
                pieces[at] = Some(Piece { weights: Arc::clone(&weights), offset, bytes });
            }
        }
        Ok(pieces.into_iter().flatten().collect())
    }
}

/// The place of a piece's extent among those that a program holds, which it joins if it is not there.
pub(super) fn among(held: &mut Vec<Arc<Weights>>, piece: &Piece) -> usize {
    held.iter().position(|known| Arc::ptr_eq(known, &piece.weights)).unwrap_or_else(|| {
        held.push(Arc::clone(&piece.weights));
        held.len() - 1
    })
}

impl<'a> Wanted<'a> {
    /// A constant of a graph.
    pub(super) fn of(graph: &'a Graph, constant: &'a Constant, packing: Option<Packing>) -> Wanted<'a> {
        let value = graph.value(constant.value);
        Wanted {
            name: &value.name,
            data: value.constant.clone().unwrap_or(Data::Bytes(Bytes::new())),
            size: value.dtype.size_bytes().unwrap_or(1),
            constant,
            packing,
        }
    }
}

impl Wanted<'_> {
    fn key(&self) -> Key {
        let Constant { shape, source, order, .. } = self.constant;
        Key {
            content: self.data.identity(),
            layout: (shape.clone(), source.clone(), order.clone()),
            form: self.packing.as_ref().map(|packing| packing.form.clone()),
        }
    }

    /// What the packed constant is kept under on disk: the same in every process of this build to which these are the
    /// model's files.
    pub(super) fn kept_key(&self, files: &[Arc<DataFile>]) -> Option<u128> {
        let key = self.key();
        let mut hash = Xxh3::new();
        key.content.among(files)?.hash(&mut hash);
        (&key.layout, &key.form).hash(&mut hash);
        Some(hash.digest128())
    }

    /// Bytes of the constant as the plan lays it out.
    pub(super) fn laid_bytes(&self) -> usize {
        self.constant.shape.iter().product::<usize>() * self.size
    }

    /// Bytes of the packed constant.
    pub(super) fn bytes(&self) -> usize {
        self.packing.as_ref().map_or_else(|| self.laid_bytes(), |packing| packing.bytes)
    }

    /// The error that the constant cannot be read.
    pub(super) fn unread(&self, source: std::io::Error) -> Error {
        Error::Weights { name: self.name.into(), source }
    }
}

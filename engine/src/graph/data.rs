//! The elements of a constant: in memory, still in the model's file, or made as they are read, of another constant's or
//! of one element.

mod beside;
mod file;
mod open;

pub use beside::Part;
use bytes::Bytes;
use file::Stamp;
pub use file::{DataFile, FileRange, Likeness};
use half::f16;
use smallvec::SmallVec;
use std::io;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

/// The row-major elements of a constant.
#[derive(Clone, Debug)]
pub enum Data {
    /// In memory.
    Bytes(Bytes),
    /// In a file, read when they are asked for.
    File(FileRange),
    /// f32 elements of `base`, element i times `factors[(i / inner) % factors.len()]`.
    Scaled {
        /// What is multiplied.
        base: Box<Data>,
        /// A factor for each index of an axis.
        factors: Arc<[f32]>,
        /// Elements that one index of that axis spans.
        inner: usize,
    },
    /// f32 elements that are f16 in the base.
    Widened(Box<Data>),
    /// Others side by side along their last axis: row i is made of row i of each.
    Beside(Arc<[Part]>),
    /// One element over and over.
    Filled {
        /// Its bytes.
        element: SmallVec<[u8; 8]>,
        /// Bytes of all elements.
        len: usize,
    },
    /// Not here: known by their hash alone, of a graph from the cache whose large constants were packed before.
    Absent {
        /// The hash of the elements.
        content: u128,
        /// Bytes of all elements.
        len: usize,
    },
}

/// What tells the elements of one constant from another's without reading files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(Kind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Content(u128),
    File(Stamp, u64, usize),
    /// Of a file that is told from others by its place among a model's.
    Numbered(usize, u64, usize),
    Scaled(Box<Kind>, u128, usize),
    Widened(Box<Kind>),
    Beside(Vec<(Kind, usize)>),
    Filled(SmallVec<[u8; 8]>, usize),
}

impl Data {
    /// Bytes of all elements.
    pub fn len(&self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::File(range) => range.len,
            Data::Scaled { base, .. } => base.len(),
            Data::Widened(base) => base.len().saturating_mul(2),
            Data::Beside(parts) => parts.iter().map(|part| part.data.len()).sum(),
            Data::Filled { len, .. } | Data::Absent { len, .. } => *len,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the elements take now.
    pub fn held_bytes(&self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::File(_) | Data::Filled { .. } | Data::Absent { .. } => 0,
            Data::Scaled { base, factors, .. } => base.held_bytes() + factors.len() * 4,
            Data::Widened(base) => base.held_bytes(),
            Data::Beside(parts) => parts.iter().map(|part| part.data.held_bytes()).sum(),
        }
    }

    /// Reads the bytes from `offset` on, as many as `to` has; a large constant is read in pieces.
    ///
    /// # Errors
    /// There are not so many, the file cannot be read, or someone has written to it since it was opened.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(to.len()).filter(|end| *end <= self.len());
        let Some(end) = end else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a constant ends before it is read"));
        };
        match self {
            Data::Bytes(bytes) => to.copy_from_slice(&bytes[offset..end]),
            Data::File(range) => range.file.read(range.offset + offset as u64, to)?,
            Data::Scaled { base, factors, inner } => {
                if !offset.is_multiple_of(4) || !to.len().is_multiple_of(4) {
                    return self.read_within_floats(offset, to);
                }
                base.read(offset, to)?;
                let (inner, count) = ((*inner).max(1), factors.len().max(1));
                for (at, four) in to.chunks_exact_mut(4).enumerate() {
                    let factor = factors.get((offset / 4 + at) / inner % count).copied().unwrap_or(1.0);
                    let scaled = f32::from_le_bytes([four[0], four[1], four[2], four[3]]) * factor;
                    four.copy_from_slice(&scaled.to_le_bytes());
                }
            }
            Data::Widened(base) => {
                if !offset.is_multiple_of(4) || !to.len().is_multiple_of(4) {
                    return self.read_within_floats(offset, to);
                }
                // The halves fill the second half of the place and are widened from its beginning on: what is
                // written never passes what is still to be read.
                let middle = to.len() / 2;
                base.read(offset / 2, &mut to[middle..])?;
                for at in 0..to.len() / 4 {
                    let from = middle + at * 2;
                    let wide = f16::from_le_bytes([to[from], to[from + 1]]).to_f32();
                    to[at * 4..at * 4 + 4].copy_from_slice(&wide.to_le_bytes());
                }
            }
            Data::Beside(parts) => beside::read(parts, offset, to)?,
            Data::Filled { element, .. } => {
                let mut element = element.clone();
                let size = element.len().max(1);
                element.rotate_left(offset % size);
                to.chunks_mut(size).for_each(|bytes| bytes.copy_from_slice(&element[..bytes.len()]));
            }
            Data::Absent { .. } => {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "the cache does not hold these elements",
                ));
            }
        }
        Ok(())
    }

    /// A range that begins or ends inside an f32, by way of the whole numbers around it.
    fn read_within_floats(&self, offset: usize, to: &mut [u8]) -> io::Result<()> {
        let (start, end) = (offset / 4 * 4, (offset + to.len()).next_multiple_of(4));
        let mut whole = vec![0; end - start];
        self.read(start, &mut whole)?;
        to.copy_from_slice(&whole[offset - start..][..to.len()]);
        Ok(())
    }

    /// All elements, in memory.
    ///
    /// # Errors
    /// As [`Data::read`].
    pub fn load(&self) -> io::Result<Bytes> {
        if let Data::Bytes(bytes) = self {
            return Ok(bytes.clone());
        }
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Some of the bytes; `None` where there are not so many, or where they are not those of a base as they are.
    pub fn slice(&self, offset: usize, len: usize) -> Option<Data> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len())?;
        match self {
            Data::Bytes(bytes) => Some(Data::Bytes(bytes.slice(offset..end))),
            Data::File(range) => Some(Data::File(FileRange {
                file: Arc::clone(&range.file),
                offset: range.offset + offset as u64,
                len,
            })),
            Data::Filled { element, .. } if offset.is_multiple_of(element.len().max(1)) => {
                Some(Data::Filled { element: element.clone(), len })
            }
            Data::Scaled { .. }
            | Data::Widened(_)
            | Data::Beside(_)
            | Data::Filled { .. }
            | Data::Absent { .. } => None,
        }
    }

    /// What tells these elements from others: their hash where they are in memory, else where they are from.
    pub fn identity(&self) -> Identity {
        Identity(self.kind())
    }

    fn kind(&self) -> Kind {
        match self {
            Data::Bytes(bytes) => Kind::Content(xxh3_128(bytes)),
            Data::File(range) => Kind::File(range.file.stamp, range.offset, range.len),
            Data::Scaled { base, factors, inner } => {
                Kind::Scaled(Box::new(base.kind()), xxh3_128(bytemuck::cast_slice(factors)), *inner)
            }
            Data::Widened(base) => Kind::Widened(Box::new(base.kind())),
            Data::Beside(parts) => {
                Kind::Beside(parts.iter().map(|part| (part.data.kind(), part.row)).collect())
            }
            Data::Filled { element, len } => Kind::Filled(element.clone(), *len),
            Data::Absent { content, .. } => Kind::Content(*content),
        }
    }

    /// The file that the elements lie in, the first of several.
    pub fn file(&self) -> Option<&Arc<DataFile>> {
        match self {
            Data::File(range) => Some(&range.file),
            Data::Scaled { base, .. } | Data::Widened(base) => base.file(),
            Data::Beside(parts) => parts.iter().find_map(|part| part.data.file()),
            Data::Bytes(_) | Data::Filled { .. } | Data::Absent { .. } => None,
        }
    }
}

impl Identity {
    /// The same in every process to which these are a model's files in this order; `None` for elements that lie in
    /// no such file.
    pub fn among(&self, files: &[Arc<DataFile>]) -> Option<Identity> {
        self.0.among(files).map(Identity)
    }
}

impl Kind {
    fn among(&self, files: &[Arc<DataFile>]) -> Option<Kind> {
        Some(match self {
            Kind::File(stamp, offset, len) => {
                Kind::Numbered(files.iter().position(|file| file.stamp == *stamp)?, *offset, *len)
            }
            Kind::Scaled(base, factors, inner) => {
                Kind::Scaled(Box::new(base.among(files)?), *factors, *inner)
            }
            Kind::Widened(base) => Kind::Widened(Box::new(base.among(files)?)),
            Kind::Beside(parts) => {
                let part = |(kind, row): &(Kind, usize)| Some((kind.among(files)?, *row));
                Kind::Beside(parts.iter().map(part).collect::<Option<_>>()?)
            }
            Kind::Content(_) | Kind::Numbered(..) | Kind::Filled(..) => self.clone(),
        })
    }
}

impl From<Bytes> for Data {
    fn from(bytes: Bytes) -> Data {
        Data::Bytes(bytes)
    }
}

#[cfg(test)]
mod tests;

//! What is kept on disk between starts, so that a second start neither imports nor packs.
//!
//! A `Shelf` is a folder for one model: small records (what the model takes and gives, its fused graphs) and the
//! packed constants, in `Pieces`. Everything is written under another name and renamed when it is whole, carries the
//! mark of the build that wrote it and a checksum, and is taken for absent when either is wrong: whatever a crash or a
//! full disk leaves behind costs an import, and nothing else.

mod pieces;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use pieces::{Piece, Pieces, Writer};

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// The folder that things are kept in.
pub struct Cache {
    dir: PathBuf,
    mark: u128,
    report: Box<dyn Fn(&str) + Send + Sync>,
}

/// What is kept of one model.
pub(crate) struct Shelf {
    folder: PathBuf,
    mark: u128,
}

impl Cache {
    /// Opens or makes the folder `dir`. What another build wrote is never read: `build` tells builds apart. `report`
    /// hears why something could not be kept, which harms nothing else.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(dir: &Path, build: &[u8], report: Box<dyn Fn(&str) + Send + Sync>) -> io::Result<Cache> {
        fs::create_dir_all(dir)?;
        Ok(Cache { dir: dir.into(), mark: xxh3_128(build), report })
    }

    /// The shelf of that name.
    pub(crate) fn shelf(&self, name: &str) -> Shelf {
        let folder = self.dir.join("models").join(format!("{:032x}", xxh3_128(name.as_bytes())));
        Shelf { folder, mark: self.mark }
    }

    /// Says why something could not be kept.
    pub(crate) fn report(&self, what: &str) {
        (self.report)(what);
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Shelf {
    /// The same shelf for what belongs to `what` alone.
    pub(crate) fn of(&self, what: &[u8]) -> Shelf {
        let mark = xxh3_128(&[&self.mark.to_le_bytes(), what].concat());
        Shelf { folder: self.folder.clone(), mark }
    }

    /// The record of that name; `None` where there is none that this build wrote whole.
    pub(crate) fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let path = self.folder.join(name);
        let metadata = fs::metadata(&path).ok()?;
        // Of what somebody else has put there neither a pipe nor a giant is read.
        let sound = metadata.is_file() && metadata.len() <= LARGEST_RECORD_BYTES;
        record::parse(&sound.then(|| fs::read(&path))?.ok()?, self.mark)
    }

    /// Keeps a record in the place of any before it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn put(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let bytes = record::bytes(value, self.mark)?;
        fs::create_dir_all(&self.folder)?;
        let unfinished = self.folder.join(format!("{name}{UNFINISHED}"));
        fs::write(&unfinished, bytes)?;
        fs::rename(&unfinished, self.folder.join(name))
    }

    /// The packed constants.
    pub(crate) fn pieces(&self) -> Pieces {
        Pieces::open(self.folder.clone(), self.mark)
    }

    /// How many records have a name that ends so.
    pub(crate) fn count(&self, end: &str) -> usize {
        let names = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().ends_with(end)).count()
    }

    /// Forgets everything, leftovers of a crash included.
    pub(crate) fn clear(&self) {
        // What cannot be removed will not be believed either.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// No record is larger.
const LARGEST_RECORD_BYTES: u64 = 64 << 20;

/// How the name of a file ends that is not whole yet.
const UNFINISHED: &str = ".unfinished";

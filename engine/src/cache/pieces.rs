//! Packed constants on disk, each under a key that says what it is and how it is packed.
//!
//! A file of them: the pieces one after the other, then a record of where each begins and its checksum, then the
//! record's length in eight bytes. Files are only added; one that turns out damaged is removed with all that it holds.

use super::{LARGEST_RECORD_BYTES, UNFINISHED, record};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

/// A packed constant and its key.
pub(crate) struct Piece<'a> {
    /// What it is and how it is packed.
    pub(crate) key: u128,
    /// The packed bytes.
    pub(crate) bytes: &'a [u8],
}

/// The packed constants of one model.
pub(crate) struct Pieces {
    folder: PathBuf,
    mark: u128,
    known: Mutex<HashMap<u128, Place>>,
}

/// Where a piece lies.
#[derive(Clone)]
struct Place {
    file: Arc<PieceFile>,
    offset: u64,
    len: u64,
    checksum: u64,
}

struct PieceFile {
    file: File,
    path: PathBuf,
}

/// Key, offset, length, checksum.
type Index = Vec<(u128, u64, u64, u64)>;

/// How the name of a file of pieces ends.
const END: &str = ".pieces";

/// Bytes read at a time, so that the checksum finds them at hand.
const PART_BYTES: usize = 1 << 18;

impl Pieces {
    /// The pieces in a folder, which need not be there.
    pub(super) fn open(folder: PathBuf, mark: u128) -> Pieces {
        let mut known = HashMap::new();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.to_string_lossy().ends_with(END) {
                match index(&path, mark) {
                    Some((file, index)) => enter(&mut known, PieceFile { file, path }, index),
                    None => drop(fs::remove_file(&path)),
                }
            }
        }
        Pieces { folder, mark, known: Mutex::new(known) }
    }

    /// Reads the piece of that key, if it is there, has as many bytes as `to` and is whole; whether it was.
    pub(crate) fn read(&self, key: u128, to: &mut [u8]) -> bool {
        let place = self.lock().get(&key).cloned();
        let Some(place) = place.filter(|place| place.len == to.len() as u64) else { return false };
        if place.read(to).is_ok_and(|checksum| checksum == place.checksum) {
            return true;
        }
        self.lock().retain(|_, other| !Arc::ptr_eq(&other.file, &place.file));
        let _ = fs::remove_file(&place.file.path);
        false
    }

    /// Keeps pieces in one more file.
    ///
    /// # Errors
    /// They cannot be written; what was there stays.
    pub(crate) fn write(&self, pieces: &[Piece<'_>]) -> io::Result<()> {
        if pieces.is_empty() {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        let keys: Vec<u8> = pieces.iter().flat_map(|piece| piece.key.to_le_bytes()).collect();
        let path = self.folder.join(format!("{:032x}{END}", xxh3_128(&keys)));
        let unfinished = self.folder.join(format!("{:032x}{UNFINISHED}", xxh3_128(&keys)));
        let mut to = BufWriter::new(File::create(&unfinished)?);
        let (mut index, mut offset): (Index, u64) = (vec![], 0);
        for piece in pieces {
            to.write_all(piece.bytes)?;
            index.push((piece.key, offset, piece.bytes.len() as u64, xxh3_64(piece.bytes)));
            offset += piece.bytes.len() as u64;
        }
        let record = record::bytes(&index, self.mark)?;
        to.write_all(&record)?;
        to.write_all(&(record.len() as u64).to_le_bytes())?;
        to.flush()?;
        drop(to);
        fs::rename(&unfinished, &path)?;
        let file = File::open(&path)?;
        enter(&mut self.lock(), PieceFile { file, path }, index);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u128, Place>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Reads the piece and returns its checksum.
    fn read(&self, to: &mut [u8]) -> io::Result<u64> {
        let (mut hash, mut at) = (Xxh3::new(), self.offset);
        for part in to.chunks_mut(PART_BYTES) {
            self.file.file.read_exact_at(part, at)?;
            hash.update(part);
            at += part.len() as u64;
        }
        Ok(hash.digest())
    }
}

/// A file's index, if this build wrote it and it is whole.
fn index(path: &Path, mark: u128) -> Option<(File, Index)> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    let end = file.metadata().ok()?.len().checked_sub(8)?;
    let mut len = [0; 8];
    file.read_exact_at(&mut len, end).ok()?;
    let start = end.checked_sub(u64::from_le_bytes(len))?;
    if end - start > LARGEST_RECORD_BYTES {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(end - start).ok()?];
    file.read_exact_at(&mut bytes, start).ok()?;
    Some((file, record::parse(&bytes, mark)?))
}

fn enter(known: &mut HashMap<u128, Place>, file: PieceFile, index: Index) {
    let file = Arc::new(file);
    for (key, offset, len, checksum) in index {
        known.insert(key, Place { file: Arc::clone(&file), offset, len, checksum });
    }
}

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
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

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

/// What gets a part of a piece, with the byte of the piece that it begins at.
pub(crate) type Put<'a, E> = dyn FnMut(usize, &[u8]) -> Result<(), E> + 'a;

/// A file of pieces that is being written.
pub(crate) struct Writer {
    to: BufWriter<File>,
    path: PathBuf,
    unfinished: PathBuf,
    index: Index,
    /// Where the piece that is being written begins, and where the last part ended.
    begun: u64,
    end: u64,
    hash: Xxh3,
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
        self.forget(&place);
        false
    }

    /// Reads the piece of that key, if it is there and has `len` bytes, by parts that fit in `part`; `put` gets each
    /// part with the byte that it begins at. Whether the piece was there and whole: where it was not, what `put` got is
    /// worth nothing.
    ///
    /// # Errors
    /// What `put` answers.
    pub(crate) fn read_in_parts<E>(
        &self,
        key: u128,
        len: usize,
        part: &mut [u8],
        put: &mut Put<'_, E>,
    ) -> Result<bool, E> {
        let place = self.lock().get(&key).cloned();
        let Some(place) = place.filter(|place| place.len == len as u64 && !part.is_empty()) else {
            return Ok(false);
        };
        let (mut hash, mut at, mut read) = (Xxh3::new(), 0, true);
        while at < len && read {
            let bytes = part.len().min(len - at);
            let part = &mut part[..bytes];
            read = place.file.file.read_exact_at(part, place.offset + at as u64).is_ok();
            hash.update(part);
            put(at, part)?;
            at += bytes;
        }
        if read && hash.digest() == place.checksum {
            return Ok(true);
        }
        self.forget(&place);
        Ok(false)
    }

    /// Removes a file of pieces that is damaged, with all that it holds.
    fn forget(&self, place: &Place) {
        self.lock().retain(|_, other| !Arc::ptr_eq(&other.file, &place.file));
        let _ = fs::remove_file(&place.file.path);
    }

    /// Keeps pieces in one more file.
    ///
    /// # Errors
    /// They cannot be written; what was there stays.
    pub(crate) fn write(&self, pieces: &[Piece<'_>]) -> io::Result<()> {
        if pieces.is_empty() {
            return Ok(());
        }
        let keys: Vec<u128> = pieces.iter().map(|piece| piece.key).collect();
        let mut writer = self.writer(&keys)?;
        for piece in pieces {
            writer.append(piece.bytes)?;
            writer.end(piece.key);
        }
        self.keep(writer)
    }

    /// Begins one more file, for pieces of these keys, which come a part after the other.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn writer(&self, keys: &[u128]) -> io::Result<Writer> {
        fs::create_dir_all(&self.folder)?;
        let keys: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        let path = self.folder.join(format!("{:032x}{END}", xxh3_128(&keys)));
        let unfinished = self.folder.join(format!("{:032x}{UNFINISHED}", xxh3_128(&keys)));
        let to = BufWriter::new(File::create(&unfinished)?);
        Ok(Writer { to, path, unfinished, index: vec![], begun: 0, end: 0, hash: Xxh3::new() })
    }

    /// Ends a file of pieces; from now on they are found.
    ///
    /// # Errors
    /// It cannot be written; what was there stays.
    pub(crate) fn keep(&self, writer: Writer) -> io::Result<()> {
        let Writer { mut to, path, unfinished, index, .. } = writer;
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

impl Writer {
    /// Adds to the piece.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn append(&mut self, part: &[u8]) -> io::Result<()> {
        self.to.write_all(part)?;
        self.hash.update(part);
        self.end += part.len() as u64;
        Ok(())
    }

    /// The piece of that key is complete.
    pub(crate) fn end(&mut self, key: u128) {
        self.index.push((key, self.begun, self.end - self.begun, self.hash.digest()));
        self.begun = self.end;
        self.hash = Xxh3::new();
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

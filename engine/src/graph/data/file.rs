//! Files that constants lie in.

use super::Data;
use super::open::{open, open_resolved};
use serde::{Deserialize, Serialize};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Neighbouring bytes of a file.
#[derive(Clone, Debug)]
pub struct FileRange {
    pub(in crate::graph) file: Arc<DataFile>,
    pub(in crate::graph) offset: u64,
    pub(in crate::graph) len: usize,
}

/// A file that is kept open and must stay as it was when it was opened. It is read and never mapped: a file cut
/// short under a mapping would kill the process. Another file put in its place under its name does no harm.
#[derive(Debug)]
pub struct DataFile {
    file: File,
    path: PathBuf,
    pub(in crate::graph) stamp: Stamp,
}

/// What changes when someone writes to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(in crate::graph) struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
}

/// What a file is like: equal only while nobody has written to it or put another in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Likeness {
    stamp: Stamp,
    /// Times of a file's content can be set at will; this one cannot.
    changed: (i64, i64),
}

impl DataFile {
    /// Opens a file and remembers what it is like now.
    ///
    /// # Errors
    /// It cannot be opened or is no regular file.
    pub fn open(path: &Path) -> io::Result<DataFile> {
        DataFile::of(path, open(path)?)
    }

    /// As [`DataFile::open`] of a file that must lie in the folder `within`, links followed.
    ///
    /// # Errors
    /// As [`DataFile::open`], or it lies elsewhere.
    pub fn open_within(path: &Path, within: &Path) -> io::Result<DataFile> {
        let resolved = path.canonicalize()?;
        if !resolved.starts_with(within.canonicalize()?) {
            let reason = format!("it lies outside {}, or a link leads there", within.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        DataFile::of(path, open_resolved(&resolved)?)
    }

    /// As [`DataFile::open`] by a path without links; one that has taken a component's place since is not followed.
    pub(crate) fn open_resolved(path: &Path) -> io::Result<DataFile> {
        DataFile::of(path, open_resolved(path)?)
    }

    fn of(path: &Path, file: File) -> io::Result<DataFile> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        Ok(DataFile { file, path: path.into(), stamp: Stamp::of(&metadata) })
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.stamp.len
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole file.
    pub fn whole(self) -> Data {
        DataFile::all_of(Arc::new(self))
    }

    /// As [`DataFile::whole`] of a file that others read too.
    pub fn all_of(file: Arc<DataFile>) -> Data {
        let len = usize::try_from(file.stamp.len).unwrap_or(usize::MAX);
        Data::File(FileRange { file, offset: 0, len })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is like now, to tell a later start whether it is still the same.
    ///
    /// # Errors
    /// The system does not say.
    pub fn likeness(&self) -> io::Result<Likeness> {
        let metadata = self.file.metadata()?;
        Ok(Likeness { stamp: Stamp::of(&metadata), changed: (metadata.ctime(), metadata.ctime_nsec()) })
    }

    /// The hash of all its bytes.
    ///
    /// # Errors
    /// It cannot be read, or someone has written to it since it was opened.
    pub fn content(&self) -> io::Result<u128> {
        const PIECE_BYTES: u64 = 1 << 18;
        let (mut hash, mut at) = (Xxh3::new(), 0);
        let mut piece = vec![0; PIECE_BYTES.min(self.len()) as usize];
        while at < self.len() {
            let part = &mut piece[..PIECE_BYTES.min(self.len() - at) as usize];
            self.file.read_exact_at(part, at)?;
            hash.update(part);
            at += part.len() as u64;
        }
        // Looks at the stamp.
        self.read(at, &mut [])?;
        Ok(hash.digest128())
    }

    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let read = self.file.read_exact_at(to, offset);
        // Looked at afterwards, so that a change during the reading is seen too.
        if Stamp::of(&self.file.metadata()?) != self.stamp {
            return Err(io::Error::other(format!(
                "{} has changed since the model was loaded",
                self.path.display()
            )));
        }
        read
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

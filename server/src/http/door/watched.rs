//! Files that are read again when they change. They are looked at once a second and not listened to: notices of the
//! file system do not cross every container mount, and secrets are commonly replaced through a link.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often files are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// A file, and the state in which it was last read.
pub(super) struct Watched {
    path: PathBuf,
    read: Option<Stamp>,
}

/// Tells one state of a file from another without reading it: inode, length, last write and last change.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl Watched {
    pub(super) fn new(path: &Path) -> Watched {
        Watched { path: path.into(), read: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is no longer as it was read, or there again, or gone.
    pub(super) fn changed(&self) -> bool {
        self.read != self.stamp()
    }

    /// Its text, of at most `most` bytes.
    ///
    /// # Errors
    /// It cannot be read, or is longer.
    pub(super) fn read(&mut self, most: u64) -> io::Result<Vec<u8>> {
        // Taken before, so that what is written meanwhile is seen as a change.
        self.read = self.stamp();
        let length = fs::metadata(&self.path)?.len();
        if length > most {
            let message = format!("it has {length} bytes, more than the {most} that it may have");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        fs::read(&self.path)
    }

    /// Warns where every user of the machine may read the file, which holds a secret.
    pub(super) fn warn_if_open_to_all(&self, key: &str) {
        const OTHERS_READ: u32 = 0o004;
        if fs::metadata(&self.path).is_ok_and(|metadata| metadata.mode() & OTHERS_READ != 0) {
            let file = self.path.display();
            tracing::warn!(%file, "every user of this machine may read the file of {key}; take that right from others");
        }
    }

    fn stamp(&self) -> Option<Stamp> {
        let of = |file: Metadata| {
            let (written, changed) = ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
            (file.dev(), file.ino(), file.len(), written, changed)
        };
        fs::metadata(&self.path).ok().map(of)
    }
}

/// Calls `look` once a second until `stop`, beside the async threads.
pub(crate) async fn follow(look: impl Fn() + Send + Sync + 'static, stop: CancellationToken) {
    let look = Arc::new(look);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        let look = Arc::clone(&look);
        let _ = tokio::task::spawn_blocking(move || look()).await;
    }
}

//! Files opened with care: a pipe in a model's folder must not stop the thread that opens it, and what was found to lie in
//! a folder must not be exchanged for a link before it is opened.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens without waiting: the other end of a pipe may never come.
pub(super) fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::NONBLOCK)
}

/// As [`open`], by a path without links: none is followed.
pub(super) fn open_resolved(path: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, Mode, ResolveFlags, openat2};
        use rustix::io::Errno;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // Older than the call itself: the kernel, or the sandbox around the process.
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return Ok(File::from(opened?)),
        }
    }
    // Here a link is seen only in the place of the file itself.
    open_with(path, OFlags::NONBLOCK | OFlags::NOFOLLOW)
}

fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

//! What a scan finds, and what differs from the time before.

use super::ModelSettings;
use std::cmp::Ordering;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// A file written to less than this ago may still be being written.
const SETTLE: Duration = Duration::from_secs(1);

/// A model, or what was meant to be one.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The name it is asked for by.
    pub(crate) name: String,
    /// The versions that can be served, the oldest first; none when the whole model cannot be.
    pub(crate) versions: Vec<FoundVersion>,
    /// The settings, those of no file being the defaults, or why they cannot be used.
    pub(crate) settings: Result<ModelSettings, String>,
    /// Which state of the settings file was read, where there is one.
    pub(crate) settings_fingerprint: Option<Fingerprint>,
    /// Why something here cannot be served, for people; versions that are listed still can.
    pub(crate) problem: Option<String>,
}

/// One version of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundVersion {
    /// Its number, from 1.
    pub(crate) version: u64,
    /// Its ONNX file.
    pub(crate) file: PathBuf,
    /// Which state of the file was seen.
    pub(crate) fingerprint: Fingerprint,
    /// The states of the files beside it that may hold constants of its.
    pub(crate) beside: Vec<Fingerprint>,
}

/// Tells one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Time of the last write, in nanoseconds since 1970.
    pub(crate) modified_ns: i128,
    /// Length in bytes.
    pub(crate) length_bytes: u64,
    /// Number of the file in its file system.
    pub(crate) inode: u64,
}

/// What happened to a model between two scans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was not there before.
    Added(String),
    /// It is gone.
    Removed(String),
    /// A version, a file, the settings or the problem differs.
    Changed(String),
}

/// What was added, removed and changed from one scan to the next, in name order.
pub(crate) fn changes(old: &[Found], new: &[Found]) -> Vec<Change> {
    let mut changes = Vec::new();
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some(before), Some(after)) => before.name.cmp(&after.name),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return changes,
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { new.next() } else { None };
        changes.extend(match (before, after) {
            (Some(before), Some(after)) => before.differs(after).then(|| Change::Changed(after.name.clone())),
            (Some(before), None) => Some(Change::Removed(before.name.clone())),
            (None, after) => after.map(|after| Change::Added(after.name.clone())),
        });
    }
}

impl Found {
    /// The version that a request without one gets: the newest.
    pub(crate) fn default_version(&self) -> Option<&FoundVersion> {
        self.versions.last()
    }

    /// Whether every file has been left alone for a second, so that none is still being written.
    pub(crate) fn settled(&self, now: SystemTime) -> bool {
        let versions = self
            .versions
            .iter()
            .flat_map(|version| std::iter::once(&version.fingerprint).chain(&version.beside));
        versions.chain(&self.settings_fingerprint).all(|fingerprint| fingerprint.settled(now))
    }

    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            versions: Vec::new(),
            settings: Ok(ModelSettings::default()),
            settings_fingerprint: None,
            problem: None,
        }
    }

    /// Nothing of this model can be served.
    pub(super) fn refuse(&mut self, problem: String) {
        self.versions.clear();
        self.problem = Some(problem);
    }

    fn differs(&self, other: &Self) -> bool {
        // Settings of one fingerprint are equal, and those with a NaN would never compare so.
        self.versions != other.versions
            || self.settings_fingerprint != other.settings_fingerprint
            || self.settings.as_ref().err() != other.settings.as_ref().err()
            || self.problem != other.problem
    }
}

impl Fingerprint {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            modified_ns: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
            length_bytes: metadata.len(),
            inode: metadata.ino(),
        }
    }

    fn settled(&self, now: SystemTime) -> bool {
        let now_ns = match now.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => since.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        };
        // The distance and not the age: a device without a clock battery sees files from its future, and
        // those must not wait until it catches up.
        (now_ns - self.modified_ns).unsigned_abs() >= SETTLE.as_nanos()
    }
}

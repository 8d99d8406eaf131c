//! What lies in the folder of models.
//!
//! A model is `NAME.onnx`, `NAME/model.onnx` (version 1) or `NAME/<n>/model.onnx` with n from 1, the largest
//! being the default; a folder may hold a `model.toml`. Hidden entries, other files, and folders whose name
//! begins with `_` are not models. Nothing is read that links lead to outside the folder.
//!
//! ONNX allows constants in files beside the model. Which they are stands in the model; here all files of a version's own
//! folder count, and of a bare `NAME.onnx` those that begin with `NAME`: where one of them changes, the model has.

use super::{Fingerprint, Found, FoundVersion, ModelSettings};
use plimsoll_engine::graph::DataFile;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// The model file of a folder.
const MODEL: &str = "model.onnx";

/// The settings file of a folder.
const SETTINGS: &str = "model.toml";

/// How far down a model's folder is looked at, and how many of its files.
const MOST_DEPTH: usize = 3;
const MOST_FILES: usize = 1 << 14;

/// Largest settings file in bytes: room for tens of thousands of labels.
const MAX_SETTINGS: u64 = 4 << 20;

/// Everything in the folder that is or was meant to be a model, in name order.
///
/// # Errors
/// The folder itself cannot be listed. What is wrong with an entry is in [`Found::problem`].
pub(crate) fn scan(root: &Path) -> io::Result<Vec<Found>> {
    scan_for(root, |_| true)
}

/// The model of that name, without a look into the others' folders.
///
/// # Errors
/// As [`scan`].
pub(crate) fn scan_one(root: &Path, name: &str) -> io::Result<Option<Found>> {
    let bears = |file: &str| file == name || stem(file) == Some(name);
    Ok(scan_for(root, bears)?.into_iter().find(|found| found.name == name))
}

fn scan_for(root: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<Found>> {
    let real_root = root.canonicalize()?;
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if wanted(&entry.file_name().to_string_lossy()) {
            found.extend(look_at(&entry, root, &real_root));
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.dedup_by(|second, first| {
        let twice = second.name == first.name;
        if twice {
            first.refuse(format!("both {0}.onnx and {0}/ claim this name: remove one", second.name));
        }
        twice
    });
    Ok(found)
}

impl Found {
    /// Adds a version, or the problem with its file.
    fn add_version(&mut self, version: u64, file: PathBuf, root: &Path, real_root: &Path) {
        match inspect(&file, root, real_root) {
            Ok(metadata) => {
                let (fingerprint, beside) = (Fingerprint::of(&metadata), beside(&file));
                self.versions.push(FoundVersion { version, file, fingerprint, beside });
            }
            Err(problem) => self.problem = Some(problem),
        }
    }

    fn add_folder(&mut self, folder: &Path, root: &Path, real_root: &Path) {
        self.read_settings(&folder.join(SETTINGS), root, real_root);
        let numbered = match numbered(folder) {
            Ok(numbered) => numbered,
            Err(error) => return self.refuse(format!("{}/ cannot be listed: {error}", self.name)),
        };
        let single = folder.join(MODEL);
        match (single.symlink_metadata().is_ok(), numbered.is_empty()) {
            (true, true) => self.add_version(1, single, root, real_root),
            (true, false) => self.refuse(format!(
                "{0}/ has both {MODEL} and numbered versions: move {MODEL} into a version's folder",
                self.name
            )),
            (false, true) => {
                self.refuse(format!("{0}/ has neither {MODEL} nor a version such as 1/{MODEL}", self.name));
            }
            (false, false) => {
                for (version, folder) in numbered {
                    self.add_version(version, folder.join(MODEL), root, real_root);
                }
            }
        }
    }

    fn read_settings(&mut self, file: &Path, root: &Path, real_root: &Path) {
        if file.symlink_metadata().is_err() {
            return;
        }
        self.settings = inspect(file, root, real_root).and_then(|metadata| {
            self.settings_fingerprint = Some(Fingerprint::of(&metadata));
            let shown = shown(file, root);
            let unreadable = |error: &dyn std::fmt::Display| format!("{shown} cannot be read: {error}");
            let file = DataFile::open_within(file, root).map_err(|error| unreadable(&error))?;
            if file.len() > MAX_SETTINGS {
                return Err(format!("{shown} has {} bytes, more than {MAX_SETTINGS}", file.len()));
            }
            let read = file.whole().load().map_err(|error| unreadable(&error))?;
            let text = std::str::from_utf8(&read).map_err(|error| unreadable(&error))?;
            ModelSettings::read(text, Path::new(&shown)).map_err(|error| error.to_string())
        });
    }
}

/// What this entry of the folder is, if it is meant to be a model at all.
fn look_at(entry: &DirEntry, root: &Path, real_root: &Path) -> Option<Found> {
    let path = entry.path();
    let file_name = entry.file_name().to_string_lossy().into_owned();
    if file_name.starts_with('.') {
        return None;
    }
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        // What vanished since the listing is not there; a link that leads nowhere is.
        Err(error) => {
            path.symlink_metadata().ok().filter(|_| !file_name.starts_with('_'))?;
            let mut found = Found::new(stem(&file_name).unwrap_or(&file_name).to_owned());
            found.refuse(format!("{file_name} cannot be read: {error}"));
            return Some(found);
        }
    };
    let folder = metadata.is_dir();
    let name = if folder { Some(file_name.as_str()) } else { stem(&file_name) };
    let name = name.filter(|name| !(folder && name.starts_with('_')))?;
    let mut found = Found::new(name.to_owned());
    if !is_name(name) {
        found.refuse(format!("`{name}` is no name for a model: letters, digits, `.`, `_` and `-`, the first of them a letter or digit"));
    } else if folder {
        found.add_folder(&path, root, real_root);
    } else {
        found.add_version(1, path, root, real_root);
    }
    Some(found)
}

/// The folders inside whose name is a version, the oldest first.
fn numbered(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut numbered = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // `01` and `+1` would be a second 1.
        let canonical = name.starts_with(|first: char| ('1'..='9').contains(&first));
        if let (true, Ok(version)) = (canonical && path.is_dir(), name.parse()) {
            numbered.push((version, path));
        }
    }
    numbered.sort_unstable();
    Ok(numbered)
}

/// The states of the files that may hold constants of this model, in the order of their paths.
fn beside(model: &Path) -> Vec<Fingerprint> {
    let (Some(folder), Some(own)) = (model.parent(), model.file_name().and_then(|name| name.to_str())) else {
        return vec![];
    };
    let mut files = vec![];
    if own == MODEL {
        list(folder, MOST_DEPTH, &mut files);
        files.retain(|file| file != model && *file != folder.join(SETTINGS));
    } else {
        list(folder, 0, &mut files);
        let prefix = stem(own).unwrap_or(own);
        files.retain(|file| {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let rest = name.strip_prefix(prefix).unwrap_or_default();
            rest.starts_with(['.', '_', '-']) && stem(name).is_none()
        });
    }
    files.sort_unstable();
    let metadata = files.iter().filter_map(|file| file.metadata().ok()).filter(Metadata::is_file);
    metadata.map(|metadata| Fingerprint::of(&metadata)).collect()
}

/// Adds the files of a folder, hidden ones aside, and of the folders inside down to `depth`.
fn list(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if files.len() == MOST_FILES {
            return;
        }
        let inner = entry.file_type().is_ok_and(|kind| kind.is_dir());
        match entry.file_name().as_encoded_bytes().first() {
            Some(b'.') => {}
            _ if !inner => files.push(entry.path()),
            _ if depth > 0 => list(&entry.path(), depth - 1, files),
            _ => {}
        }
    }
}

/// The metadata of a plain file that lies under the root, links followed.
fn inspect(file: &Path, root: &Path, real_root: &Path) -> Result<Metadata, String> {
    let shown = shown(file, root);
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("{shown} is missing"),
        _ => format!("{shown} cannot be read: {error}"),
    };
    let real = file.canonicalize().map_err(unreadable)?;
    if !real.starts_with(real_root) {
        return Err(format!("{shown} is a link to outside the folder of models"));
    }
    let metadata = real.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(format!("{shown} is not a plain file"));
    }
    Ok(metadata)
}

/// A file as errors name it: relative to the folder of models.
fn shown(file: &Path, root: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}

fn stem(file_name: &str) -> Option<&str> {
    file_name.strip_suffix(".onnx")
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|other| other.is_ascii_alphanumeric() || "._-".contains(other))
}

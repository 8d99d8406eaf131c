//! Data of constants that lies in files beside the model's.

use super::tract::pb::TensorProto;
use crate::graph::{Data, DataFile};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Files beside a model's, each opened once.
pub(super) struct External<'a> {
    folder: Option<&'a Path>,
    within: Option<&'a Path>,
    /// Files that an earlier import opened: they are read as they were, whatever lies in their places now.
    known: &'a [Arc<DataFile>],
    open: HashMap<PathBuf, Data>,
}

impl<'a> External<'a> {
    /// `folder` is where the data may lie, and nowhere else; the folder itself may only lie in `within`.
    pub(super) fn new(
        folder: Option<&'a Path>,
        within: Option<&'a Path>,
        known: &'a [Arc<DataFile>],
    ) -> External<'a> {
        External { folder, within, known, open: HashMap::new() }
    }

    /// The files that were opened.
    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<DataFile>> {
        self.open.values().filter_map(Data::file)
    }

    /// The data of a tensor that has it elsewhere.
    ///
    /// # Errors
    /// It is said to lie outside the folder, is not there, or is shorter than is said.
    pub(super) fn data(&mut self, tensor: &TensorProto) -> Result<Data, String> {
        let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key);
        let number = |key: &str| match entry(key).map(|entry| entry.value.parse::<usize>()) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(format!("its {key} is no number")),
        };
        let location = &entry("location").ok_or("it says not where")?.value;
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        let path = self.inside(location)?;
        let file = match self.open.get(&path) {
            Some(file) => file,
            None => {
                let known = self.known.iter().find(|file| file.path() == path).map(Arc::clone);
                let opened = known.map_or_else(|| DataFile::open_resolved(&path).map(Arc::new), Ok);
                let file = opened.map_err(|error| format!("`{location}`: {error}"))?;
                self.open.entry(path).or_insert(DataFile::all_of(file))
            }
        };
        let length = length.unwrap_or(file.len().saturating_sub(offset));
        file.slice(offset, length).ok_or_else(|| {
            format!("`{location}` has {} bytes, too few for {length} from {offset} on", file.len())
        })
    }

    /// The file at `location`, which must be in the folder, links followed.
    fn inside(&self, location: &str) -> Result<PathBuf, String> {
        let folder = self.folder.ok_or("it is in a file beside the model, and the model has no folder")?;
        let relative = Path::new(location);
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !relative.components().all(plain) {
            return Err(format!("`{location}` is not inside the model's folder"));
        }
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let real = |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
        let folder = real(folder)?;
        let written = folder.join(relative);
        if self.known.iter().any(|file| file.path() == written) {
            return Ok(written);
        }
        let path = written.canonicalize();
        let path = path.map_err(|error| format!("`{location}`: {error}"))?;
        // The model's folder may have become a link since the model was found in it.
        let within = self.within.map_or_else(|| Ok(folder.clone()), real)?;
        if !path.starts_with(&folder) || !path.starts_with(&within) {
            return Err(format!("`{location}` is not inside the model's folder"));
        }
        Ok(path)
    }
}

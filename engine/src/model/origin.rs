//! Where a model's graphs come from: what is kept of an earlier start, or its file, imported once that is needed.

use crate::arena::Arena;
use crate::cache::{Cache, Pieces, Shelf};
use crate::device::Kept;
use crate::error::Error;
use crate::fuse::Preferences;
use crate::graph::{DataFile, Graph, GraphRecord, Likeness};
use crate::import::{Grant, Import, Narrowing, Signature};
use crate::slab::{Kind, Reservation};
use crate::tensor::Shape;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use xxhash_rust::xxh3::xxh3_128;

/// A model's file and how it is read.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The ONNX file.
    pub path: &'a Path,
    /// The folder that it must lie in, with the files that hold its constants, links followed; `None` lets them lie
    /// anywhere.
    pub within: Option<&'a Path>,
    /// What is settled before any request.
    pub narrowing: &'a Narrowing,
    /// Where imported graphs and packed weights are kept between starts; `None` keeps nothing.
    pub cache: Option<&'a Arc<Cache>>,
}

impl<'a> Source<'a> {
    /// A file as it is, of which nothing is kept.
    pub fn file(path: &'a Path) -> Source<'a> {
        static AS_IT_IS: Narrowing = Narrowing { dims: BTreeMap::new(), constants: BTreeMap::new() };
        Source { path, within: None, narrowing: &AS_IT_IS, cache: None }
    }
}

/// A [`Source`] under the ledger.
pub(super) struct Origin {
    path: PathBuf,
    within: Option<PathBuf>,
    narrowing: Narrowing,
    owner: String,
    arena: Arc<Arena>,
    signature: Arc<Signature>,
    imported: Mutex<Option<Arc<Imported>>>,
    shelved: Option<Shelved>,
}

/// An import, and what it holds.
pub(super) struct Imported {
    pub(super) import: Import,
    _held: Reservation,
}

/// What is kept of the model.
struct Shelved {
    cache: Arc<Cache>,
    shelf: Shelf,
    pieces: Pieces,
    files: Vec<Arc<DataFile>>,
}

/// The first record of a shelf: what the others belong to.
#[derive(Serialize, Deserialize)]
struct Head {
    narrowing: String,
    files: Vec<FileRecord>,
    signature: Signature,
}

#[derive(Serialize, Deserialize)]
struct FileRecord {
    path: PathBuf,
    likeness: Likeness,
    content: u128,
}

const HEAD: &str = "head";
const GRAPH: &str = ".graph";

impl Origin {
    /// Looks for what is kept of the model, and imports its file where that is nothing.
    ///
    /// # Errors
    /// The file cannot be imported, or the import does not fit.
    pub(super) fn open(source: &Source<'_>, owner: &str, arena: &Arc<Arena>) -> Result<Origin, Error> {
        let Source { path, within, narrowing, cache } = *source;
        let mut origin = Origin {
            path: path.into(),
            within: within.map(PathBuf::from),
            narrowing: narrowing.clone(),
            owner: owner.into(),
            arena: Arc::clone(arena),
            signature: Arc::default(),
            imported: Mutex::default(),
            shelved: None,
        };
        // A file that is not there is found out below, by the import.
        let name = path.canonicalize().ok().map(|path| path.to_string_lossy().into_owned());
        let shelf = cache.zip(name).map(|(cache, name)| (cache, cache.shelf(&name)));
        if let Some((cache, shelf)) = &shelf
            && let Some((signature, files)) = still_valid(shelf, narrowing, within)
        {
            origin.signature = Arc::new(signature.signature.clone());
            origin.shelved = Some(Shelved::new(cache, shelf, &signature, files));
            return Ok(origin);
        }
        let imported = origin.import()?;
        origin.signature = Arc::new(imported.import.signature().clone());
        if let Some((cache, shelf)) = &shelf {
            shelf.clear();
            let kept = Head::of(&imported.import, narrowing).and_then(|head| {
                shelf.put(HEAD, &head)?;
                Ok(Shelved::new(cache, shelf, &head, imported.import.files().to_vec()))
            });
            origin.shelved = kept.map_err(|error| origin.report(cache, &error)).ok();
        }
        Ok(origin)
    }

    /// What the model takes and gives.
    pub(super) fn signature(&self) -> &Arc<Signature> {
        &self.signature
    }

    /// The import; made now if nothing asked for it before.
    ///
    /// # Errors
    /// As for [`Origin::open`].
    pub(super) fn import(&self) -> Result<Arc<Imported>, Error> {
        let mut imported = self.imported.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(imported) = &*imported {
            return Ok(Arc::clone(imported));
        }
        // What was found in the cache belongs to the files as they were then.
        let known = self.shelved.as_ref().map_or(&[][..], |shelved| &shelved.files);
        let import =
            Import::again(&self.path, self.within.as_deref(), known, &self.narrowing, &self.grant())?;
        let held = self.arena.reserve(&self.owner, Kind::Import, import.weights_bytes() as u64)?;
        let made = Arc::new(Imported { import, _held: held });
        *imported = Some(Arc::clone(&made));
        Ok(made)
    }

    /// What the import's work takes is staging in the ledger.
    pub(super) fn grant(&self) -> Grant {
        let largest = self.arena.ledger().ceiling();
        let (arena, owner) = (Arc::clone(&self.arena), self.owner.clone());
        Grant::new(largest, move |bytes| Ok(Box::new(arena.reserve(&owner, Kind::Staging, bytes)?)))
    }

    /// Whether something needed the import.
    pub(super) fn was_imported(&self) -> bool {
        self.imported.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Bytes that the import holds; 0 while nothing needed one.
    pub(super) fn imported_bytes(&self) -> usize {
        let imported = self.imported.lock().unwrap_or_else(PoisonError::into_inner);
        imported.as_ref().map_or(0, |imported| imported.import.weights_bytes())
    }

    /// The packed constants that are kept.
    pub(super) fn kept(&self) -> Option<Kept<'_>> {
        let Shelved { cache, pieces, files, .. } = self.shelved.as_ref()?;
        Some(Kept { cache, pieces, files })
    }

    /// The fused graph for these shapes, if it is kept.
    pub(super) fn kept_graph(&self, shapes: &[Shape], preferences: &Preferences) -> Option<Graph> {
        let shelved = self.shelved.as_ref()?;
        shelved.shelf.get::<GraphRecord>(&graph_name(shapes, preferences))?.graph(&shelved.files)
    }

    /// What is to be kept of a fused graph; `None` where nothing is kept.
    pub(super) fn record(&self, graph: &Graph) -> Option<GraphRecord> {
        GraphRecord::of(graph, &self.shelved.as_ref()?.files)
    }

    /// Keeps the fused graph for these shapes, unless there are `most` of them.
    pub(super) fn keep_graph(
        &self,
        shapes: &[Shape],
        preferences: &Preferences,
        record: &GraphRecord,
        most: usize,
    ) {
        let Some(Shelved { cache, shelf, .. }) = &self.shelved else { return };
        if shelf.count(GRAPH) < most
            && let Err(error) = shelf.put(&graph_name(shapes, preferences), record)
        {
            self.report(cache, &error);
        }
    }

    fn report(&self, cache: &Cache, error: &io::Error) {
        cache.report(&format!("nothing is kept of {} for the next start: {error}", self.path.display()));
    }
}

impl Shelved {
    fn new(cache: &Arc<Cache>, shelf: &Shelf, head: &Head, files: Vec<Arc<DataFile>>) -> Shelved {
        // What a model that has since changed still writes is marked as that model's, and not believed here.
        let contents: Vec<u8> = head.files.iter().flat_map(|file| file.content.to_le_bytes()).collect();
        let shelf = shelf.of(&[contents.as_slice(), head.narrowing.as_bytes()].concat());
        Shelved { cache: Arc::clone(cache), pieces: shelf.pieces(), shelf, files }
    }
}

impl Head {
    fn of(import: &Import, narrowing: &Narrowing) -> io::Result<Head> {
        let files = import.files().iter().map(|file| {
            Ok(FileRecord { path: file.path().into(), likeness: file.likeness()?, content: file.content()? })
        });
        let files = files.collect::<io::Result<_>>()?;
        Ok(Head { narrowing: format!("{narrowing:?}"), files, signature: import.signature().clone() })
    }
}

/// The head of a shelf and its files, if they are still what they were: by what the system says of them, or else by
/// their contents.
fn still_valid(
    shelf: &Shelf,
    narrowing: &Narrowing,
    within: Option<&Path>,
) -> Option<(Head, Vec<Arc<DataFile>>)> {
    let mut head = shelf.get::<Head>(HEAD).filter(|head| head.narrowing == format!("{narrowing:?}"))?;
    let (mut files, mut fresh) = (vec![], false);
    for known in &mut head.files {
        let opened = within
            .map_or_else(|| DataFile::open(&known.path), |within| DataFile::open_within(&known.path, within));
        let file = opened.ok()?;
        let likeness = file.likeness().ok()?;
        if likeness != known.likeness {
            if file.content().ok()? != known.content {
                return None;
            }
            (known.likeness, fresh) = (likeness, true);
        }
        files.push(Arc::new(file));
    }
    if fresh {
        // Else the contents are read again at the next start.
        let _ = shelf.put(HEAD, &head);
    }
    Some((head, files))
}

fn graph_name(shapes: &[Shape], preferences: &Preferences) -> String {
    let text = format!("{shapes:?} {preferences:?}");
    format!("{:032x}{GRAPH}", xxh3_128(text.as_bytes()))
}

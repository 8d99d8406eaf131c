//! Which requests of a model can run together, and the programs for them.
//!
//! Requests whose shapes agree beyond the first axis are a group. Its programs take 1, 2, 4 … rows up to `max_batch`; they
//! are prepared beside the traffic, and a group is open once two of them have shown that every output has as many rows as
//! the inputs. Until then, and where that is not so, requests run alone.

use super::loader::Loader;
use crate::schedule::Runs;
use lru::LruCache;
use plimsoll_engine::error::Error;
use plimsoll_engine::model::Model;
use plimsoll_engine::program::Program;
use plimsoll_engine::tensor::{Shape, Tensor};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Groups kept; the least recently used leaves for the next.
const GROUPS: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// The groups of one model.
pub(super) struct Batches {
    max_batch: usize,
    /// By the shapes of the inputs without their first axes.
    groups: Mutex<LruCache<Vec<Shape>, Arc<Group>>>,
}

/// Requests that can run together.
struct Group {
    number: u64,
    /// `None` until it is open.
    runs: Mutex<Option<Arc<Runs>>>,
}

impl Batches {
    /// No groups yet; `max_batch` is at least 2.
    pub(super) fn new(max_batch: usize) -> Batches {
        Batches { max_batch, groups: Mutex::new(LruCache::new(GROUPS)) }
    }

    /// Programs that the groups can hold together.
    pub(super) fn programs(max_batch: usize) -> usize {
        GROUPS.get() * (1 + sizes(max_batch).count())
    }

    /// The programs for these inputs where they are open for so many rows; a group that is seen for the first time is
    /// opened by the loader, beside the traffic.
    pub(super) fn runs(
        &self,
        inputs: &[Tensor],
        model: &Arc<Model>,
        loader: &Loader,
    ) -> Option<(Arc<Runs>, usize)> {
        let (rows, rests) = rows(inputs.iter().map(Tensor::shape))?;
        if rows == 0 || rows > self.max_batch {
            return None;
        }
        let known = self.groups().get(&rests).cloned();
        if let Some(group) = known {
            let runs = group.runs().clone()?;
            return runs.covering(rows).is_some().then_some((runs, rows));
        }
        let group = self.group(&rests);
        let (model, max_batch) = (Arc::clone(model), self.max_batch);
        loader.begin(move || group.open(&model, max_batch, &rests));
        None
    }

    /// Opens the group of these shapes now, if they have rows at all.
    pub(super) fn prepare(&self, shapes: &[Shape], model: &Model) {
        if let Some((_, rests)) = rows(shapes.iter().map(|shape| shape.as_slice())) {
            self.group(&rests).open(model, self.max_batch, &rests);
        }
    }

    /// Forgets all groups and so lets their programs go; whether there were any.
    pub(super) fn clear(&self) -> bool {
        let mut groups = self.groups();
        let any = !groups.is_empty();
        groups.clear();
        any
    }

    fn group(&self, rests: &[Shape]) -> Arc<Group> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let made = || Group { number: NEXT.fetch_add(1, Ordering::Relaxed), runs: Mutex::default() };
        Arc::clone(self.groups().get_or_insert(rests.to_vec(), || Arc::new(made())))
    }

    fn groups(&self) -> MutexGuard<'_, LruCache<Vec<Shape>, Arc<Group>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group {
    /// Prepares programs of more and more rows, as far as lanes and ceiling allow.
    fn open(&self, model: &Model, max_batch: usize, rests: &[Shape]) {
        let mut programs: Vec<(usize, Arc<Program>)> = vec![];
        for rows in sizes(max_batch) {
            let program = match model.program(&with_rows(rests, rows)) {
                Ok(program) => program,
                Err(error) => {
                    let most = programs.last().map_or(1, |(rows, _)| *rows);
                    self.stops(model, most, max_batch, &error);
                    return;
                }
            };
            if program.rows() != Some(rows) {
                tracing::warn!(
                    model = program.owner(),
                    max_batch,
                    "requests run one by one: not every output has as many rows as the inputs"
                );
                *self.runs() = None;
                return;
            }
            programs.push((rows, program));
            if programs.len() > 1 {
                *self.runs() = Some(Arc::new(Runs::shared(self.number, programs.iter().cloned())));
            }
        }
    }

    fn stops(&self, model: &Model, most: usize, max_batch: usize, why: &Error) {
        tracing::warn!(model = model.owner(), max_batch, most, %why, "larger batches are not run");
    }

    fn runs(&self) -> MutexGuard<'_, Option<Arc<Runs>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sizes of batches: powers of two below `max_batch`, and that.
fn sizes(max_batch: usize) -> impl Iterator<Item = usize> {
    let powers = std::iter::successors(Some(1usize), |size| size.checked_mul(2));
    powers.take_while(move |size| *size < max_batch).chain([max_batch])
}

/// The size of the first axes, where all have one and agree, and the shapes without them.
fn rows<'a>(shapes: impl Iterator<Item = &'a [usize]>) -> Option<(usize, Vec<Shape>)> {
    let (mut rows, mut rests) = (None, vec![]);
    for shape in shapes {
        let (first, rest) = shape.split_first()?;
        if rows.is_some_and(|rows| rows != *first) {
            return None;
        }
        rows = Some(*first);
        rests.push(Shape::from_slice(rest));
    }
    Some((rows?, rests))
}

fn with_rows(rests: &[Shape], rows: usize) -> Vec<Shape> {
    let with = |rest: &Shape| std::iter::once(rows).chain(rest.iter().copied()).collect();
    rests.iter().map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_double_up_to_the_largest() {
        let all = |max| sizes(max).collect::<Vec<_>>();
        assert_eq!((all(1), all(2), all(12)), (vec![1], vec![1, 2], vec![1, 2, 4, 8, 12]));
    }

    #[test]
    fn shapes_have_rows_where_their_first_axes_agree() {
        let of = |shapes: &[&[usize]]| rows(shapes.iter().copied()).map(|(rows, _)| rows);
        assert_eq!(of(&[&[3, 4], &[3]]), Some(3));
        assert_eq!(of(&[&[3, 4], &[2]]), None);
        assert_eq!((of(&[&[]]), of(&[])), (None, None), "no axis, no input");
        assert_eq!(
            with_rows(&rows([&[3, 4][..], &[3]].into_iter()).unwrap().1, 8),
            [Shape::from_slice(&[8, 4]), Shape::from_slice(&[8])]
        );
    }
}

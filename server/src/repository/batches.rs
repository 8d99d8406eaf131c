//! Which requests of a model can run together, and the programs for them.
//!
//! Requests whose shapes agree beyond the first axis are a group. Its programs take 1, 2, 4 … rows up to `max_batch`; from
//! the second request on they are prepared beside the traffic, one at a time, and a group is open once two of them have
//! shown that every output has as many rows as the inputs. Until then, and where that is not so, requests run alone.

use super::loader::Loader;
use crate::schedule::{Runs, Services};
use lru::LruCache;
use plimsoll_engine::error::Error;
use plimsoll_engine::model::Model;
use plimsoll_engine::program::Program;
use plimsoll_engine::tensor::Shape;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Groups kept; the least recently used leaves for the next.
const GROUPS: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// So long after a lack of memory a group is tried again.
const LATER: Duration = Duration::from_secs(10);

/// The groups of one model.
pub(super) struct Batches {
    max_batch: usize,
    /// By the shapes of the inputs without their first axes.
    groups: Mutex<LruCache<Vec<Shape>, Arc<Group>>>,
    /// Whether an output was found that has not as many rows as the inputs.
    apart: Arc<AtomicBool>,
}

/// Requests that can run together.
struct Group {
    number: u64,
    rests: Vec<Shape>,
    max_batch: usize,
    services: Arc<Services>,
    apart: Arc<AtomicBool>,
    state: Mutex<State>,
}

struct State {
    /// Programs that are ready, each with its rows.
    programs: Vec<(usize, Arc<Program>)>,
    /// Those, once it is open.
    runs: Option<Arc<Runs>>,
    /// When the next program may be prepared; `None` while one is, and once all are.
    due: Option<Instant>,
}

impl Batches {
    /// No groups yet; `max_batch` is at least 2.
    pub(super) fn new(max_batch: usize) -> Batches {
        Batches { max_batch, groups: Mutex::new(LruCache::new(GROUPS)), apart: Arc::default() }
    }

    /// Programs that the groups can hold together.
    pub(super) fn programs(max_batch: usize) -> usize {
        GROUPS.get() * (1 + sizes(max_batch).count())
    }

    /// The programs for these inputs where they are open for so many rows. What is missing of them is prepared by the
    /// loader, beside the traffic, once a second request asks.
    pub(super) fn runs(
        &self,
        shapes: &[Shape],
        services: impl FnOnce() -> Arc<Services>,
        model: &Arc<Model>,
        loader: &Loader,
    ) -> Option<(Arc<Runs>, usize)> {
        if self.apart.load(Ordering::Relaxed) {
            return None;
        }
        let (rows, rests) = self.rows(shapes)?;
        let known = self.groups().get(&rests).cloned();
        let Some(group) = known else {
            // Many shapes are seen once.
            self.group(rests, &services());
            return None;
        };
        group.prepare_next(model, loader);
        Some((group.open(rows)?, rows))
    }

    /// As [`Batches::runs`], and leaves everything as it is.
    pub(super) fn open(&self, shapes: &[Shape]) -> Option<(Arc<Runs>, usize)> {
        let (rows, rests) = self.rows(shapes)?;
        let group = self.groups().get(&rests).cloned()?;
        Some((group.open(rows)?, rows))
    }

    /// Rows, where they are not too many, and the shapes without them.
    fn rows(&self, shapes: &[Shape]) -> Option<(usize, Vec<Shape>)> {
        let found = rows(shapes.iter().map(|shape| shape.as_slice()));
        found.filter(|(rows, _)| (1..=self.max_batch).contains(rows))
    }

    /// Opens the group of these shapes now, if they have rows at all.
    pub(super) fn prepare(&self, shapes: &[Shape], services: &Arc<Services>, model: &Model) {
        if let Some((_, rests)) = rows(shapes.iter().map(|shape| shape.as_slice())) {
            let group = self.group(rests, services);
            while group.prepare(model).is_continue() {}
        }
    }

    /// Forgets all groups and so lets their programs go; whether there were any.
    pub(super) fn clear(&self) -> bool {
        let mut groups = self.groups();
        let any = !groups.is_empty();
        groups.clear();
        any
    }

    fn group(&self, rests: Vec<Shape>, services: &Arc<Services>) -> Arc<Group> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let made = Group {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            rests: rests.clone(),
            max_batch: self.max_batch,
            services: Arc::clone(services),
            apart: Arc::clone(&self.apart),
            state: Mutex::new(State { programs: vec![], runs: None, due: Some(Instant::now()) }),
        };
        Arc::clone(self.groups().get_or_insert(rests, || Arc::new(made)))
    }

    fn groups(&self) -> MutexGuard<'_, LruCache<Vec<Shape>, Arc<Group>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group {
    /// The programs, where it is open for so many rows.
    fn open(&self, rows: usize) -> Option<Arc<Runs>> {
        self.state().runs.clone().filter(|runs| runs.covering(rows).is_some())
    }

    /// Has the loader prepare the next program, if it is due.
    fn prepare_next(self: &Arc<Self>, model: &Arc<Model>, loader: &Loader) {
        let mut state = self.state();
        if state.due.is_none_or(|due| Instant::now() < due) {
            return;
        }
        state.due = None;
        drop(state);
        // A model that is unloaded meanwhile is let go, as is a group that left for others.
        let (group, model, queue) = (Arc::downgrade(self), Arc::downgrade(model), loader.clone());
        loader.begin(move || {
            let (Some(group), Some(model)) = (group.upgrade(), model.upgrade()) else { return };
            if group.prepare(&model).is_continue() {
                group.state().due = Some(Instant::now());
                group.prepare_next(&model, &queue);
            }
        });
    }

    /// Prepares a program of more rows than those before; whether there may be a further one now.
    fn prepare(&self, model: &Model) -> ControlFlow<()> {
        let ready = self.state().programs.len();
        let Some(rows) = sizes(self.max_batch).nth(ready) else { return ControlFlow::Break(()) };
        let program = match model.program(&with_rows(&self.rests, rows)) {
            Ok(program) => program,
            Err(why) => {
                let most = if ready > 1 { sizes(self.max_batch).nth(ready - 1).unwrap_or(1) } else { 1 };
                let max_batch = self.max_batch;
                tracing::warn!(model = model.owner(), max_batch, most, %why, "larger batches are not run");
                // What does not fit now may fit when others have left.
                let later = matches!(why, Error::DoesNotFit(_) | Error::Memory { .. });
                self.state().due = later.then(|| Instant::now() + LATER);
                return ControlFlow::Break(());
            }
        };
        if program.rows() != Some(rows) {
            let max_batch = self.max_batch;
            let why = "not every output has as many rows as the inputs";
            tracing::warn!(model = model.owner(), max_batch, why, "requests run one by one");
            self.apart.store(true, Ordering::Relaxed);
            self.state().runs = None;
            return ControlFlow::Break(());
        }
        let mut state = self.state();
        state.programs.push((rows, program));
        if state.programs.len() > 1 {
            let runs = Runs::shared(self.number, state.programs.iter().cloned(), Arc::clone(&self.services));
            state.runs = Some(Arc::new(runs));
        }
        if rows < self.max_batch { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sizes of batches: powers of two below `max_batch`, and that.
pub(crate) fn sizes(max_batch: usize) -> impl Iterator<Item = usize> {
    let powers = std::iter::successors(Some(1usize), |size| size.checked_mul(2));
    powers.take_while(move |size| *size < max_batch).chain([max_batch])
}

/// The size of the first axes, where all have one and agree, and the shapes without them.
pub(super) fn rows<'a>(shapes: impl Iterator<Item = &'a [usize]>) -> Option<(usize, Vec<Shape>)> {
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

//! Several kernels for one step, of which the fastest is to be found out.

use super::super::kernels::grid::Grid;
use super::super::launch::{Binder, Ways, none};
use super::super::modules::{Function, Modules};
use super::super::tuning::{Problem, Way};
use super::tail::bias_is_computed;
use crate::device::{NoKernel, Pick};
use crate::graph::{Conv, Einsum, Op};
use crate::plan::Step;
use cudarc::driver::result::DriverError;
use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The kernels of a step, and which of them is launched.
pub(super) struct Choice<C> {
    problem: Problem,
    options: Vec<Launch<C>>,
    at: AtomicUsize,
}

/// One of them; its code is asked for when it is first chosen.
struct Launch<C> {
    candidate: C,
    kernel: String,
    grid: Grid,
    function: OnceLock<Function>,
}

impl<C: Debug> Choice<C> {
    /// Of the candidates, the most promising first, the one that the binder's pick says; the first where none was measured
    /// yet.
    ///
    /// # Errors
    /// There is no candidate; or no kernel for it, which is a fault of ours.
    pub(super) fn new(
        step: &Step,
        binder: Binder<'_>,
        problem: &impl Debug,
        candidates: impl IntoIterator<Item = C>,
        made: impl Fn(&C) -> (String, Grid),
    ) -> Result<Choice<C>, NoKernel> {
        let problem = Problem::of(&format!("{problem:?}"));
        let options = candidates.into_iter().take(binder.tries());
        let waits = match &step.op {
            Op::Conv(Conv { epilogue, .. }) | Op::Einsum(Einsum { epilogue, .. }) => {
                bias_is_computed(step, epilogue)
            }
            _ => false,
        };
        let options = options.map(|candidate| {
            let (kernel, mut grid) = made(&candidate);
            grid.dependent &= !waits;
            Launch { candidate, kernel, grid, function: OnceLock::new() }
        });
        let choice = Choice { problem, options: options.collect(), at: AtomicUsize::new(0) };
        if choice.options.is_empty() {
            return Err(none(step, "no kernel that fits in shared memory"));
        }
        let at = match binder.pick {
            Pick::Fastest => binder.tuned.get(problem).and_then(|way| choice.find(way)).unwrap_or(0),
            Pick::Nth(_) => choice.count() - 1,
        };
        let kernel = &choice.options[at].kernel;
        choice
            .choose(at, binder.modules)
            .map_err(|error| none(step, format!("kernel {kernel}: {error:?}")))?;
        Ok(choice)
    }

    /// What is launched.
    ///
    /// # Errors
    /// None of it was ever chosen.
    pub(super) fn now(&self) -> Result<(&C, &Grid, Function), DriverError> {
        let option = &self.options[self.at.load(Ordering::Relaxed)];
        let missing = DriverError(cudarc::driver::sys::CUresult::CUDA_ERROR_NOT_FOUND);
        Ok((&option.candidate, &option.grid, *option.function.get().ok_or(missing)?))
    }
}

impl<C: Debug> Ways for Choice<C> {
    fn problem(&self) -> Problem {
        self.problem
    }

    fn count(&self) -> usize {
        self.options.len()
    }

    fn way(&self, at: usize) -> Way {
        Way::of(&format!("{:?}", self.options[at].candidate))
    }

    fn chosen(&self) -> usize {
        self.at.load(Ordering::Relaxed)
    }

    fn choose(&self, at: usize, modules: &Modules) -> Result<(), DriverError> {
        let option = &self.options[at];
        if option.function.get().is_none() {
            let _ = option.function.set(modules.get(&option.kernel)?);
        }
        self.at.store(at, Ordering::Relaxed);
        Ok(())
    }

    fn name(&self) -> String {
        let Launch { kernel, grid, .. } = &self.options[self.chosen()];
        let [x, y, z] = grid.blocks;
        format!("{kernel} on {x}×{y}×{z}")
    }
}

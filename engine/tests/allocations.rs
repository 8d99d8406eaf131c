//! After the first run, a run takes nothing from the heap but the memory of its outputs.

#![allow(clippy::unwrap_used)] // an integration test: clippy sees no `#[cfg(test)]` around its helpers

use plimsoll_engine::arena::Arena;
use plimsoll_engine::model::{Limits, Model, Source};
use plimsoll_engine::program::Workspace;
use plimsoll_engine::slab::Terms;
use plimsoll_engine::tensor::{DType, Tensor};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work; counting touches no memory of its callers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, first: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(first, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of one run of the sample model after two others.
fn allocations(threads: usize, batch: usize) -> usize {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/digits/model.onnx");
    let limits = Limits { threads, ..Limits::default() };
    let arena = Arena::unlimited();
    let model = Model::load(&Source::file(&file), "digits", limits, Terms::default(), &arena).unwrap();
    let pixels = vec![3f32; batch * 64];
    let image = [Tensor::from_slice(DType::F32, &[batch, 1, 8, 8], &pixels).unwrap()];
    let program = model.program(&[image[0].shape().into()]).unwrap();
    assert!(program.plan().is_some(), "the model is planned");
    let mut workspace = Workspace::new(threads).unwrap();
    let mut outputs = vec![];
    let mut run = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        program.run(&mut workspace, &image, &mut outputs).unwrap();
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    run();
    run();
    run()
}

/// One test, as the count is the process's own.
#[test]
fn a_run_allocates_its_outputs_and_nothing_else() {
    for (threads, batch) in [(1, 1), (1, 32), (2, 32)] {
        let count = allocations(threads, batch);
        assert!(count <= 1, "{count} allocations for one output, {threads} threads, batch {batch}");
    }
}

//! Copies through host memory that is not pinned, as where the driver refuses to pin it.

use super::super::binaries::Binaries;
use super::super::context::Context;
use super::super::lane::{CudaLane, TRANSFER_BYTES};
use super::super::memory::DeviceMemory;
use super::super::pinned::Stream;
use super::super::staging::Staging;
use super::super::upload::Upload;
use super::super::{Cuda, transfers};
use super::{Rng, kernels};
use crate::device::{Batch, Device, Lane, Manner, Memory, Room};
use crate::graph::{Builder, Op};
use crate::plan::layout;
use crate::slab::Extent;
use crate::tensor::{DType, Tensor};
use std::sync::{Arc, Mutex};

/// Bytes of a copy that goes through in several pieces and ends within one.
const BYTES: usize = (9 << 20) + 12345;

fn bytes(seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed);
    (0..BYTES.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).take(BYTES).collect()
}

fn opened<T>(open: impl FnOnce() -> Result<T, crate::device::NoDevice>) -> Option<T> {
    open().map_err(|why| eprintln!("skipped: {why}")).ok()
}

#[test]
fn what_is_uploaded_and_moved_through_memory_that_is_not_pinned_arrives() {
    let Some(context) = opened(|| Context::open(0)) else { return };
    let halves = [(); 2].map(|()| Staging::pageable(4 << 20).unwrap());
    let upload = Arc::new(Mutex::new(Upload::with(&context, halves).unwrap()));
    let memory = DeviceMemory::take(&context, &upload, 32 << 20).unwrap();
    let first = memory.at(Extent { chunk: 0, offset_bytes: 0, bytes: 32 << 20 }) as u64;
    let (sent, stream) = (bytes(1), Stream::new(&context).unwrap());
    {
        let mut upload = upload.lock().unwrap();
        upload.put(first, &sent).unwrap();
        // Two ends that overlap.
        upload.bounce(first, first + 1000, 4 << 20).unwrap();
        upload.finish().unwrap();
    }
    let mut wanted = sent.clone();
    wanted[1000..1000 + (4 << 20)].copy_from_slice(&sent[..4 << 20]);
    let mut staging = Staging::pageable(TRANSFER_BYTES).unwrap();
    let fetched = |staging: &mut Staging| {
        let mut got = vec![];
        transfers::fetch(first, BYTES, staging, &stream, |part| got.extend_from_slice(part)).unwrap();
        got
    };
    assert!(fetched(&mut staging) == wanted);
    let sent = bytes(2);
    transfers::bring(&sent, first, &mut staging, &stream).unwrap();
    assert!(fetched(&mut staging) == sent);
}

#[test]
fn a_lane_without_pinned_memory_answers_alike_and_tells_of_values_that_do_not_suit() {
    let binaries = Binaries { ahead: None, keep: Some(kernels()) };
    let Some(gpu) = opened(|| Cuda::open(0, &binaries)) else { return };
    let mut m = Builder::new();
    let rows = m.input("rows", DType::F32, &[5, 3]);
    let at = m.input("at", DType::I64, &[2]);
    let picked = m.node("pick", Op::Gather(0), &[rows, at], DType::F32, &[2, 3]);
    let graph = m.finish(&[picked]);
    let planned = layout(&graph);
    let prepared = gpu.prepare(graph, planned, Manner::plain(1)).unwrap();
    let room = |bytes: u64| Ok(Room::own(gpu.memory(bytes).unwrap(), bytes));
    let program = prepared.finish(&gpu.constants(), None, &room).unwrap();
    let floats: Vec<f32> = (0..15).map(|x| x as f32).collect();
    let inputs = |at: &[i64]| {
        [Tensor::from_slice(DType::F32, &[5, 3], &floats), Tensor::from_slice(DType::I64, &[2], at)]
            .map(Result::unwrap)
    };
    let pageable = Staging::pageable(super::super::lane::FLAGS_BYTES + TRANSFER_BYTES).unwrap();
    let lanes = [CudaLane::growing(&gpu.shared), CudaLane::new(&gpu.shared, pageable)];
    for mut lane in lanes.map(Result::unwrap) {
        lane.at_least(program.plan().workspace_bytes as usize).unwrap();
        let mut run = |at: &[i64], now| {
            let (inputs, mut outputs) = (inputs(at), vec![]);
            let ran = program.run(
                &mut lane,
                Batch::one(&inputs.as_slice()),
                std::slice::from_mut(&mut outputs),
                now,
            );
            ran.map(|()| outputs)
        };
        for now in 0..4 {
            // What was launched is recorded, and a fault before or after is that of its own run.
            let refused = run(&[1, 7], now).unwrap_err();
            assert!(refused.to_string().contains("pick"), "{refused}");
            let outputs = run(&[4, 1], now).unwrap();
            let wanted = Tensor::from_slice(DType::F32, &[2, 3], &[12f32, 13., 14., 3., 4., 5.]).unwrap();
            assert_eq!(outputs[0].as_bytes().unwrap(), wanted.as_bytes().unwrap());
        }
    }
}

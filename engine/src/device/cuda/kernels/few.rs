//! Convolutions of images with few channels: when few.cu's kernels do, and how they are launched.

use super::conv::Conv;
use super::epilogue::Order;
use super::grid::{Gpu, Grid};
use super::pack::Packed;
use super::tile::{Candidate, Family, Tile};

/// Pixels of a line that a block computes, and its threads.
const PIXELS: usize = 64;
const THREADS: usize = 256;

/// Shared memory that every GPU has for a block, less what the system keeps.
const SHARED_BYTES: usize = 98 << 10;

/// Whether the convolution is one of those, which its weights are packed for.
pub(super) fn possible(conv: &Conv) -> bool {
    let (chunk, bytes) = (conv.precision.chunk(), conv.precision.bytes());
    let few = conv.groups == 1 && conv.in_c < chunk && conv.window[1] * conv.in_c >= chunk;
    let runs = conv.x[3] == 1 && conv.x[2] == conv.in_c && conv.dilation[1] == 1;
    let words = (conv.stride[1] * conv.in_c * bytes).is_multiple_of(4);
    few && runs
        && words
        && conv.epilogue.order == Order::Alone
        && shared_bytes(conv, columns(conv), 1) <= SHARED_BYTES
}

/// The form of its weights: lines of the window are taps, and a line's elements channels.
pub(super) fn packed(conv: &Conv) -> Packed {
    Packed {
        groups: 1,
        n: conv.out_c,
        taps: conv.window[0],
        channels: conv.window[1] * conv.in_c,
        precision: conv.precision,
    }
}

/// Channels that a block computes.
fn columns(conv: &Conv) -> usize {
    conv.out_c.next_power_of_two().clamp(16, 64)
}

/// What a tuner may try: two lines a block, or four where there are many.
pub(super) fn candidates(conv: &Conv, gpu: &Gpu) -> Vec<Candidate> {
    let candidate = |lines: usize| Candidate {
        family: Family::Few,
        precision: conv.precision,
        tile: Tile { m: PIXELS * 2 * lines, n: columns(conv), slices: 1, threads: THREADS, stages: 0 },
        splits: 1,
        modern: gpu.capability >= 90,
    };
    let many = conv.size().m > PIXELS * 8 * gpu.processors;
    let lines = if many { [2, 1] } else { [1, 2] };
    let fits = |lines: &usize| shared_bytes(conv, columns(conv), *lines) <= gpu.shared_bytes;
    lines.into_iter().filter(fits).map(candidate).collect()
}

/// Half of the lines that a block computes.
pub(super) fn lines(candidate: &Candidate) -> usize {
    candidate.tile.m / (PIXELS * 2)
}

/// Groups of pixels along a line.
pub(super) fn spans(conv: &Conv) -> usize {
    conv.output[1].div_ceil(PIXELS)
}

/// The launch.
pub(super) fn grid(conv: &Conv, candidate: &Candidate) -> Grid {
    let (lines, n) = (lines(candidate), candidate.tile.n);
    let blocks = spans(conv) * conv.output[0].div_ceil(2 * lines);
    Grid {
        blocks: [blocks as u32, conv.out_c.div_ceil(n) as u32, conv.batch as u32],
        threads: THREADS as u32,
        shared_bytes: shared_bytes(conv, n, lines) as u32,
        cluster: 1,
        dependent: candidate.modern,
    }
}

/// Weights, the patch of the image, and results on their way out. As few.cu lays them out.
fn shared_bytes(conv: &Conv, n: usize, lines: usize) -> usize {
    let (packed, chunk) = (packed(conv), conv.precision.chunk());
    let run = packed.channels.next_multiple_of(chunk);
    let pitch = ((PIXELS - 1) * conv.stride[1] * conv.in_c + run).next_multiple_of(8);
    let height = (2 * lines - 1) * conv.stride[0] + (conv.window[0] - 1) * conv.dilation[0] + 1;
    let out = THREADS / 32 * 16 * (n + chunk);
    packed.k_blocks() * n * 128 + (height * pitch + out) * conv.precision.bytes()
}

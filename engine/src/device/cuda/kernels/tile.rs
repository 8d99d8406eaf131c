//! What products and convolutions share: the argument of tile.cuh, the tiles there are, and which are worth a try.

use super::epilogue::{Epilogue, Order, Pointers};
use super::grid::{Div, Gpu, Grid};
use cudarc::driver::sys::CUdeviceptr;

/// How elements are stored and multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Precision {
    /// f16, added up in f32.
    F16,
    /// f32, multiplied as tf32, added up in f32.
    Tf32,
    /// f32, multiplied as sums of two tf32 each: nearly exact.
    F32,
}

impl Precision {
    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        if self == Precision::F16 { 2 } else { 4 }
    }

    /// Elements of 16 bytes, which is what fast kernels move at a time.
    pub(crate) fn chunk(self) -> usize {
        16 / self.bytes()
    }

    /// Elements along k that a step of the main loop takes: 128 bytes.
    pub(crate) fn block(self) -> usize {
        128 / self.bytes()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Precision::F16 => "f16",
            Precision::Tf32 => "tf32",
            Precision::F32 => "f32",
        }
    }
}

/// Which kernels fit how operands lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    /// Rows of A of aligned elements, packed B.
    Gemm,
    /// The same with rows of B that are not packed, k being innermost.
    GemmRows,
    /// Any strides of A, packed B.
    GemmAnyPacked,
    /// Any strides.
    GemmAny,
    /// Pixels of aligned channels.
    Conv,
    /// Pixels of any strides.
    ConvAny,
    /// As `Gemm`, by warpgroups.
    GemmWide,
    /// As `Conv`, by warpgroups.
    ConvWide,
    /// Pixels of few channels.
    Few,
}

/// A tile that there is a kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    /// Rows and columns of C.
    pub(crate) m: usize,
    pub(crate) n: usize,
    /// Warps that share a block of k, each with part of it.
    pub(crate) slices: usize,
    /// Threads of a block.
    pub(crate) threads: usize,
    /// Steps of the main loop whose operands are in shared memory.
    pub(crate) stages: usize,
}

const fn tile(m: usize, n: usize, slices: usize, threads: usize, stages: usize) -> Tile {
    Tile { m, n, slices, threads, stages }
}

/// The tiles of gemm.cu for packed B.
const GEMM: [Tile; 9] = [
    tile(128, 128, 1, 128, 3),
    tile(128, 64, 1, 256, 4),
    tile(64, 128, 1, 256, 4),
    tile(64, 64, 2, 256, 5),
    tile(64, 32, 2, 128, 6),
    tile(32, 64, 2, 128, 6),
    tile(32, 32, 4, 128, 8),
    tile(16, 64, 2, 128, 8),
    tile(16, 32, 4, 128, 8),
];
/// The tiles of conv.cu for aligned channels: those with enough rows.
const CONV: &[Tile] = GEMM.split_at(7).0;
const CONV_ANY: [Tile; 2] = [tile(64, 64, 1, 128, 3), tile(64, 32, 1, 128, 3)];
const GEMM_ROWS: [Tile; 2] = [tile(128, 128, 1, 128, 3), tile(64, 64, 1, 128, 4)];
/// The tiles of wide.cu.
const WIDE: [Tile; 3] = [tile(128, 64, 1, 384, 7), tile(128, 128, 1, 384, 5), tile(128, 192, 1, 384, 4)];
/// Those of them whose k is split among a cluster. The largest was never the fastest so: not of the products of three
/// models at three batches, in either precision.
const WIDE_PARTS: [Tile; 2] = [tile(128, 64, 1, 384, 8), tile(128, 128, 1, 384, 6)];
const GEMM_ANY: [Tile; 1] = [tile(64, 64, 1, 128, 3)];

impl Family {
    /// Whether it is one of wide.cu, for one GPU alone, not for full precision, and for whole chunks of C.
    fn wide(self) -> bool {
        matches!(self, Family::GemmWide | Family::ConvWide)
    }

    /// The tiles of the family, and the beginning of its kernels' names.
    fn tiles(self) -> (&'static [Tile], &'static str, &'static str) {
        match self {
            Family::Gemm => (&GEMM, "gemm", ""),
            Family::GemmRows => (&GEMM_ROWS, "gemm", "rows_"),
            Family::GemmAnyPacked => (&GEMM_ANY, "gemm", "any_packed_"),
            Family::GemmAny => (&GEMM_ANY, "gemm", "any_"),
            Family::Conv => (CONV, "conv", ""),
            Family::ConvAny => (&CONV_ANY, "conv", "any_"),
            Family::GemmWide => (&WIDE, "gemm", "wide_"),
            Family::ConvWide => (&WIDE, "conv", "wide_"),
            Family::Few => (&[], "conv", "few_"),
        }
    }
}

/// A way to compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    /// Which kernels.
    pub(crate) family: Family,
    /// Of which elements.
    pub(crate) precision: Precision,
    /// With which tile.
    pub(crate) tile: Tile,
    /// Into how many parts k is split.
    pub(crate) splits: usize,
    /// Whether the parts of k are a cluster, and the launch may overlap the one before.
    pub(crate) modern: bool,
}

/// A candidate whose tile does not matter.
pub(crate) const ANY: Candidate = Candidate {
    family: Family::GemmAny,
    precision: Precision::F32,
    tile: tile(64, 64, 1, 128, 3),
    splits: 1,
    modern: false,
};

/// What the choice of a candidate depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Size {
    /// Products of the batch.
    pub(crate) batch: usize,
    /// Rows and columns of C.
    pub(crate) m: usize,
    pub(crate) n: usize,
    /// Blocks of 128 bytes along k.
    pub(crate) k_blocks: usize,
}

/// Blocks of a cluster at most, for which every GPU that has clusters has room.
const CLUSTER: usize = 8;

impl Candidate {
    /// The kernel's name.
    pub(crate) fn kernel(&self) -> String {
        let (_, family, way) = self.family.tiles();
        let m = if self.family == Family::Few { 64 } else { self.tile.m };
        let parts = if self.parted() { "parts_" } else { "" };
        format!("{family}_{}_{way}{parts}{m}x{}", self.precision.name(), self.tile.n)
    }

    /// Shared memory of a block in bytes. As `Tile` in tile.cuh lays it out.
    pub(crate) fn shared_bytes(&self) -> usize {
        let Tile { m, n, slices, stages, .. } = self.tile;
        if self.family.wide() {
            let finished = if self.parted() { 0 } else { m * (n / self.precision.bytes() + 8) * 4 };
            return stages * (m + n) * 128 + finished + stages * 16;
        }
        let (stages, finished) = (stages * (m + n) * 128, slices * m * (n + 8) * 4);
        let (operand, bias) = (m * n * self.precision.bytes(), n * 4);
        let early = stages + operand + bias <= 112 << 10;
        let received = if self.cluster() > 1 { self.splits * self.part_rows() * n * 4 } else { 0 };
        let body = if early { stages.max(finished) + operand } else { stages.max(finished + operand) };
        body + bias + 16 + received
    }

    /// Whether it is one of wide.cu that does a part of k.
    fn parted(&self) -> bool {
        self.family.wide() && self.splits > 1
    }

    /// Rows of a tile that a block of a cluster finishes.
    fn part_rows(&self) -> usize {
        self.tile.m.div_ceil(self.splits)
    }

    /// Blocks of a cluster.
    fn cluster(&self) -> usize {
        if self.modern { self.splits } else { 1 }
    }

    fn tiles(&self, size: &Size) -> usize {
        size.m.div_ceil(self.tile.m) * size.n.div_ceil(self.tile.n)
    }

    /// The launch.
    pub(crate) fn grid(&self, size: &Size, gpu: &Gpu) -> Grid {
        let tiles = self.tiles(size);
        let blocks = if self.family.wide() { tiles.min(gpu.processors) } else { tiles };
        Grid {
            blocks: [blocks as u32, size.batch as u32, self.splits as u32],
            threads: self.tile.threads as u32,
            shared_bytes: self.shared_bytes() as u32,
            cluster: self.cluster() as u32,
            dependent: self.modern,
        }
    }

    /// What the kernel must know of the candidate.
    pub(crate) fn inform(&self, size: &Size, args: &mut Args) {
        args.tiles_n = Div::new(size.n.div_ceil(self.tile.n));
        args.part_rows = Div::new(self.part_rows());
    }

    /// Bytes of partial sums that the launch wants, and u32 counters.
    pub(crate) fn scratch(&self, size: &Size) -> (usize, usize) {
        if self.modern || self.splits == 1 {
            return (0, 0);
        }
        let tiles = self.tiles(size) * size.batch;
        (tiles * self.splits * self.tile.m * self.tile.n * 4, tiles)
    }

    /// A rough time in µs, to order candidates by. The numbers were fitted to 221 products and convolutions of f16 on
    /// an H200, such that the fastest is among the first eight of nearly all.
    fn cost(&self, size: &Size, gpu: &Gpu) -> f64 {
        let Tile { m, n, threads, .. } = self.tile;
        let rate = match self.precision {
            Precision::F16 => 1.0,
            Precision::Tf32 => 2.0,
            Precision::F32 => 5.0,
        };
        // Tiles of 64 × 64 by 128 bytes that a step of the main loop multiplies.
        let products = (m * n) as f64 / 4096.0 * rate;
        let blocks = self.tiles(size) * size.batch * self.splits;
        let waves = blocks.div_ceil(gpu.processors) as f64;
        if self.family.wide() {
            let (steps, sum) =
                (size.k_blocks.div_ceil(self.splits) as f64, if self.parted() { 1.5 } else { 0.0 });
            return 0.3 + waves * (0.17 + steps * products * 0.126) + sum;
        }
        let resident = (gpu.shared_bytes / self.shared_bytes()).clamp(1, 2048 / threads).min(4);
        let rounds = blocks.div_ceil(gpu.processors * resident) as f64;
        let steps = size.k_blocks.div_ceil(self.splits) as f64;
        // A step is bound by the units and by what it brings where blocks share a multiprocessor, by latency where one
        // is alone.
        let step = products * 0.143 + (m + n) as f64 / 128.0 * 0.026;
        let split = if self.splits > 1 { 0.5 + self.splits as f64 * 0.12 } else { 0.0 };
        (steps * (0.096 + step)).max(waves * (steps * step + 0.22)) + rounds * 0.16 + split
    }
}

/// The candidates for a product, the most promising first. `whole` says whether C is stored by chunks.
pub(crate) fn candidates(
    family: Family,
    precision: Precision,
    size: &Size,
    whole: bool,
    gpu: &Gpu,
) -> Vec<Candidate> {
    let modern = gpu.capability >= 90;
    let mut list = vec![];
    let wide = match family {
        Family::Gemm => Some(Family::GemmWide),
        Family::Conv => Some(Family::ConvWide),
        _ => None,
    };
    let possible = gpu.capability == 90 && precision != Precision::F32 && whole && size.n.is_multiple_of(8);
    if let Some(family) = wide.filter(|_| possible && size.m * size.batch > 48 && size.k_blocks > 0) {
        if size.m * size.batch > 512 {
            list.extend(WIDE.iter().map(|&tile| Candidate { family, precision, tile, splits: 1, modern }));
        }
        // One block has a multiprocessor to itself, and all of a cluster run at once.
        let parts = WIDE_PARTS.iter().flat_map(|tile| [2, 4, 8].map(|splits| (*tile, splits)));
        list.extend(parts.filter_map(|(tile, splits)| {
            let candidate = Candidate { family, precision, tile, splits, modern };
            let blocks = candidate.tiles(size) * size.batch * splits;
            (blocks <= gpu.processors && splits * 2 <= size.k_blocks).then_some(candidate)
        }));
    }
    for &tile in family.tiles().0 {
        // The largest would not fit in registers.
        if precision == Precision::F32 && (tile.m, tile.n) == (128, 128) {
            continue;
        }
        for splits in [1, 2, 3, 4, 5, 6, 7, 8, 12, 16] {
            let candidate = Candidate { family, precision, tile, splits, modern };
            let blocks = candidate.tiles(size) * size.batch * splits;
            let fits = candidate.shared_bytes() <= gpu.shared_bytes;
            let worth = splits == 1 || (blocks <= 4 * gpu.processors && splits * 2 <= size.k_blocks);
            if fits && worth && !(modern && splits > CLUSTER) {
                list.push(candidate);
            }
        }
    }
    list.sort_by(|a, b| a.cost(size, gpu).total_cmp(&b.cost(size, gpu)));
    list
}

/// The kernels' argument. As `Args` in tile.cuh, where the fields are explained.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Args {
    pub(crate) a: CUdeviceptr,
    pub(crate) b: CUdeviceptr,
    pub(crate) c: CUdeviceptr,
    pub(crate) bias: CUdeviceptr,
    pub(crate) operand: CUdeviceptr,
    pub(crate) partials: CUdeviceptr,
    pub(crate) counters: CUdeviceptr,
    pub(crate) a_batch: [i64; 2],
    pub(crate) b_batch: [i64; 2],
    pub(crate) c_batch: [i64; 2],
    pub(crate) operand_batch: [i64; 2],
    pub(crate) bias_batch: [i32; 2],
    pub(crate) batch_inner: i32,
    pub(crate) m: i32,
    pub(crate) n: i32,
    pub(crate) k: i32,
    pub(crate) k_blocks: i32,
    pub(crate) packed_rows: i32,
    pub(crate) tiles_n: Div,
    pub(crate) part_rows: Div,
    pub(crate) b_n: i32,
    pub(crate) b_k: i32,
    pub(crate) out_w: Div,
    pub(crate) out_hw: Div,
    /// Image, y, x, channel.
    pub(crate) c_strides: [i32; 4],
    pub(crate) operand_strides: [i32; 4],
    pub(crate) act: i32,
    pub(crate) order: i32,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    pub(crate) vector: i32,
    pub(crate) flat: i32,
    /// Image, y, x, channel.
    pub(crate) a_strides: [i32; 4],
    pub(crate) in_h: i32,
    pub(crate) in_w: i32,
    pub(crate) channels: i32,
    pub(crate) tap_channels: Div,
    pub(crate) window_w: Div,
    pub(crate) window_h: i32,
    /// Along y and x.
    pub(crate) stride: [i32; 2],
    pub(crate) dilation: [i32; 2],
    pub(crate) before: [i32; 2],
}

// As large as the kernels take it for.
const _: () = assert!(size_of::<Args>() == 344);

impl Args {
    /// Fills in the epilogue, and whether elements may be stored eight at a time.
    pub(crate) fn finish(&mut self, epilogue: &Epilogue, pointers: &Pointers, chunk: usize) {
        self.b = pointers.b;
        self.c = pointers.c;
        self.bias = if epilogue.bias { pointers.bias } else { 0 };
        self.operand = pointers.operand;
        self.partials = pointers.partials;
        self.counters = pointers.counters;
        (self.act, self.alpha, self.beta) = epilogue.act.encode();
        self.order = epilogue.order as i32;
        let whole = |strides: &[i32; 4], batch: &[i64; 2]| {
            let outer = strides[..3].iter().map(|s| i64::from(*s)).chain(*batch);
            strides[3] == 1 && outer.into_iter().all(|stride| stride % chunk as i64 == 0)
        };
        let operand = epilogue.order == Order::Alone || whole(&self.operand_strides, &self.operand_batch);
        let bias = self.bias_batch.iter().all(|stride| stride % 4 == 0);
        self.vector =
            i32::from(pointers.aligned() && whole(&self.c_strides, &self.c_batch) && operand && bias);
    }
}

#[cfg(test)]
mod tests {
    use super::{Family, Gpu, Precision, Size, candidates};

    #[test]
    fn candidates_fit_and_split_no_further_than_k() {
        let families = [Family::Gemm, Family::GemmRows, Family::GemmAny, Family::Conv, Family::ConvAny];
        for (processors, shared_bytes, capability) in
            [(132, 227 << 10, 90), (16, 163 << 10, 87), (20, 99 << 10, 89)]
        {
            let gpu = Gpu { processors, shared_bytes, capability };
            for family in families {
                for precision in [Precision::F16, Precision::Tf32, Precision::F32] {
                    for (m, n, k_blocks) in [(1, 1, 1), (49, 512, 72), (12544, 64, 3), (4096, 768, 12)] {
                        let size = Size { batch: 1, m, n, k_blocks };
                        let list = candidates(family, precision, &size, true, &gpu);
                        assert!(!list.is_empty(), "{family:?} {precision:?} {gpu:?}");
                        for candidate in list {
                            assert!(candidate.shared_bytes() <= shared_bytes);
                            assert!(candidate.splits == 1 || candidate.splits * 2 <= k_blocks);
                            let (bytes, counters) = candidate.scratch(&size);
                            assert_eq!(bytes > 0, capability < 90 && candidate.splits > 1);
                            assert_eq!(counters > 0, bytes > 0);
                        }
                    }
                }
            }
        }
    }
}

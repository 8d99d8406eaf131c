// Large products of f16 or tf32 for sm_90a alone: warpgroup instructions fed by a producer, one persistent
// block a multiprocessor.
//
// Operands are those of tile.cuh, and lie in shared memory as they do there: that swizzle is the one of 128
// bytes that the instructions know. Of 384 threads the first 128 copy: A with cp.async, packed B in bulk. The
// others are two warpgroups of 64 rows each. A stage is handed over by one barrier and back by another; the
// operand of the epilogue comes the same way, as stages after a tile's last. So the next tile's stages fill
// while a tile is stored.
#pragma once
#include "tile.cuh"

__device__ __forceinline__ void barrier_begin(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{.reg .pred p;\n"
        "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t@!p bra again;\n\t}" ::"r"(
            barrier),
        "r"(parity)
        : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives once this thread's copies so far are done.
__device__ __forceinline__ void barrier_arrive_with_copies(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Arrives and copies in bulk; the barrier also waits for the bytes.
__device__ __forceinline__ void barrier_copy(u32 barrier, u32 to, const void *from, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

// c[64, N] += A · B over 32 bytes of k, both in shared memory; c = A · B where `add` is 0. The instruction names each of
// its N / 2 accumulators.
template <class T, int N> struct Multiply;
#define NAMES_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64 NAMES_32 ", " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_96 NAMES_64 ", " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define EIGHT(i) \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define FLOATS_32 EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24)
#define FLOATS_64 FLOATS_32, EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
#define FLOATS_96 FLOATS_64, EIGHT(64), EIGHT(72), EIGHT(80), EIGHT(88)
// `a`, `b` and `p` number the operands after the accumulators; f16 says besides that neither side is transposed.
#define MULTIPLY(type, n, half, instruction, a, b, p, rest)                                                              \
    template <> struct Multiply<type, n> {                                                                               \
        static __device__ __forceinline__ void run(float (&c)[half], u64 from_a, u64 from_b, int add) {                  \
            asm volatile("{.reg .pred p;\n\tsetp.ne.b32 p, " p ", 0;\n\t"                                               \
                         "wgmma.mma_async.sync.aligned.m64n" #n instruction " {" NAMES_##half "}, " a ", " b             \
                         ", p, 1, 1" rest ";}"                                                                           \
                         : FLOATS_##half                                                                                 \
                         : "l"(from_a), "l"(from_b), "r"(add));                                                          \
        }                                                                                                                \
    };
MULTIPLY(F16, 64, 32, "k16.f32.f16.f16", "%32", "%33", "%34", ", 0, 0")
MULTIPLY(F16, 128, 64, "k16.f32.f16.f16", "%64", "%65", "%66", ", 0, 0")
MULTIPLY(F16, 192, 96, "k16.f32.f16.f16", "%96", "%97", "%98", ", 0, 0")
MULTIPLY(TF32, 64, 32, "k8.f32.tf32.tf32", "%32", "%33", "%34", "")
MULTIPLY(TF32, 128, 64, "k8.f32.tf32.tf32", "%64", "%65", "%66", "")
MULTIPLY(TF32, 192, 96, "k8.f32.tf32.tf32", "%96", "%97", "%98", "")

// Rows of 128 bytes, swizzled, groups of 8 rows 1024 bytes apart.
__device__ __forceinline__ u64 describe(u32 address) {
    return (u64)1 << 62 | (u64)64 << 32 | 1 << 16 | (address >> 4 & 0x3fff);
}

// PARTED: a block computes a part of k of one tile alone, and the blocks of its cluster add up their parts through
// each other's shared memory, each some of the rows, in the order of k. So tiles can be large where there are few
// of them: large tiles bring fewer bytes.
template <class T, int TN, int STAGES, int READ_A, bool PARTED> struct Wide {
    // For how a stage is fetched.
    typedef Tile<T, 128, TN, 64, TN / 2, 1, STAGES, READ_A, PACKED> Fetcher;
    static const int STAGE = (128 + TN) * 128, K = 128 / T::SIZE;
    // A tile is stored in bands of its columns, of which each warp has 16 rows at a time in shared memory.
    static const int BANDS = T::SIZE, BAND = TN / BANDS, PITCH = BAND + 8, PART = 16 * PITCH * 4;
    static const int PARTS_AT = STAGES * STAGE, BARRIERS_AT = PARTS_AT + (PARTED ? 0 : 8 * PART);
    // Floats from a row to the next of what other blocks send, which takes the place of the stages.
    static const int SENT = TN + 8;
    static_assert(!PARTED || 128 * SENT * 4 <= STAGES * STAGE, "room for all parts of a block's rows");

    static __device__ __forceinline__ void tile_at(const Args &p, int tile, int &m0, int &n0) {
        int tile_m = divide(tile, p.tiles_n);
        m0 = tile_m * 128, n0 = (tile - tile_m * p.tiles_n.by) * TN;
    }

    // The blocks of k that this block multiplies.
    static __device__ __forceinline__ void blocks_of(const Args &p, int &first, int &blocks) {
        first = PARTED ? p.k_blocks * blockIdx.z / gridDim.z : 0;
        blocks = PARTED ? p.k_blocks * (blockIdx.z + 1) / gridDim.z - first : p.k_blocks;
    }

    static __device__ __forceinline__ void produce(const Args &p, int tiles, u32 full, u32 empty, i64 a_at,
                                                   i64 b_at, i64 operand) {
        u32 base = shared_address(shared);
        int stage = 0, phase = 1, sent = 0, first, blocks;
        blocks_of(p, first, blocks);
        b_at += (i64)first * p.packed_rows * 128;
        // Weights need not wait for the kernels before.
        if (threadIdx.x == 0) {
            int m0, n0;
            tile_at(p, blockIdx.x, m0, n0);
            u32 bytes = min(TN, p.packed_rows - n0) * 128;
            for (; sent < STAGES && sent < blocks; sent++)
                barrier_copy(full + sent * 8, base + sent * STAGE + 128 * 128,
                             (const char *)p.b + b_at + ((i64)sent * p.packed_rows + n0) * 128, bytes);
        }
        wait_for_previous();
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            int m0, n0;
            tile_at(p, tile, m0, n0);
            typename Fetcher::Fetch f;
            f.a = (const unsigned char *)p.a + a_at * T::SIZE;
            f.b = (const unsigned char *)p.b + b_at;
            const char *b = (const char *)p.b + b_at + (i64)n0 * 128;
            u32 bytes = min(TN, p.packed_rows - n0) * 128;
            Fetcher::fetch_begin(f, p, m0, n0, first);
            for (int block = 0; block < blocks; block++) {
                barrier_wait(empty + stage * 8, phase);
                if (threadIdx.x == 0) {
                    if (sent > 0)
                        sent--;
                    else
                        barrier_copy(full + stage * 8, base + stage * STAGE + 128 * 128, b, bytes);
                }
                b += (i64)p.packed_rows * 128;
                Fetcher::fetch_a(f, p, m0, first + block, stage);
                barrier_arrive_with_copies(full + stage * 8);
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
            if (!PARTED && p.order != ALONE)
                for (int band = 0; band < BANDS; band++) {
                    barrier_wait(empty + stage * 8, phase);
#pragma unroll 4
                    for (int item = threadIdx.x; item < 128 * BAND / 8; item += 128) {
                        int m = m0 + item / (BAND / 8), n = n0 + band * BAND + item % (BAND / 8) * 8;
                        if (m < p.m && n < p.n) {
                            i64 from = operand + n +
                                       Fetcher::row_at(p, m, p.operand_image, p.operand_y, p.operand_x);
#pragma unroll
                            for (int i = 0; i < T::SIZE / 2; i++)
                                copy_async(base + stage * STAGE + (item * (T::SIZE / 2) + i) * 16,
                                           (const char *)p.operand + from * T::SIZE + i * 16);
                        }
                    }
                    barrier_arrive_with_copies(full + stage * 8);
                    // In place of that for B.
                    if (threadIdx.x == 0) barrier_arrive(full + stage * 8);
                    if (++stage == STAGES) stage = 0, phase ^= 1;
                }
        }
    }

    static __device__ __forceinline__ void consume(const Args &p, int tiles, u32 full, u32 empty, i64 c_at,
                                                   int bias_at) {
        int thread = threadIdx.x - 128, group = thread >> 7, warp = thread >> 5, lane = thread & 31;
        u32 base = shared_address(shared);
        float *part = (float *)(shared + PARTS_AT + warp * PART);
        int stage = 0, phase = 0, first, blocks;
        blocks_of(p, first, blocks);
        wait_for_previous();
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            int m0, n0;
            tile_at(p, tile, m0, n0);
            float c[TN / 2];
            int before = 0;
            for (int block = 0; block < blocks; block++) {
                barrier_wait(full + stage * 8, phase);
                // What cp.async wrote, for instructions that read past the threads' own view.
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                u64 a = describe(base + stage * STAGE + group * 64 * 128),
                    b = describe(base + stage * STAGE + 128 * 128);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int step = 0; step < 4; step++)
                    Multiply<T, TN>::run(c, a + step * 2, b + step * 2, block > 0 || step > 0);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                // The block before this is done with.
                if (block > 0 && thread % 128 == 0) barrier_arrive(empty + before * 8);
                before = stage;
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (thread % 128 == 0) barrier_arrive(empty + before * 8);
#pragma unroll
            for (int i = 0; i < TN / 2; i++) asm volatile("" : "+f"(c[i])::"memory");
            if (PARTED) {
                // No block reads its stages any more.
                cluster_arrive();
                cluster_wait();
                int rows = p.part_rows.by, owner = divide(warp * 16, p.part_rows);
                u32 to = base + (((int)blockIdx.z * rows + warp * 16 - owner * rows + lane / 4) * SENT +
                                 lane % 4 * 2) *
                                    4;
                asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(to) : "r"(owner));
#pragma unroll
                for (int j = 0; j < TN / 8; j++)
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        asm volatile("st.shared::cluster.v2.f32 [%0], {%1,%2};" ::"r"(
                                         to + (h * 8 * SENT + j * 8) * 4),
                                     "f"(c[j * 4 + h * 2]), "f"(c[j * 4 + h * 2 + 1])
                                     : "memory");
                return;
            }
#pragma unroll
            for (int band = 0; band < BANDS; band++) {
                if (p.order != ALONE) barrier_wait(full + stage * 8, phase);
                __syncwarp();
#pragma unroll
                for (int j = 0; j < BAND / 8; j++)
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        *(float2 *)(part + (h * 8 + lane / 4) * PITCH + j * 8 + lane % 4 * 2) =
                            make_float2(c[(band * (BAND / 8) + j) * 4 + h * 2],
                                        c[(band * (BAND / 8) + j) * 4 + h * 2 + 1]);
                __syncwarp();
#pragma unroll 2
                for (int item = lane; item < 16 * BAND / 8; item += 32) {
                    int row = item / (BAND / 8), column = item % (BAND / 8) * 8;
                    int m = m0 + warp * 16 + row, n = n0 + band * BAND + column;
                    if (m >= p.m || n >= p.n) continue;
                    float x[8], y[8];
                    Single::load8(x, part, row * PITCH + column);
                    add_bias(p, x, bias_at + n);
                    if (p.order != ALONE)
                        T::load8(y, shared + stage * STAGE,
                                 ((warp * 16 + row) * (BAND / 8) + column / 8) * 8);
                    Fetcher::blend(p, x, y);
                    T::store8(p.c, c_at + n + Fetcher::row_at(p, m, p.c_image, p.c_y, p.c_x), x);
                }
                if (p.order != ALONE) {
                    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
                    if (thread % 128 == 0) barrier_arrive(empty + stage * 8);
                    if (++stage == STAGES) stage = 0, phase ^= 1;
                }
            }
        }
    }

    // Adds up this block's rows, which the other blocks of the cluster have sent.
    static __device__ __forceinline__ void finish(const Args &p, i64 c_at, i64 operand, int bias_at) {
        int m0, n0, rows = p.part_rows.by, row0 = blockIdx.z * rows;
        tile_at(p, blockIdx.x, m0, n0);
        for (int item = threadIdx.x; item < rows * (TN / 8); item += 384) {
            int row = item / (TN / 8), column = item % (TN / 8) * 8, m = m0 + row0 + row, n = n0 + column;
            if (m >= p.m || n >= p.n) continue;
            float x[8], y[8];
            if (p.order != ALONE)
                T::load8(y, p.operand,
                         operand + n + Fetcher::row_at(p, m, p.operand_image, p.operand_y, p.operand_x));
            Fetcher::sum(x, (const float *)shared + row * SENT + column, gridDim.z, rows * SENT);
            add_bias(p, x, bias_at + n);
            Fetcher::blend(p, x, y);
            T::store8(p.c, c_at + n + Fetcher::row_at(p, m, p.c_image, p.c_y, p.c_x), x);
        }
    }

    static __device__ __forceinline__ void add_bias(const Args &p, float (&x)[8], int at) {
        if (!p.bias) return;
        float4 l = __ldg((const float4 *)(p.bias + at)), h = __ldg((const float4 *)(p.bias + at) + 1);
        x[0] += l.x, x[1] += l.y, x[2] += l.z, x[3] += l.w, x[4] += h.x, x[5] += h.y, x[6] += h.z,
            x[7] += h.w;
    }

    static __device__ __forceinline__ void run(const Args &p) {
        let_next_start();
        u32 full = shared_address(shared) + BARRIERS_AT, empty = full + STAGES * 8;
        if (threadIdx.x < STAGES) {
            // All producers, and one of them for B; one of each warpgroup.
            barrier_begin(full + threadIdx.x * 8, 129);
            barrier_begin(empty + threadIdx.x * 8, 2);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
        int tiles = (p.m + 127) / 128 * p.tiles_n.by, outer = 0, inner = 0;
        if (gridDim.y > 1) outer = blockIdx.y / p.batch_inner, inner = blockIdx.y - outer * p.batch_inner;
        auto at = [&](const i64(&batch)[2]) { return outer * batch[0] + inner * batch[1]; };
        int bias_at = outer * p.bias_batch[0] + inner * p.bias_batch[1];
        if (threadIdx.x < 128) {
            produce(p, tiles, full, empty, at(p.a_batch), at(p.b_batch), at(p.operand_batch));
            if (PARTED) {
                __syncwarp();
                cluster_arrive();
                cluster_wait();
            }
        } else
            consume(p, tiles, full, empty, at(p.c_batch), bias_at);
        if (PARTED) {
            // All parts have come.
            __syncwarp();
            cluster_arrive();
            cluster_wait();
            finish(p, at(p.c_batch), at(p.operand_batch), bias_at);
        }
    }
};

// The one main loop of products and convolutions: a tile of C[m, n] = Σk A[m, k] · B[n, k] on the matrix
// units.
//
// Both operands come into shared memory as rows of 128 bytes along k (64 of f16, 32 of f32), eight chunks of
// 16 bytes each; chunk c of row r lies at position c ^ (r % 8), so that ldmatrix meets every bank once.
// Several such stages are under way at a time (cp.async). Rows beyond m or n hold rubbish, which only reaches
// elements that are not written; beyond k both are zero.
//
// How A is read: ROWS, 16 aligned bytes at a time along rows; WINDOWS, the same from the pixels of an image
// under a sliding window (implicit GEMM: nothing is unrolled in memory); GATHER, an element at a time, any
// strides, either. How B is read: PACKED, a constant already laid out as shared memory wants it (`pack.rs`):
// [block of k][n][128 bytes]; ROWS and GATHER as for A.
//
// k may be split among the blocks of grid.z. In a cluster (sm_90) they add up their parts through each
// other's shared memory; elsewhere through `partials`, and the last block to come does it. Both add in the
// order of k: same bits every time.
#pragma once
#include "arithmetic.cuh"
#include "div.cuh"

enum Read { ROWS, WINDOWS, GATHER, PACKED };

// As `Args` in tile.rs. Strides are in elements, but those of a packed B, in bytes.
struct Args {
    const void *a, *b;
    void *c;
    const float *bias;
    const void *operand;
    float *partials;
    u32 *counters;
    i64 a_batch[2], b_batch[2], c_batch[2], operand_batch[2];
    int bias_batch[2];
    // Items of the second axis of the batch, grid.y being both.
    int batch_inner;
    int m, n, k;
    // Blocks of 128 bytes along k, rows of a packed B.
    int k_blocks, packed_rows;
    // Tiles along n, and rows that a block of a cluster finishes.
    Div tiles_n, part_rows;
    // B that is not packed.
    int b_n, b_k;
    // Row i of C is pixel (i / out_hw, i % out_hw / out_w, i % out_w).
    Div out_w, out_hw;
    int c_image, c_y, c_x, c_n;
    int operand_image, operand_y, operand_x, operand_n;
    int act, order;
    float alpha, beta;
    // Whether C, the operand and the bias may be touched 8 elements at a time, and whether all rows of C and
    // the operand are equally far apart.
    int vector, flat;
    // A: ROWS has row i at a + i · a_x; the others are images.
    int a_image, a_y, a_x, a_c;
    int in_h, in_w, channels;
    // Channels that the packed weights have a place for, a multiple of a chunk for WINDOWS.
    Div tap_channels, window_w;
    int window_h, stride_y, stride_x, dilation_y, dilation_x, before_y, before_x;
};
static_assert(sizeof(Args) == 344, "as in tile.rs");

// Shared memory of a kernel, in bytes; as `shared_bytes` in product.rs.
extern __shared__ __align__(1024) unsigned char shared[];

template <class T, int TM, int TN, int WM, int WN, int SLICES, int STAGES, int READ_A, int READ_B>
struct Tile {
    // Warps that share a tile's rows and columns, times those that share a block of k.
    static const int SPREAD = TM / WM * (TN / WN), THREADS = SPREAD * SLICES * 32;
    static const int MI = WM / 16, NI = WN / 8, STEPS = 4 / SLICES;
    // Rows that the block's threads copy at a time, and how often they do.
    static const int PASS = THREADS / 8, PASSES_A = (TM + PASS - 1) / PASS, PASSES_B = (TN + PASS - 1) / PASS;
    static const int BYTES_A = TM * 128, BYTES_B = TN * 128, STAGE = BYTES_A + BYTES_B;
    // Elements of a row along k, and floats of a row of the finished tile.
    static const int K = 128 / T::SIZE, PITCH = TN + 8;
    static const int E = T::CHUNK;
    // Shared memory, in bytes; as `Memory` in tile.rs. The stages, later the finished tile; the operand,
    // before the stages are done with where there is room for both; the bias; what other blocks of the
    // cluster send.
    static const int STAGES_BYTES = STAGES * STAGE, FINISHED = SLICES * TM * PITCH * 4,
                     OPERAND = TM * TN * T::SIZE;
    static const bool EARLY = STAGES_BYTES + OPERAND + TN * 4 <= 112 * 1024;
    static const int NEEDED = FINISHED + (EARLY ? 0 : OPERAND),
                     BODY = STAGES_BYTES > NEEDED ? +STAGES_BYTES : +NEEDED;
    static const int OPERAND_AT = EARLY ? BODY : FINISHED, BIAS_AT = BODY + (EARLY ? OPERAND : 0);
    static const int ARRIVED_AT = BIAS_AT + TN * 4, RECEIVED_AT = ARRIVED_AT + 16;

    static const bool TABLED = READ_A == WINDOWS && PASSES_A >= 8;
    static const int HELD = TABLED || READ_A == GATHER ? 1 : PASSES_A;
    // Rows of TABLED. A thread reads what it wrote itself.
    static __device__ __forceinline__ int2 *table() {
        __shared__ int2 rows[TABLED ? TM : 1];
        return rows;
    }

    // What a thread keeps to fetch its chunks: always the same chunk of a row, of rows PASS apart.
    struct Fetch {
        const unsigned char *a, *b;
        u32 to;
        int row, column;
        // Of WINDOWS and GATHER, per row: where its window begins, from a, and y << 16 | x of it. Many are
        // kept in shared memory instead.
        int start[HELD], corner[HELD];
        // Of WINDOWS: the tap that comes next.
        int tap_y, tap_x, channel;
    };

    static __device__ __forceinline__ void fetch_begin(Fetch &f, const Args &p, int m0, int n0, int block) {
        int thread = threadIdx.x;
        f.row = thread >> 3, f.column = thread & 7;
        f.to = shared_address(shared) + f.row * 128 + ((f.column ^ (f.row & 7)) << 4);
        if (READ_A == ROWS) f.a += ((i64)(m0 + f.row) * p.a_x + block * K + f.column * E) * T::SIZE;
        if (READ_A == WINDOWS || READ_A == GATHER) {
#pragma unroll
            for (int i = 0; i < (READ_A == GATHER ? 1 : PASSES_A); i++) {
                // Gathering, neighbouring threads have neighbouring rows.
                int m = m0 + (READ_A == GATHER ? thread % TM : f.row + i * PASS);
                u32 image = divide(m, p.out_hw), rest = m - image * p.out_hw.by;
                u32 row = divide(rest, p.out_w), column = rest - row * p.out_w.by;
                int y = (int)row * p.stride_y - p.before_y, x = (int)column * p.stride_x - p.before_x;
                int start = (int)image * p.a_image + y * p.a_y + x * p.a_x;
                // A row beyond m lies far above the image, and stays there whatever the tap.
                int corner = (int)((u32)(m < p.m ? y : -0x8000) << 16 | (x & 0xffff));
                if (TABLED)
                    table()[f.row + i * PASS] = make_int2(start, corner);
                else
                    f.start[i] = start, f.corner[i] = corner;
            }
        }
        if (READ_A == WINDOWS) {
            int at = block * K + f.column * E;
            u32 tap = divide(at, p.tap_channels);
            f.channel = at - tap * p.tap_channels.by;
            f.tap_y = divide(tap, p.window_w);
            f.tap_x = tap - f.tap_y * p.window_w.by;
        }
        if (READ_B == PACKED) f.b += ((i64)block * p.packed_rows + n0) * 128 + thread * 16;
        if (READ_B == ROWS) f.b += ((i64)(n0 + f.row) * p.b_n + block * K + f.column * E) * T::SIZE;
    }

    // Whether the tap (y, x) of the window at a corner is inside of the image.
    static __device__ __forceinline__ bool inside(const Args &p, int corner, int y, int x) {
        int at_y = (corner >> 16) + y, at_x = (int)(short)corner + x;
        return (u32)at_y < (u32)p.in_h && (u32)at_x < (u32)p.in_w;
    }

    static __device__ __forceinline__ void store_chunk(u32 to, const u32 (&w)[4]) {
        asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]),
                     "r"(w[3])
                     : "memory");
    }
    // Puts element e into a chunk of words.
    static __device__ __forceinline__ void put(u32 (&w)[4], int e, u32 bits) {
        if (T::SIZE == 4)
            w[e & 3] = bits;
        else
            w[e >> 1] |= e & 1 ? bits << 16 : bits;
    }

    static __device__ __forceinline__ void fetch_a(Fetch &f, const Args &p, int m0, int block, int stage) {
        u32 to = f.to + stage * STAGE;
        if (READ_A == ROWS) {
            int bytes = (p.k - block * K - f.column * E) * T::SIZE;
            bytes = bytes < 0 ? 0 : bytes > 16 ? 16 : bytes;
#pragma unroll
            for (int i = 0; i < PASSES_A; i++) {
                int row = f.row + i * PASS;
                if (TM % PASS == 0 || row < TM)
                    copy_async(to + i * PASS * 128, f.a + (i64)(i * PASS) * p.a_x * T::SIZE,
                               m0 + row < p.m ? bytes : 0);
            }
            f.a += 128;
        } else if (READ_A == WINDOWS) {
            int y = f.tap_y * p.dilation_y, x = f.tap_x * p.dilation_x;
            int delta = y * p.a_y + x * p.a_x + f.channel;
            int bytes = (p.channels - f.channel) * T::SIZE;
            bytes = f.tap_y >= p.window_h ? 0 : bytes > 16 ? 16 : bytes;
#pragma unroll
            for (int i = 0; i < PASSES_A; i++) {
                int row = f.row + i * PASS;
                if (TM % PASS == 0 || row < TM) {
                    int2 at =
                        TABLED ? table()[row] : make_int2(f.start[TABLED ? 0 : i], f.corner[TABLED ? 0 : i]);
                    copy_async(to + i * PASS * 128, f.a + (i64)(at.x + delta) * T::SIZE,
                               inside(p, at.y, y, x) ? bytes : 0);
                }
            }
            f.channel += K;
            while (f.channel >= (int)p.tap_channels.by) {
                f.channel -= p.tap_channels.by;
                if (++f.tap_x == (int)p.window_w.by) f.tap_x = 0, f.tap_y++;
            }
        } else {
            // Each lane works out the taps of some elements along k, and all learn them from it.
            int lane = threadIdx.x & 31, deltas[K / 32], taps[K / 32];
#pragma unroll
            for (int i = 0; i < K / 32; i++) {
                u32 at = block * K + i * 32 + lane, tap = divide(at, p.tap_channels);
                int channel = at - tap * p.tap_channels.by;
                int tap_y = divide(tap, p.window_w), tap_x = tap - tap_y * p.window_w.by;
                int y = tap_y * p.dilation_y, x = tap_x * p.dilation_x;
                deltas[i] = y * p.a_y + x * p.a_x + channel * p.a_c;
                taps[i] = (tap_y < p.window_h && channel < p.channels ? y : 0x7fff) << 16 | x;
            }
            const int COLUMNS = THREADS / TM;
            int row = threadIdx.x % TM, first = threadIdx.x / TM;
            u32 line = shared_address(shared) + stage * STAGE + row * 128;
#pragma unroll
            for (int i = 0; i < 8 / COLUMNS; i++) {
                int column = first + i * COLUMNS;
                u32 w[4] = {};
#pragma unroll
                for (int e = 0; e < E; e++) {
                    // COLUMNS divides the chunks whose taps are in the same variable.
                    int from = (column * E + e) & 31, variable = i * COLUMNS * E / 32;
                    int delta = __shfl_sync(~0u, deltas[variable], from),
                        tap = __shfl_sync(~0u, taps[variable], from);
                    if (inside(p, f.corner[0], tap >> 16, tap & 0xffff))
                        put(w, e, ((const typename T::Stored *)f.a)[(i64)(f.start[0] + delta)]);
                }
                store_chunk(line + ((column ^ (row & 7)) << 4), w);
            }
        }
    }

    static __device__ __forceinline__ void fetch_b(Fetch &f, const Args &p, int n0, int block, int stage) {
        u32 to = f.to + stage * STAGE + BYTES_A;
        if (READ_B == PACKED) {
            // Already swizzled: a copy as it is.
            u32 at = shared_address(shared) + stage * STAGE + BYTES_A + threadIdx.x * 16;
#pragma unroll
            for (int i = 0; i < PASSES_B; i++) {
                int row = f.row + i * PASS;
                if ((TN % PASS == 0 || row < TN) && n0 + row < p.packed_rows)
                    copy_async(at + i * PASS * 128, f.b + i * PASS * 128);
            }
            f.b += (i64)p.packed_rows * 128;
        } else if (READ_B == ROWS) {
            int bytes = (p.k - block * K - f.column * E) * T::SIZE;
            bytes = bytes < 0 ? 0 : bytes > 16 ? 16 : bytes;
#pragma unroll
            for (int i = 0; i < PASSES_B; i++) {
                int row = f.row + i * PASS;
                if (TN % PASS == 0 || row < TN)
                    copy_async(to + i * PASS * 128, f.b + (i64)(i * PASS) * p.b_n * T::SIZE,
                               n0 + row < p.n ? bytes : 0);
            }
            f.b += 128;
        } else {
#pragma unroll
            for (int i = 0; i < PASSES_B; i++) {
                int row = f.row + i * PASS;
                u32 w[4] = {};
#pragma unroll
                for (int e = 0; e < E; e++) {
                    int at = block * K + f.column * E + e;
                    if (at < p.k && n0 + row < p.n)
                        put(w, e,
                            ((const typename T::Stored *)f.b)[(i64)(n0 + row) * p.b_n + (i64)at * p.b_k]);
                }
                if (TN % PASS == 0 || row < TN) store_chunk(to + i * PASS * 128, w);
            }
        }
    }

    // How far row m is from the first, given the distances of neighbours.
    static __device__ __forceinline__ i64 row_at(const Args &p, u32 m, int image_stride, int y_stride,
                                                 int x_stride) {
        if (p.flat) return (i64)(int)m * x_stride;
        u32 image = divide(m, p.out_hw), rest = m - image * p.out_hw.by;
        u32 row = divide(rest, p.out_w), column = rest - row * p.out_w.by;
        return (i64)image * image_stride + (i64)row * y_stride + (i64)column * x_stride;
    }

    // Brings the operand of rows `first` to `last` of the tile, each thread what it will use itself.
    static __device__ __forceinline__ void fetch_operand(const Args &p, i64 operand, int m0, int n0,
                                                         int first, int last) {
        u32 to = shared_address(shared) + OPERAND_AT;
#pragma unroll 1
        for (int item = first * (TN / 8) + threadIdx.x; item < last * (TN / 8); item += THREADS) {
            int m = m0 + item / (TN / 8), n = n0 + item % (TN / 8) * 8;
            if (m < p.m && n + 8 <= p.n) {
                i64 at = operand + n + row_at(p, m, p.operand_image, p.operand_y, p.operand_x);
#pragma unroll
                for (int i = 0; i < T::SIZE / 2; i++)
                    copy_async(to + (item * (T::SIZE / 2) + i) * 16,
                               (const unsigned char *)p.operand + at * T::SIZE + i * 16);
            }
        }
    }

    // Activation and operand.
    static __device__ __forceinline__ void blend(const Args &p, float (&x)[8], const float (&y)[8]) {
        if (p.order == ADD_BEFORE)
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] += y[i];
        activate_all(p.act, x, p.alpha, p.beta);
        if (p.order == ADD_AFTER)
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] += y[i];
        if (p.order == MUL_AFTER)
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] *= y[i];
    }

    // Bias, activation and operand for 8 neighbours of a row of C, and away with them.
    static __device__ __forceinline__ void finish(const Args &p, float (&x)[8], int item, int m, int n, i64 c,
                                                  i64 operand, bool fetched) {
        if (m >= p.m || n >= p.n) return;
        c += row_at(p, m, p.c_image, p.c_y, p.c_x);
        bool vector = p.vector && n + 8 <= p.n;
        float y[8];
        if (p.bias) {
            const float *bias = (const float *)(shared + BIAS_AT) + item % (TN / 8) * 8;
            Single::load8(y, bias, 0);
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] += y[i];
        }
        if (p.order != ALONE) {
            if (vector && fetched)
                T::load8(y, shared + OPERAND_AT, item * 8);
            else {
                operand += row_at(p, m, p.operand_image, p.operand_y, p.operand_x);
                if (vector)
                    T::load8(y, p.operand, operand + n);
                else
#pragma unroll
                    for (int i = 0; i < 8; i++)
                        y[i] = n + i < p.n ? T::load(p.operand, operand + (i64)(n + i) * p.operand_n) : 0.0f;
            }
        }
        blend(p, x, y);
        if (vector)
            T::store8(p.c, c + n, x);
        else
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (n + i < p.n) T::store(p.c, c + (i64)(n + i) * p.c_n, x[i]);
    }

    // Eight neighbours of a row, summed up over parts that are `stride` floats apart.
    static __device__ __forceinline__ void sum(float (&x)[8], const float *from, int parts, int stride) {
        float4 low = *(const float4 *)from, high = *(const float4 *)(from + 4);
#pragma unroll 2
        for (int i = 1; i < parts; i++) {
            float4 l = *(const float4 *)(from + i * stride), h = *(const float4 *)(from + i * stride + 4);
            low.x += l.x, low.y += l.y, low.z += l.z, low.w += l.w;
            high.x += h.x, high.y += h.y, high.z += h.z, high.w += h.w;
        }
        x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w, x[4] = high.x, x[5] = high.y, x[6] = high.z,
        x[7] = high.w;
    }

    static __device__ __forceinline__ void run(const Args &p) {
        let_next_start();
        int splits = gridDim.z, z = blockIdx.z, first = 0, blocks = p.k_blocks;
        // Which rows of the tile this block finishes. In a cluster each block has some, and parts of them
        // from all.
        int rows = TM, row_first = 0, row_last = TM;
        bool cluster = splits > 1 && cluster_blocks() > 1;
        u32 base = shared_address(shared), arrived = base + ARRIVED_AT;
        if (splits > 1) {
            first = p.k_blocks * z / splits;
            blocks = p.k_blocks * (z + 1) / splits - first;
            if (cluster) {
                rows = p.part_rows.by, row_first = min(rows * z, TM), row_last = min(row_first + rows, TM);
                if (threadIdx.x == 0) expect(arrived, (row_last - row_first) * TN * 4 * splits);
                // Others may send to this block once all have begun.
                cluster_arrive();
            }
        }
        int tile_m = divide(blockIdx.x, p.tiles_n), m0 = tile_m * TM,
            n0 = (blockIdx.x - tile_m * p.tiles_n.by) * TN;
        int outer = 0, inner = 0;
        if (gridDim.y > 1) outer = blockIdx.y / p.batch_inner, inner = blockIdx.y - outer * p.batch_inner;
        i64 operand = outer * p.operand_batch[0] + inner * p.operand_batch[1];
        i64 c_at = outer * p.c_batch[0] + inner * p.c_batch[1];
        bool fetched = p.order != ALONE && p.vector && (splits == 1 || cluster);

        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, slice = warp / SPREAD;
        int wm = warp % SPREAD % (TM / WM) * WM, wn = warp % SPREAD / (TM / WM) * WN;
        // Rows' addresses for ldmatrix; a swizzled chunk is an exclusive or away.
        u32 from_a = base + (wm + (lane & 15)) * 128,
            from_b = base + BYTES_A + (wn + (lane & 7) + (lane >> 4) * 8) * 128;
        int swizzle_a = lane >> 4 ^ lane & 7 ^ slice * STEPS * 2,
            swizzle_b = lane >> 3 & 1 ^ lane & 7 ^ slice * STEPS * 2;

        Fetch f;
        f.a = (const unsigned char *)p.a + (outer * p.a_batch[0] + inner * p.a_batch[1]) * T::SIZE;
        f.b = (const unsigned char *)p.b +
              (outer * p.b_batch[0] + inner * p.b_batch[1]) * (READ_B == PACKED ? 1 : T::SIZE);
        fetch_begin(f, p, m0, n0, first);

        // Packed operands and the bias are constants, which need not wait for the kernels before. Loops that
        // run once a launch are kept short.
        if (READ_B == PACKED)
#pragma unroll 1
            for (int s = 0; s < STAGES - 1 && s < blocks; s++) fetch_b(f, p, n0, first + s, s);
        if (p.bias)
#pragma unroll 1
            for (int i = threadIdx.x; i < TN; i += THREADS)
                ((float *)(shared + BIAS_AT))[i] =
                    n0 + i < p.n ? p.bias[outer * p.bias_batch[0] + inner * p.bias_batch[1] + n0 + i] : 0.0f;
        wait_for_previous();
#pragma unroll 1
        for (int s = 0; s < STAGES - 1; s++) {
            if (s < blocks) {
                fetch_a(f, p, m0, first + s, s);
                if (READ_B != PACKED) fetch_b(f, p, n0, first + s, s);
            }
            copies_commit();
        }
        if (EARLY && fetched) fetch_operand(p, operand, m0, n0, row_first, row_last);

        float c[MI][NI][4] = {};
        u32 a[2][MI][4], b[2][NI / 2][4];
        auto load = [&](int to, int step, int stage) {
            u32 at_a = from_a + stage * STAGE + ((step * 2 ^ swizzle_a) << 4);
            u32 at_b = from_b + stage * STAGE + ((step * 2 ^ swizzle_b) << 4);
#pragma unroll
            for (int i = 0; i < MI; i++) load_matrices(a[to][i], at_a + i * 16 * 128);
#pragma unroll
            for (int j = 0; j < NI / 2; j++) load_matrices(b[to][j], at_b + j * 16 * 128);
        };
        copies_wait<STAGES - 2>();
        __syncthreads();
        load(0, 0, 0);
        int stage = 0, free = STAGES - 1;
#pragma unroll 1
        for (int block = 0; block < blocks; block++) {
            int next = stage + 1 == STAGES ? 0 : stage + 1;
            Sums<T, MI, NI> sums(c);
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                if (step == STEPS - 1) {
                    // The next stage is there, and nobody reads from the one before this any more. With a
                    // single step the fetch that belongs to this block comes only after.
                    copies_wait<STEPS == 1 ? STAGES - 3 : STAGES - 2>();
                    __syncthreads();
                }
                load((step + 1) & 1, (step + 1) % STEPS, step == STEPS - 1 ? next : stage);
                if (step == 0) {
                    if (block + STAGES - 1 < blocks) {
                        fetch_a(f, p, m0, first + block + STAGES - 1, free);
                        fetch_b(f, p, n0, first + block + STAGES - 1, free);
                    }
                    copies_commit();
                    free = free + 1 == STAGES ? 0 : free + 1;
                }
                T::template step<MI, NI>(sums.c, a[step & 1], b[step & 1]);
            }
            if (STEPS == 1) {
#pragma unroll
                for (int w = 0; w < 4; w++) {
#pragma unroll
                    for (int i = 0; i < MI; i++) a[0][i][w] = a[1][i][w];
#pragma unroll
                    for (int j = 0; j < NI / 2; j++) b[0][j][w] = b[1][j][w];
                }
            }
            sums.end(c);
            stage = next;
        }
        copies_wait<0>();
        __syncthreads();
        if (!EARLY && fetched) fetch_operand(p, operand, m0, n0, row_first, row_last);

        // The tile into shared memory, a part for each slice, so that rows leave in one piece.
        float *tile = (float *)shared;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NI; j++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    *(float2 *)(tile + (slice * TM + wm + i * 16 + h * 8 + lane / 4) * PITCH + wn + j * 8 +
                                lane % 4 * 2) = make_float2(c[i][j][h * 2], c[i][j][h * 2 + 1]);
        __syncthreads();

        // Where the parts of each item, eight neighbours of a row, are: those of item i at i · 8 where they
        // came from other blocks, else by row.
        const float *parts = tile;
        int parts_count = SLICES, stride = TM * PITCH;
        if (splits > 1) {
            i64 at = blockIdx.y * (i64)gridDim.x + blockIdx.x;
            if (cluster) cluster_wait();
#pragma unroll 1
            for (int item = threadIdx.x; item < TM * TN / 8; item += THREADS) {
                int row = item / (TN / 8);
                float x[8];
                sum(x, tile + row * PITCH + item % (TN / 8) * 8, SLICES, TM * PITCH);
                if (cluster) {
                    int owner = divide(row, p.part_rows);
                    u32 to = RECEIVED_AT + ((z * rows - owner * rows) * (TN / 8) + item) * 32;
                    cluster_send(base + to, arrived, owner, x);
                } else
                    Single::store8(p.partials, (at * splits + z) * (TM * TN) + item * 8, x);
            }
            if (cluster) {
                if (row_first < row_last) await(arrived);
                stride = rows * TN;
                parts = (const float *)(shared + RECEIVED_AT) - row_first * TN;
            } else {
                __threadfence();
                __syncthreads();
                u32 *last = (u32 *)shared;
                if (threadIdx.x == 0) {
                    *last = atomicAdd(p.counters + at, 1) == splits - 1;
                    // Ready for the next launch.
                    if (*last) p.counters[at] = 0;
                    __threadfence();
                }
                __syncthreads();
                if (!*last) return;
                stride = TM * TN;
                parts = p.partials + at * splits * (TM * TN);
            }
            parts_count = splits;
        }
        // The operand too, which may be in no group yet.
        copies_wait_all();
        // Long loops pay for a second copy of the code; short ones wait for it to be fetched.
        constexpr int COPIES = READ_A == ROWS && TM * TN / 8 / THREADS >= 8 ? 2 : 1;
#pragma unroll COPIES
        for (int item = row_first * (TN / 8) + threadIdx.x; item < row_last * (TN / 8); item += THREADS) {
            int row = item / (TN / 8), column = item % (TN / 8) * 8;
            float x[8];
            sum(x, parts + (splits > 1 ? item * 8 : row * PITCH + column), parts_count, stride);
            finish(p, x, item, m0 + row, n0 + column, c_at, operand, fetched);
        }
    }
};

#define TILE(name, type, tm, tn, wm, wn, slices, stages, read_a, read_b, resident)                           \
    extern "C" __global__ void __launch_bounds__(tm / wm * (tn / wn) * slices * 32, resident)                \
        name(const __grid_constant__ Args p) {                                                               \
        Tile<type, tm, tn, wm, wn, slices, stages, read_a, read_b>::run(p);                                  \
    }

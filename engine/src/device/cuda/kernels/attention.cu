// softmax(scale · q · kᵀ + mask) · v in one kernel: scores stay in registers, and the softmax is kept up as
// keys come (Milakov and Gimelshein 2018; Dao et al. 2022, FlashAttention).
//
// A block has 16 queries a row of warps, whose warps share the keys and add up in the end: many of them where
// queries are few. Depth and columns up to 128. Grid: (tiles of queries, batch). May be captured, and
// launched dependently.
//
// Scores are kept in powers of two. A mask below -2e38, −∞ among them, is taken for that, so that a query
// whose keys are all masked weighs them alike instead of becoming NaN; with `zeroes` −∞ is what it is, and
// such a query gets 0.
#include "tile.cuh"

// As `Args` in attention.rs. Strides are in elements.
struct Attention {
    const void *q, *k, *v, *mask;
    void *y;
    i64 q_batch[2], k_batch[2], v_batch[2], y_batch[2], mask_batch[2];
    int batch_inner, queries, keys, depth, columns;
    // From a row to the next, and along it.
    int q_row, q_column, k_row, k_column, v_row, v_column, y_row, y_column, mask_row, mask_column;
    // Whether rows of q, k and v, and those of y, are aligned to 16 bytes.
    int vector, vector_y;
    float scale;
    int zeroes;
};
static_assert(sizeof(Attention) == 200, "as in attention.rs");

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <class T, int DEPTH, int Q_WARPS, int K_WARPS, int KEYS, int STAGES> struct Attend {
    static const int THREADS = Q_WARPS * K_WARPS * 32;
    // Bytes of a row, whose chunks lie at position c ^ (row % 8); keys of a step of the block.
    static const int ROW = DEPTH * T::SIZE, CHUNKS = ROW / 16, BLOCK = K_WARPS * KEYS;
    static const int BYTES_Q = Q_WARPS * 16 * ROW, BYTES_K = BLOCK * ROW, STAGE = 2 * BYTES_K;
    // 32-byte steps along the depth, groups of 8 keys, groups of 8 columns.
    static const int STEPS = ROW / 32, NI = KEYS / 8, NO = DEPTH / 8;
    static const int PITCH = DEPTH + 4;

    // Brings `rows` rows, those from `valid` on and what is beyond the depth as zeros.
    static __device__ __forceinline__ void fetch(u32 to, const unsigned char *from, int rows, int valid,
                                                 int depth, int row_stride, int column_stride, bool vector) {
        if (vector) {
            // A thread's chunks lie in one column.
            const int PASS = THREADS / CHUNKS;
            int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS,
                bytes = (depth - chunk * T::CHUNK) * T::SIZE;
            bytes = bytes < 0 ? 0 : bytes > 16 ? 16 : bytes;
            from += ((i64)row * row_stride + chunk * T::CHUNK) * T::SIZE;
#pragma unroll 4
            for (; row < rows; row += PASS) {
                copy_async(to + row * ROW + ((chunk ^ (row & 7)) << 4), from, row < valid ? bytes : 0);
                from += (i64)PASS * row_stride * T::SIZE;
            }
            return;
        }
#pragma unroll 1
        for (int i = threadIdx.x; i < rows * CHUNKS; i += THREADS) {
            int row = i / CHUNKS, chunk = i % CHUNKS, left = row < valid ? depth - chunk * T::CHUNK : 0;
            u32 w[4] = {};
#pragma unroll
            for (int e = 0; e < T::CHUNK; e++)
                if (e < left) {
                    u32 bits =
                        ((const typename T::Stored *)
                             from)[(i64)row * row_stride + (i64)(chunk * T::CHUNK + e) * column_stride];
                    if (T::SIZE == 4)
                        w[e & 3] = bits;
                    else
                        w[e >> 1] |= e & 1 ? bits << 16 : bits;
                }
            u32 at = to + row * ROW + ((chunk ^ (row & 7)) << 4);
            asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]),
                         "r"(w[3])
                         : "memory");
        }
    }

    static __device__ __forceinline__ void run(const Attention &p) {
        let_next_start();
        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, q_warp = warp % Q_WARPS,
            k_warp = warp / Q_WARPS;
        int first = blockIdx.x * (Q_WARPS * 16);
        int outer = blockIdx.y / p.batch_inner, inner = blockIdx.y - outer * p.batch_inner;
        const unsigned char *q =
            (const unsigned char *)p.q +
            (outer * p.q_batch[0] + inner * p.q_batch[1] + (i64)first * p.q_row) * T::SIZE;
        const unsigned char *k =
            (const unsigned char *)p.k + (outer * p.k_batch[0] + inner * p.k_batch[1]) * T::SIZE;
        const unsigned char *v =
            (const unsigned char *)p.v + (outer * p.v_batch[0] + inner * p.v_batch[1]) * T::SIZE;
        i64 mask = outer * p.mask_batch[0] + inner * p.mask_batch[1];
        u32 base = shared_address(shared);
        wait_for_previous();

        // Keys and values of a block, by the same code.
        auto bring = [&](int block) {
            int at = block * BLOCK;
            u32 to = base + BYTES_Q + block % STAGES * STAGE;
            if (at < p.keys)
#pragma unroll 1
                for (int values = 0; values < 2; values++) {
                    int row = values ? p.v_row : p.k_row, column = values ? p.v_column : p.k_column;
                    fetch(to + values * BYTES_K, (values ? v : k) + (i64)at * row * T::SIZE, BLOCK,
                          p.keys - at, values ? p.columns : p.depth, row, column, p.vector);
                }
            copies_commit();
        };
        fetch(base, q, Q_WARPS * 16, p.queries - first, p.depth, p.q_row, p.q_column, p.vector);

        // Rows lane / 4 and 8 below it: the largest score so far, and the sum of weights relative to it.
        float largest[2] = {-__int_as_float(0x7f800000), -__int_as_float(0x7f800000)}, total[2] = {};
        float out[NO][4] = {};
        const float LOG2E = 1.4426950408889634f;
        float scale = p.scale * LOG2E;
        int swizzle = lane & 7;
        u32 from_q = base + (q_warp * 16 + (lane & 15)) * ROW;
        int blocks = (p.keys + BLOCK - 1) / BLOCK;
        // Whether masks of neighbouring keys can be read two at a time.
        bool pairs = p.mask && p.mask_column == 1 && (((u64)p.mask >> 2 | mask | p.mask_row) & 1) == 0;
#pragma unroll 1
        for (int block = 1 - STAGES; block < blocks; block++) {
            bring(block + STAGES - 1);
            if (block < 0) continue;
            // Masks come while keys do.
            int key0 = block * BLOCK + k_warp * KEYS, row0 = first + q_warp * 16 + lane / 4;
            float masks[NI][4];
            if (pairs && key0 + KEYS <= p.keys) {
                auto load = [&](int row, int e) {
                    i64 at = mask + (i64)min(row, p.queries - 1) * p.mask_row + key0 + lane % 4 * 2;
                    const float2 *from = (const float2 *)((const float *)p.mask + at);
#pragma unroll
                    for (int j = 0; j < NI; j++) {
                        float2 two = __ldg(from + j * 4);
                        masks[j][e] = two.x, masks[j][e + 1] = two.y;
                    }
                };
                load(row0, 0);
                if (p.mask_row)
                    load(row0 + 8, 2);
                else
#pragma unroll
                    for (int j = 0; j < NI; j++) masks[j][2] = masks[j][0], masks[j][3] = masks[j][1];
            } else if (p.mask) {
                // Those beyond the last are not looked at.
                auto load = [&](int j, int e) {
                    int key = min(key0 + j * 8 + lane % 4 * 2 + (e & 1), p.keys - 1),
                        row = min(row0 + e / 2 * 8, p.queries - 1);
                    return Single::load(p.mask, mask + (i64)row * p.mask_row + (i64)key * p.mask_column);
                };
#pragma unroll
                for (int j = 0; j < NI; j++)
                    masks[j][0] = masks[j][2] = load(j, 0), masks[j][1] = masks[j][3] = load(j, 1);
                if (p.mask_row)
#pragma unroll
                    for (int j = 0; j < NI; j++) masks[j][2] = load(j, 2), masks[j][3] = load(j, 3);
            }
            copies_wait<STAGES - 1>();
            __syncthreads();
            u32 from = base + BYTES_Q + block % STAGES * STAGE + k_warp * KEYS * ROW;
            float s[1][NI][4] = {};
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                u32 a[1][4], b[NI / 2][4];
                load_matrices(a[0], from_q + ((step * 2 + (lane >> 4) ^ swizzle) << 4));
#pragma unroll
                for (int j = 0; j < NI / 2; j++)
                    load_matrices(b[j], from + (j * 16 + (lane & 7) + (lane >> 4) * 8) * ROW +
                                            ((step * 2 + (lane >> 3 & 1) ^ swizzle) << 4));
                T::template step<1, NI>(s, a, b);
            }
            float high[2] = {largest[0], largest[1]};
#pragma unroll
            for (int j = 0; j < NI; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int key = key0 + j * 8 + lane % 4 * 2 + (e & 1);
                    float x = s[0][j][e] * scale;
                    if (p.mask) x += (p.zeroes ? masks[j][e] : fmaxf(masks[j][e], -2e38f)) * LOG2E;
                    x = key < p.keys ? x : -__int_as_float(0x7f800000);
                    s[0][j][e] = x;
                    high[e / 2] = fmaxf(high[e / 2], x);
                }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                high[r] = fmaxf(high[r], __shfl_xor_sync(~0u, high[r], 1));
                high[r] = fmaxf(high[r], __shfl_xor_sync(~0u, high[r], 2));
                // Nothing but −∞ so far: every weight is 0, whatever they are relative to.
                float reference = high[r] == -__int_as_float(0x7f800000) ? 0.0f : high[r];
                float shrink = exp2_fast(largest[r] - reference);
                largest[r] = high[r];
                total[r] *= shrink;
#pragma unroll
                for (int j = 0; j < NO; j++) out[j][r * 2] *= shrink, out[j][r * 2 + 1] *= shrink;
#pragma unroll
                for (int j = 0; j < NI; j++)
#pragma unroll
                    for (int e = r * 2; e < r * 2 + 2; e++) {
                        s[0][j][e] = exp2_fast(s[0][j][e] - reference);
                        total[r] += s[0][j][e];
                    }
            }
            weigh(out, s[0], from + BYTES_K, lane, (T *)0);
            // The stage is free for the keys after the next.
            __syncthreads();
        }
        copies_wait<0>();
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            total[r] += __shfl_xor_sync(~0u, total[r], 1);
            total[r] += __shfl_xor_sync(~0u, total[r], 2);
        }
        // Parts of each row: its columns, then the largest score and the total.
        float *parts = (float *)shared + (k_warp * Q_WARPS + q_warp) * 16 * PITCH;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float *row = parts + (lane / 4 + r * 8) * PITCH;
#pragma unroll
            for (int j = 0; j < NO; j++)
                *(float2 *)(row + j * 8 + lane % 4 * 2) = make_float2(out[j][r * 2], out[j][r * 2 + 1]);
            if (lane % 4 == 0) row[DEPTH] = largest[r], row[DEPTH + 1] = total[r];
        }
        __syncthreads();
        i64 y = outer * p.y_batch[0] + inner * p.y_batch[1];
        for (int i = threadIdx.x; i < Q_WARPS * 16 * NO; i += THREADS) {
            int row = i / NO, column = i % NO * 8;
            if (first + row >= p.queries || column >= p.columns) continue;
            float high = -__int_as_float(0x7f800000), sum = 0.0f, x[8] = {};
#pragma unroll
            for (int w = 0; w < K_WARPS; w++)
                high = fmaxf(high, ((float *)shared)[(w * Q_WARPS * 16 + row) * PITCH + DEPTH]);
            float reference = high == -__int_as_float(0x7f800000) ? 0.0f : high;
#pragma unroll
            for (int w = 0; w < K_WARPS; w++) {
                const float *part = (float *)shared + (w * Q_WARPS * 16 + row) * PITCH;
                float factor = exp2_fast(part[DEPTH] - reference);
                sum += part[DEPTH + 1] * factor;
                float y[8];
                Single::load8(y, part, column);
#pragma unroll
                for (int e = 0; e < 8; e++) x[e] += y[e] * factor;
            }
            float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
            for (int e = 0; e < 8; e++) x[e] *= inverse;
            i64 at = y + (i64)(first + row) * p.y_row;
            if (p.vector_y && column + 8 <= p.columns)
                T::store8(p.y, at + column, x);
            else
#pragma unroll
                for (int e = 0; e < 8; e++)
                    if (column + e < p.columns) T::store(p.y, at + (i64)(column + e) * p.y_column, x[e]);
        }
    }

    // out += weights · values. The weights are where a product leaves them, which for f16 is also where the
    // next one wants its left side.
    static __device__ __forceinline__ void weigh(float (&out)[NO][4], float (&s)[NI][4], u32 values, int lane,
                                                 F16 *) {
#pragma unroll
        for (int j = 0; j < NI / 2; j++) {
            u32 a[4] = {to_halves(s[j * 2][0], s[j * 2][1]), to_halves(s[j * 2][2], s[j * 2][3]),
                        to_halves(s[j * 2 + 1][0], s[j * 2 + 1][1]),
                        to_halves(s[j * 2 + 1][2], s[j * 2 + 1][3])};
            u32 from = values + (j * 16 + (lane & 15)) * ROW;
#pragma unroll
            for (int n = 0; n < NO / 2; n++) {
                u32 b[4];
                load_matrices_transposed(b, from + ((n * 2 + (lane >> 4) ^ (lane & 7)) << 4));
                multiply_f16(out[n * 2], a, b[0], b[1]);
                multiply_f16(out[n * 2 + 1], a, b[2], b[3]);
            }
        }
    }
    // For tf32 the keys 2 t and 2 t + 1 take the places of t and t + 4 on both sides.
    template <class S>
    static __device__ __forceinline__ void weigh(float (&out)[NO][4], float (&s)[NI][4], u32 values, int lane,
                                                 S *) {
        int row = lane % 4 * 2, column = lane / 4;
#pragma unroll
        for (int j = 0; j < NI; j++) {
            u32 a[1][4] = {{__float_as_uint(s[j][0]), __float_as_uint(s[j][2]), __float_as_uint(s[j][1]),
                            __float_as_uint(s[j][3])}};
#pragma unroll
            for (int n = 0; n < NO; n += 2) {
                u32 b[1][4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int r = j * 8 + row + (e & 1), at = (n + e / 2) * 2 + column / 4;
                    asm volatile("ld.shared.b32 %0, [%1];"
                                 : "=r"(b[0][e])
                                 : "r"(values + r * ROW + ((at ^ (r & 7)) << 4) + column % 4 * 4)
                                 : "memory");
                }
                u32 once[1][4] = {{a[0][0], a[0][1], a[0][2], a[0][3]}};
                S::template step<1, 2>(*(float (*)[1][2][4]) & out[n], once, b);
            }
        }
    }
};

#define ATTENTION(name, type, depth, q, k, keys, stages, resident)                                           \
    extern "C" __global__ void __launch_bounds__((q) * (k) * 32, resident)                                   \
        name(const __grid_constant__ Attention p) {                                                          \
        Attend<type, depth, q, k, keys, stages>::run(p);                                                     \
    }
// Few: 16 queries, whose keys four warps share. Many: 64 queries. Pairs and both: 32 and 64 queries, whose keys two
// rows of warps share. Blocks of a multiprocessor: as many as leave enough registers that none are spilled, for which
// sm_120 needs more.
#if __CUDA_ARCH__ >= 1200
#define FEW_F16 3
#define BOTH_F32 1
#else
#define FEW_F16 4
#define BOTH_F32 2
#endif
#define FAMILY(type, prefix, few, many, both, keys)                                                          \
    ATTENTION(attention_##prefix##_64_few, type, 64, 1, 4, 32, 1, few)                                       \
    ATTENTION(attention_##prefix##_64_many, type, 64, 4, 1, keys, 2, many)                                   \
    ATTENTION(attention_##prefix##_64_pairs, type, 64, 2, 2, keys, 1, many)                                  \
    ATTENTION(attention_##prefix##_64_both, type, 64, 4, 2, keys / 2, 2, both)                                    \
    ATTENTION(attention_##prefix##_128_few, type, 128, 1, 4, 16, 1, 2)                                       \
    ATTENTION(attention_##prefix##_128_many, type, 128, 4, 1, 32, 2, 2)
FAMILY(F16, f16, FEW_F16, 3, 2, 64)
FAMILY(TF32, tf32, 3, 2, 2, 64)
FAMILY(F32, f32, 2, 2, BOTH_F32, 32)

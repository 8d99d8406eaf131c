// out = (x − mean) / √(variance + ε) · scale + shift over some axes, or x / √(mean square + ε) · scale +
// shift.
//
// x and out: one shape, any strides, both f32 or both f16. Scale and shift broadcast (stride 0) and are
// stored as x is, or as f32 where `wide`; a null address is a scale of 1, a shift of 0. Sums are f32, and the
// variance is taken about the mean in a second pass over registers. May be captured. `norm_rows_*`,
// `norm_long_*` and `norm_columns_*` are what they are in softmax.cu, with the same lanes, grids and packs;
// scale and shift have stride 1 where x has it, at addresses that are multiples of V elements, or 0.
#include "prelude.cuh"

struct NormArgs {
    u64 x, out, scale, shift;
    // Of x, out, scale, shift.
    Fold<4> fold;
    f32 epsilon, inverse_count;
    u32 center, wide;
};

template <int V>
__device__ __forceinline__ void element(u32 (&at)[4], const u32 (&row)[4], u32 i, const Fold<4> &fold) {
#pragma unroll
    for (int t = 0; t < 4; t++) at[t] = row[t];
    if (V > 1) {
        at[0] += i;
        at[1] += i;
        at[2] += i * fold.folded.strides[0][2];
        at[3] += i * fold.folded.strides[0][3];
    } else {
        fold_to(at, i, fold);
    }
}

// V elements of scale or shift, which lie as T or, where `wide`, as f32, `step` apart, 0 or 1.
template <class T, int V>
struct Parameter {
    u32 raw[V];
    bool wide, still;

    // Only loads: what is computed with one must not keep the next one waiting.
    __device__ __forceinline__ Parameter(u64 first, u32 at, u32 step, bool is_wide) {
        wide = sizeof(T) == 4 || is_wide;
        still = V == 1 || step == 0;
        if (first == 0) return;
        if (still) {
            raw[0] = wide ? ((const u32 *)first)[at] : ((const u16 *)first)[at];
        } else if (wide) {
#pragma unroll
            for (int half = 0; half < V; half += 4) {
                Pack<u32, 4> pack = *(const Pack<u32, 4> *)((const u32 *)first + at + half);
#pragma unroll
                for (int v = 0; v < 4; v++) raw[(half + v) % V] = pack.at[v];
            }
        } else {
            constexpr int WORDS = V < 2 ? 1 : V / 2;
            Pack<u32, WORDS> pack = *(const Pack<u32, WORDS> *)((const u16 *)first + at);
#pragma unroll
            for (int w = 0; w < WORDS; w++) raw[w] = pack.at[w];
        }
    }

    __device__ __forceinline__ f32 half(u32 bits) const {
        f16 x;
        x.bits = bits;
        return to_f32(x);
    }

    __device__ __forceinline__ f32 at(int v) const {
        if (still) return wide ? __uint_as_float(raw[0]) : half(raw[0]);
        return wide ? __uint_as_float(raw[v]) : half(raw[v / 2] >> (v % 2 * 16));
    }
};

// With scale and shift at hand.
template <class T, int V>
__device__ __forceinline__ void finish(
    f32 (&x)[V], const f32 (&mean)[V], const f32 (&factor)[V], u32 to, const Parameter<T, V> &scale,
    const Parameter<T, V> &shift, const NormArgs &args) {
#pragma unroll
    for (int v = 0; v < V; v++) x[v] = (x[v] - mean[v]) * factor[v];
    if (args.scale)
#pragma unroll
        for (int v = 0; v < V; v++) x[v] *= scale.at(v);
    if (args.shift)
#pragma unroll
        for (int v = 0; v < V; v++) x[v] += shift.at(v);
    store((T *)args.out + to, x);
}

// Of elements whose scale and shift lie so many apart.
template <class T, int V>
__device__ __forceinline__ void finish(
    f32 (&x)[V], const f32 (&mean)[V], const f32 (&factor)[V], const u32 (&at)[4], u32 scale_step,
    u32 shift_step, const NormArgs &args) {
    Parameter<T, V> scale(args.scale, at[2], scale_step, args.wide);
    Parameter<T, V> shift(args.shift, at[3], shift_step, args.wide);
    finish<T, V>(x, mean, factor, at[1], scale, shift, args);
}

// Of elements of one result.
template <class T, int V>
__device__ __forceinline__ void finish(
    f32 (&x)[V], f32 mean, f32 factor, const u32 (&at)[4], const NormArgs &args) {
    f32 means[V], factors[V];
#pragma unroll
    for (int v = 0; v < V; v++) means[v] = mean, factors[v] = factor;
    u32 scale_step = args.fold.folded.strides[0][2], shift_step = args.fold.folded.strides[0][3];
    finish<T>(x, means, factors, at, scale_step, shift_step, args);
}

// Rows of a pack a thread: scale and shift come while the row is summed up.
template <class T, int V>
__device__ __forceinline__ void short_rows(const NormArgs &args) {
    __shared__ f32 shared[32];
    const Fold<4> &fold = args.fold;
    Row own(fold, blockIdx.x);
    u32 row[4] = {}, at[4], i = own.lane * V;
    locate(row, own.number, fold.kept);
    element<V>(at, row, i, fold);
    bool mine = i < fold.count;
    Pack<T, V> pack;
    if (mine) pack = *(const Pack<T, V> *)((const T *)args.x + at[0]);
    const u32 *steps = fold.folded.strides[0];
    Parameter<T, V> scale(mine ? args.scale : 0, at[2], steps[2], args.wide);
    Parameter<T, V> shift(mine ? args.shift : 0, at[3], steps[3], args.wide);
    f32 x[V] = {}, means[V], factors[V], sum = 0, squares = 0, mean = 0;
    if (mine) unpack(x, pack);
#pragma unroll
    for (int v = 0; v < V; v++) sum += x[v];
    if (args.center) mean = among(sum, fold.lanes, shared, Sum()) * args.inverse_count;
#pragma unroll
    for (int v = 0; v < V; v++) squares += (x[v] - mean) * (x[v] - mean);
    squares = among(mine ? squares : 0, fold.lanes, shared, Sum());
    f32 factor = rsqrtf(squares * args.inverse_count + args.epsilon);
    if (!own.live || !mine) return;
#pragma unroll
    for (int v = 0; v < V; v++) means[v] = mean, factors[v] = factor;
    finish<T, V>(x, means, factors, at[1], scale, shift, args);
}

template <class T, int V, int K>
__device__ __forceinline__ void rows(const NormArgs &args) {
    __shared__ f32 shared[32];
    const Fold<4> &fold = args.fold;
    Row own(fold, blockIdx.x);
    u32 lane = own.lane;
    u32 row[4] = {}, at[4];
    locate(row, own.number, fold.kept);
    // All loads first: what is computed with one of them must not keep the next one waiting.
    Pack<T, V> pack[K];
#pragma unroll
    for (int k = 0; k < K; k++) {
        u32 i = (k * fold.lanes + lane) * V;
        if (i >= fold.count) continue;
        element<V>(at, row, i, fold);
        pack[k] = *(const Pack<T, V> *)((const T *)args.x + at[0]);
    }
    f32 x[K][V], sum = 0, squares = 0, mean = 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
        if ((k * fold.lanes + lane) * V >= fold.count) continue;
        unpack(x[k], pack[k]);
#pragma unroll
        for (int v = 0; v < V; v++) sum += x[k][v];
    }
    if (args.center) mean = among(sum, fold.lanes, shared, Sum()) * args.inverse_count;
#pragma unroll
    for (int k = 0; k < K; k++)
        if ((k * fold.lanes + lane) * V < fold.count)
#pragma unroll
            for (int v = 0; v < V; v++) squares += (x[k][v] - mean) * (x[k][v] - mean);
    squares = among(squares, fold.lanes, shared, Sum());
    f32 factor = rsqrtf(squares * args.inverse_count + args.epsilon);
#pragma unroll
    for (int k = 0; k < K; k++) {
        u32 i = (k * fold.lanes + lane) * V;
        if (!own.live || i >= fold.count) continue;
        element<V>(at, row, i, fold);
        finish<T>(x[k], mean, factor, at, args);
    }
}

template <class T, int V>
__device__ __forceinline__ void long_rows(const NormArgs &args) {
    __shared__ f32 shared[32];
    const Fold<4> &fold = args.fold;
    u32 row[4] = {}, step = blockDim.x * V;
    locate(row, blockIdx.x, fold.kept);
    f32 x[V], sum = 0, squares = 0, mean = 0;
    auto fetch = [&](u32 i) {
        u32 at[4];
        element<V>(at, row, i, fold);
        return *(const Pack<T, V> *)((const T *)args.x + at[0]);
    };
    if (args.center) {
        batched<4>(threadIdx.x * V, fold.count, step, fetch, [&](u32, Pack<T, V> pack) {
            unpack(x, pack);
#pragma unroll
            for (int v = 0; v < V; v++) sum += x[v];
        });
        mean = among(sum, blockDim.x, shared, Sum()) * args.inverse_count;
    }
    batched<4>(threadIdx.x * V, fold.count, step, fetch, [&](u32, Pack<T, V> pack) {
        unpack(x, pack);
#pragma unroll
        for (int v = 0; v < V; v++) squares += (x[v] - mean) * (x[v] - mean);
    });
    squares = among(squares, blockDim.x, shared, Sum());
    f32 factor = rsqrtf(squares * args.inverse_count + args.epsilon);
    batched<2>(threadIdx.x * V, fold.count, step, fetch, [&](u32 i, Pack<T, V> pack) {
        unpack(x, pack);
        u32 at[4];
        element<V>(at, row, i, fold);
        finish<T>(x, mean, factor, at, args);
    });
}

template <class T, int V>
__device__ __forceinline__ void columns(const NormArgs &args) {
    extern __shared__ f32 shared[];
    const Fold<4> &fold = args.fold;
    Columns<4, V> own(fold, blockIdx.x);
    u32 end = own.live ? fold.count : 0;
    f32 x[V], mean[V] = {}, factor[V] = {};
    auto fetch = [&](u32 i) {
        u32 at[4] = {own.at[0], own.at[1], own.at[2], own.at[3]};
        fold_to(at, i, fold);
        return *(const Pack<T, V> *)((const T *)args.x + at[0]);
    };
    if (args.center) {
        batched<4>(own.y, end, own.height, fetch, [&](u32, Pack<T, V> pack) {
            unpack(x, pack);
#pragma unroll
            for (int v = 0; v < V; v++) mean[v] += x[v];
        });
        own.down(mean, fold, shared, Sum());
#pragma unroll
        for (int v = 0; v < V; v++) mean[v] *= args.inverse_count;
    }
    batched<4>(own.y, end, own.height, fetch, [&](u32, Pack<T, V> pack) {
        unpack(x, pack);
#pragma unroll
        for (int v = 0; v < V; v++) factor[v] += (x[v] - mean[v]) * (x[v] - mean[v]);
    });
    own.down(factor, fold, shared, Sum());
#pragma unroll
    for (int v = 0; v < V; v++) factor[v] = rsqrtf(factor[v] * args.inverse_count + args.epsilon);
    batched<2>(own.y, end, own.height, fetch, [&](u32 i, Pack<T, V> pack) {
        unpack(x, pack);
        u32 at[4] = {own.at[0], own.at[1], own.at[2], own.at[3]};
        fold_to(at, i, fold);
        finish<T>(x, mean, factor, at, fold.lane_strides[2], fold.lane_strides[3], args);
    });
}

#define NORM(name, bounds, body) \
    KERNEL(bounds, norm_##name, NormArgs) { \
        body(args); \
    }

NORM(rows_f32_1_8, (1024), (rows<f32, 1, 8>))
NORM(rows_f32_4_1, (1024), (short_rows<f32, 4>))
NORM(rows_f32_4_2, (1024), (rows<f32, 4, 2>))
NORM(rows_f32_4_8, (1024), (rows<f32, 4, 8>))
NORM(rows_f16_1_8, (1024, 1), (rows<f16, 1, 8>))
NORM(rows_f16_8_1, (1024), (short_rows<f16, 8>))
NORM(rows_f16_8_2, (1024), (rows<f16, 8, 2>))
NORM(rows_f16_8_4, (1024), (rows<f16, 8, 4>))
NORM(long_f32_1, (1024), (long_rows<f32, 1>))
NORM(long_f32_4, (1024), (long_rows<f32, 4>))
NORM(long_f16_1, (1024), (long_rows<f16, 1>))
NORM(long_f16_8, (1024), (long_rows<f16, 8>))
NORM(columns_f32_1, (1024), (columns<f32, 1>))
NORM(columns_f32_4, (1024), (columns<f32, 4>))
NORM(columns_f16_1, (1024), (columns<f16, 1>))
NORM(columns_f16_4, (1024), (columns<f16, 4>))

// out = exp(x − max) / Σ exp(x − max) over some axes, or its logarithm: x − max − ln Σ.
//
// x and out: one shape, any strides, both f32 or both f16; arithmetic is f32. May be captured. Three ways:
// `softmax_rows_*_V_K`: `lanes` threads a result, a power of two, at most 32 of a block of 128 or else a
// whole block. Its elements stay in registers: at most K packs of V a thread. Grid: results over blocks.
// `softmax_long_*`: a block of 1024 threads a result, which reads it three times. Grid: results.
// `softmax_columns_*`: results side by side, for axes that are not the innermost: blocks of up to 1024
// threads, `width` side by side, and V numbers of shared memory a thread. Grid: kept positions times pieces
// of the lane.
// `softmax_short_*`: the same for at most 32 elements a result along one axis, 16 where V is 2, which stay in
// one thread's registers.
//
// V is 1 with any strides; or, in rows, a pack of 16 bytes: then the folded elements are neighbours in x and
// out, their number and all kept strides are multiples of V and both addresses of 16; or, in columns, 4 or 2
// neighbours of the lane: then all other strides are multiples of V, and both addresses are of V elements.
#include "prelude.cuh"

struct SoftmaxArgs {
    u64 x, out;
    Fold<2> fold;
    u32 log;
};

// Offsets of folded element i of a row in both tensors.
template <int V>
__device__ __forceinline__ void element(u32 (&at)[2], const u32 (&row)[2], u32 i, const Fold<2> &fold) {
    at[0] = row[0];
    at[1] = row[1];
    if (V > 1) {
        at[0] += i;
        at[1] += i;
    } else {
        fold_to(at, i, fold);
    }
}

struct Answer {
    f32 most, factor, log_sum;
    bool log;

    __device__ __forceinline__ Answer(f32 most, f32 sum, bool log) : most(most), log(log) {
        factor = __fdividef(1.0f, sum);
        log_sum = log ? logf(sum) : 0;
    }

    __device__ __forceinline__ f32 of(f32 x) const {
        return log ? x - most - log_sum : __expf(x - most) * factor;
    }
};

template <class T, int V, int K>
__device__ __forceinline__ void rows(const SoftmaxArgs &args) {
    __shared__ f32 shared[32];
    const Fold<2> &fold = args.fold;
    Row own(fold, blockIdx.x);
    u32 lane = own.lane;
    u32 row[2] = {}, at[2];
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
    f32 x[K][V], most = -INFINITE, sum = 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
        if ((k * fold.lanes + lane) * V >= fold.count) continue;
        unpack(x[k], pack[k]);
#pragma unroll
        for (int v = 0; v < V; v++) most = fmaxf(most, x[k][v]);
    }
    most = among(most, fold.lanes, shared, Most());
#pragma unroll
    for (int k = 0; k < K; k++)
        if ((k * fold.lanes + lane) * V < fold.count)
#pragma unroll
            for (int v = 0; v < V; v++) sum += __expf(x[k][v] - most);
    sum = among(sum, fold.lanes, shared, Sum());
    Answer answer(most, sum, args.log);
#pragma unroll
    for (int k = 0; k < K; k++) {
        u32 i = (k * fold.lanes + lane) * V;
        if (!own.live || i >= fold.count) continue;
#pragma unroll
        for (int v = 0; v < V; v++) x[k][v] = answer.of(x[k][v]);
        element<V>(at, row, i, fold);
        store((T *)args.out + at[1], x[k]);
    }
}

template <class T, int V>
__device__ __forceinline__ void long_rows(const SoftmaxArgs &args) {
    __shared__ f32 shared[32];
    const Fold<2> &fold = args.fold;
    u32 row[2] = {}, step = blockDim.x * V;
    locate(row, blockIdx.x, fold.kept);
    f32 x[V], most = -INFINITE, sum = 0;
    auto fetch = [&](u32 i) {
        u32 at[2];
        element<V>(at, row, i, fold);
        return *(const Pack<T, V> *)((const T *)args.x + at[0]);
    };
    batched<4>(threadIdx.x * V, fold.count, step, fetch, [&](u32, Pack<T, V> pack) {
        unpack(x, pack);
#pragma unroll
        for (int v = 0; v < V; v++) most = fmaxf(most, x[v]);
    });
    most = among(most, blockDim.x, shared, Most());
    batched<4>(threadIdx.x * V, fold.count, step, fetch, [&](u32, Pack<T, V> pack) {
        unpack(x, pack);
#pragma unroll
        for (int v = 0; v < V; v++) sum += __expf(x[v] - most);
    });
    sum = among(sum, blockDim.x, shared, Sum());
    Answer answer(most, sum, args.log);
    batched<4>(threadIdx.x * V, fold.count, step, fetch, [&](u32 i, Pack<T, V> pack) {
        unpack(x, pack);
#pragma unroll
        for (int v = 0; v < V; v++) x[v] = answer.of(x[v]);
        u32 at[2];
        element<V>(at, row, i, fold);
        store((T *)args.out + at[1], x);
    });
}

template <class T, int V>
__device__ __forceinline__ void columns(const SoftmaxArgs &args) {
    extern __shared__ f32 shared[];
    const Fold<2> &fold = args.fold;
    Columns<2, V> own(fold, blockIdx.x);
    u32 end = own.live ? fold.count : 0;
    f32 x[V], most[V], sum[V] = {};
#pragma unroll
    for (int v = 0; v < V; v++) most[v] = -INFINITE;
    auto fetch = [&](u32 i) {
        u32 at[2] = {own.at[0], own.at[1]};
        fold_to(at, i, fold);
        return *(const Pack<T, V> *)((const T *)args.x + at[0]);
    };
    batched<4>(own.y, end, own.height, fetch, [&](u32, Pack<T, V> pack) {
        unpack(x, pack);
#pragma unroll
        for (int v = 0; v < V; v++) most[v] = fmaxf(most[v], x[v]);
    });
    own.down(most, fold, shared, Most());
    batched<4>(own.y, end, own.height, fetch, [&](u32, Pack<T, V> pack) {
        unpack(x, pack);
#pragma unroll
        for (int v = 0; v < V; v++) sum[v] += __expf(x[v] - most[v]);
    });
    own.down(sum, fold, shared, Sum());
    batched<4>(own.y, end, own.height, fetch, [&](u32 i, Pack<T, V> pack) {
        unpack(x, pack);
#pragma unroll
        for (int v = 0; v < V; v++) x[v] = Answer(most[v], sum[v], args.log).of(x[v]);
        u32 at[2] = {own.at[0], own.at[1]};
        fold_to(at, i, fold);
        store((T *)args.out + at[1], x);
    });
}

template <class T, int V, int MOST>
__device__ __forceinline__ void short_columns(const SoftmaxArgs &args) {
    const Fold<2> &fold = args.fold;
    Columns<2, V> own(fold, blockIdx.x);
    if (!own.live) return;
    Pack<T, V> pack[MOST];
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < fold.count)
            pack[i] = *(const Pack<T, V> *)((const T *)args.x + own.at[0] + i * fold.folded.strides[0][0]);
    f32 x[MOST][V], most[V], sum[V] = {};
#pragma unroll
    for (int v = 0; v < V; v++) most[v] = -INFINITE;
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < fold.count) unpack(x[i], pack[i]);
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < fold.count)
#pragma unroll
            for (int v = 0; v < V; v++) most[v] = fmaxf(most[v], x[i][v]);
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < fold.count)
#pragma unroll
            for (int v = 0; v < V; v++) sum[v] += __expf(x[i][v] - most[v]);
#pragma unroll
    for (int v = 0; v < V; v++) {
        Answer answer(most[v], sum[v], args.log);
#pragma unroll
        for (int i = 0; i < MOST; i++)
            if (i < fold.count) x[i][v] = answer.of(x[i][v]);
    }
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (i >= fold.count) break;
        store((T *)args.out + own.at[1] + i * fold.folded.strides[0][1], x[i]);
    }
}

#define SOFTMAX(name, bounds, body) \
    KERNEL(bounds, softmax_##name, SoftmaxArgs) { \
        body(args); \
    }

SOFTMAX(rows_f32_1_8, (1024), (rows<f32, 1, 8>))
SOFTMAX(rows_f32_4_1, (1024), (rows<f32, 4, 1>))
SOFTMAX(rows_f32_4_2, (1024), (rows<f32, 4, 2>))
SOFTMAX(rows_f32_4_8, (1024), (rows<f32, 4, 8>))
SOFTMAX(rows_f16_1_8, (1024), (rows<f16, 1, 8>))
SOFTMAX(rows_f16_8_1, (1024), (rows<f16, 8, 1>))
SOFTMAX(rows_f16_8_2, (1024), (rows<f16, 8, 2>))
SOFTMAX(rows_f16_8_4, (1024), (rows<f16, 8, 4>))
SOFTMAX(long_f32_1, (1024), (long_rows<f32, 1>))
SOFTMAX(long_f32_4, (1024), (long_rows<f32, 4>))
SOFTMAX(long_f16_1, (1024), (long_rows<f16, 1>))
SOFTMAX(long_f16_8, (1024), (long_rows<f16, 8>))
SOFTMAX(columns_f32_1, (1024, 1), (columns<f32, 1>))
SOFTMAX(columns_f32_4, (1024), (columns<f32, 4>))
SOFTMAX(columns_f16_1, (1024), (columns<f16, 1>))
SOFTMAX(columns_f16_4, (1024), (columns<f16, 4>))
SOFTMAX(short_f32_1, (256), (short_columns<f32, 1, 32>))
SOFTMAX(short_f32_2, (256), (short_columns<f32, 2, 16>))
SOFTMAX(short_f16_1, (256), (short_columns<f16, 1, 32>))
SOFTMAX(short_f16_2, (256), (short_columns<f16, 2, 16>))

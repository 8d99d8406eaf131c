// Sums, extremes and products over some axes, and positions of extremes.
//
// x: any strides, f32 or f16; out: f32 or f16 (`half_out`), arithmetic is f32. A maximum or minimum is NaN if
// any element is. May be captured. Of few results over many elements each is made in `parts`: their results
// lie in f32 scratch, which a second launch reduces.
// `reduce_rows_*`: `lanes` threads a result, a power of two, at most 32 of a block of 128 or else a whole
// block. With packs of 16 bytes the folded elements are neighbours, their number and the kept strides of x
// multiples of the pack, and x is aligned to 16. Grid: results over blocks, times parts.
// `reduce_columns_*`: packs of V results side by side: blocks of up to 1024 threads, `width` side by side,
// and V numbers of shared memory a thread. V is 1, or a pack of 16 bytes where the lane has stride 1 in x,
// its length and all other strides of x are multiples of V, and x is aligned to 16. Grid: kept positions
// times pieces of the lane, times parts.
// `reduce_arg_*`: out is i64; one folded axis; lanes and grid as for rows, without parts.
#include "prelude.cuh"

enum Reducer { SUM, MAX, MIN, PRODUCT, SQUARES };

struct ReduceArgs {
    u64 x, out;
    Fold<2> fold;
    // Blocks of one part; elements of a result in one part; elements of out from part to part.
    Divider part_blocks;
    u32 part_len, part_stride;
    u32 op, half_out;
    f32 factor;
};

__device__ __forceinline__ f32 neutral(u32 op) {
    return op == MAX ? -INFINITE : op == MIN ? INFINITE : op == PRODUCT ? 1.0f : 0.0f;
}

struct Join {
    u32 op;

    __device__ __forceinline__ f32 operator()(f32 x, f32 y) const {
        if (op == MAX) return max_or_nan(x, y);
        if (op == MIN) return min_or_nan(x, y);
        if (op == PRODUCT) return x * y;
        return x + y;
    }
};

__device__ __forceinline__ void put(f32 total, u32 at, const ReduceArgs &args) {
    if (args.half_out) ((f16 *)args.out)[at] = from_f32<f16>(total * args.factor);
    else ((f32 *)args.out)[at] = total * args.factor;
}

// `fold(step)` with the operation's own step, so that its loop has no choice in it.
template <int V, class F>
__device__ __forceinline__ void chosen(f32 (&total)[V], u32 op, F fold) {
#define STEP(value) \
    fold([&](const f32(&x)[V]) { \
        _Pragma("unroll") for (int v = 0; v < V; v++) total[v] = value; \
    })
    if (op == SUM) STEP(total[v] + x[v]);
    else if (op == SQUARES) STEP(fmaf(x[v], x[v], total[v]));
    else if (op == MAX) STEP(max_or_nan(total[v], x[v]));
    else if (op == MIN) STEP(min_or_nan(total[v], x[v]));
    else STEP(total[v] * x[v]);
#undef STEP
}

template <class T, int V>
__device__ __forceinline__ void rows(const ReduceArgs &args) {
    __shared__ f32 shared[32];
    const Fold<2> &fold = args.fold;
    u32 part = quotient(blockIdx.x, args.part_blocks);
    u32 block = blockIdx.x - part * args.part_blocks.divisor;
    Row own(fold, block);
    u32 lane = own.lane;
    u32 row[2] = {};
    locate(row, own.number, fold.kept);
    f32 total[V];
#pragma unroll
    for (int v = 0; v < V; v++) total[v] = neutral(args.op);
    u32 end = min(fold.count, (part + 1) * args.part_len);
    auto fetch = [&](u32 i) {
        u32 at[2] = {row[0]};
        if (V > 1) at[0] += i;
        else fold_to(at, i, fold);
        return *(const Pack<T, V> *)((const T *)args.x + at[0]);
    };
    chosen(total, args.op, [&](auto step) {
        batched<4>(part * args.part_len + lane * V, end, fold.lanes * V, fetch, [&](u32, Pack<T, V> pack) {
            f32 x[V];
            unpack(x, pack);
            step(x);
        });
    });
#pragma unroll
    for (int v = 1; v < V; v++) total[0] = Join{args.op}(total[0], total[v]);
    total[0] = among(total[0], fold.lanes, shared, Join{args.op});
    if (own.live && lane == 0) put(total[0], row[1] + part * args.part_stride, args);
}

template <class T, int V>
__device__ __forceinline__ void columns(const ReduceArgs &args) {
    extern __shared__ f32 shared[];
    const Fold<2> &fold = args.fold;
    u32 part = quotient(blockIdx.x, args.part_blocks);
    Columns<2, V> own(fold, blockIdx.x - part * args.part_blocks.divisor);
    f32 total[V];
#pragma unroll
    for (int v = 0; v < V; v++) total[v] = neutral(args.op);
    u32 end = own.live ? min(fold.count, (part + 1) * args.part_len) : 0;
    auto fetch = [&](u32 i) {
        u32 at[2] = {own.at[0]};
        fold_to(at, i, fold);
        return *(const Pack<T, V> *)((const T *)args.x + at[0]);
    };
    chosen(total, args.op, [&](auto step) {
        batched<4>(part * args.part_len + own.y, end, own.height, fetch, [&](u32, Pack<T, V> pack) {
            f32 x[V];
            unpack(x, pack);
            step(x);
        });
    });
    own.down(total, fold, shared, Join{args.op});
    if (!own.live || own.y != 0) return;
#pragma unroll
    for (int v = 0; v < V; v++)
        put(total[v], own.at[1] + v * fold.lane_strides[1] + part * args.part_stride, args);
}

struct ArgArgs {
    u64 x, out;
    Fold<2> fold;
    // Whether the smallest is sought, and the last of equals.
    u32 smallest, last;
};

// The better of two elements, each with its position; a position of NONE is no element.
struct Best {
    static constexpr u32 NONE = ~0u;
    f32 value;
    u32 at;

    __device__ __forceinline__ void meet(f32 other, u32 place, bool last) {
        if (place == NONE) return;
        bool first = last ? place > at : place < at;
        if (at == NONE || other > value || (other == value && first)) {
            value = other;
            at = place;
        }
    }
};

template <class T>
__device__ __forceinline__ void arg(const ArgArgs &args) {
    __shared__ f32 values[32];
    __shared__ u32 places[32];
    const Fold<2> &fold = args.fold;
    Row own(fold, blockIdx.x);
    u32 lane = own.lane;
    u32 row[2] = {};
    locate(row, own.number, fold.kept);
    u32 stride = fold.folded.count ? fold.folded.strides[0][0] : 0;
    const T *from = (const T *)args.x + row[0];
    f32 sign = args.smallest ? -1.0f : 1.0f;
    Best best = {0, Best::NONE};
    for (u32 i = lane; i < fold.count; i += fold.lanes) {
        f32 x = sign * to_f32(from[(u64)i * stride]);
        if (x == x) best.meet(x, i, args.last);
    }
    for (u32 distance = min(fold.lanes, 32u) / 2; distance > 0; distance /= 2) {
        f32 value = __shfl_xor_sync(~0u, best.value, distance);
        best.meet(value, __shfl_xor_sync(~0u, best.at, distance), args.last);
    }
    if (fold.lanes > 32) {
        if (threadIdx.x % 32 == 0) {
            values[threadIdx.x / 32] = best.value;
            places[threadIdx.x / 32] = best.at;
        }
        __syncthreads();
        for (u32 warp = 0; warp < blockDim.x / 32; warp++) best.meet(values[warp], places[warp], args.last);
    }
    if (!own.live || lane != 0) return;
    // What is no number is larger than nothing: it stays where it is the first, which the others are measured
    // by.
    f32 first = to_f32(from[0]);
    ((i64 *)args.out)[row[1]] = first != first || best.at == Best::NONE ? 0 : best.at;
}

#define REDUCE(name, threads, kind, body) \
    KERNEL((threads, 1), reduce_##name, kind) { \
        body(args); \
    }

REDUCE(rows_f32_1, 512, ReduceArgs, (rows<f32, 1>))
REDUCE(rows_f32_4, 512, ReduceArgs, (rows<f32, 4>))
REDUCE(rows_f16_1, 512, ReduceArgs, (rows<f16, 1>))
REDUCE(rows_f16_8, 512, ReduceArgs, (rows<f16, 8>))
REDUCE(columns_f32_1, 1024, ReduceArgs, (columns<f32, 1>))
REDUCE(columns_f32_4, 1024, ReduceArgs, (columns<f32, 4>))
REDUCE(columns_f16_1, 1024, ReduceArgs, (columns<f16, 1>))
REDUCE(columns_f16_8, 1024, ReduceArgs, (columns<f16, 8>))
REDUCE(arg_f32, 512, ArgArgs, (arg<f32>))
REDUCE(arg_f16, 512, ArgArgs, (arg<f16>))

// What every kernel file here begins with: element types, 16-byte accesses and strided positions. No header
// is included, neither here nor in the kernels, so that a device needs no toolkit: half precision is inline
// PTX.
//
// Positions and strides count elements and fit in 31 bits; launchers refuse what does not. Every kernel takes
// its arguments by value, allocates nothing and synchronizes with nothing, so each launch may be captured in
// a graph.

#include "dependent.cuh"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

// A kernel by its plain name, its arguments by value where they can be indexed. It touches nothing before the
// launches ahead of it are done; the one behind it may come as soon as all of its blocks have begun.
#define KERNEL(bounds, name, Args) \
    __device__ __forceinline__ void name##_body(const Args &args); \
    extern "C" __global__ void __launch_bounds__ bounds name(const __grid_constant__ Args args) { \
        wait_for_previous(); \
        let_next_start(); \
        name##_body(args); \
    } \
    __device__ __forceinline__ void name##_body(const Args &args)

struct f16 {
    u16 bits;
};

__device__ __forceinline__ f32 to_f32(f32 x) {
    return x;
}

__device__ __forceinline__ f32 to_f32(f16 x) {
    f32 y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

// What is out of the range of T becomes its largest number, and NaN stays.
template <class T>
__device__ __forceinline__ T from_f32(f32 x);

template <>
__device__ __forceinline__ f32 from_f32<f32>(f32 x) {
    return x;
}

template <>
__device__ __forceinline__ f16 from_f32<f16>(f32 x) {
    f16 y;
    asm("cvt.rn.satfinite.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// The larger and the smaller one; NaN if either is.
__device__ __forceinline__ f32 max_or_nan(f32 x, f32 y) {
    f32 z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

__device__ __forceinline__ f32 min_or_nan(f32 x, f32 y) {
    f32 z;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

#define INFINITE __int_as_float(0x7f800000)

// V elements that one access moves; V · sizeof(T) is at most 16, and the address a multiple of it.
template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
    T at[V];
};

// By words: of a structure of halves the compiler would make as many accesses.
template <int V>
struct alignas(2 * V) Pack<f16, V> {
    u32 words[V / 2];
};

template <>
struct Pack<f16, 1> {
    f16 at[1];
};

struct alignas(16) Wide {
    u64 low, high;
};

template <class T, int V>
__device__ __forceinline__ void unpack(f32 (&to)[V], const Pack<T, V> &pack) {
    if constexpr (sizeof(T) == 2 && V > 1) {
#pragma unroll
        for (int v = 0; v < V; v += 2)
            asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
                : "=f"(to[v]), "=f"(to[v + 1]) : "r"(pack.words[v / 2]));
    } else {
#pragma unroll
        for (int v = 0; v < V; v++) to[v] = to_f32(pack.at[v]);
    }
}

template <class T, int V>
__device__ __forceinline__ void load(f32 (&to)[V], const T *from) {
    unpack(to, *(const Pack<T, V> *)from);
}

template <class T, int V>
__device__ __forceinline__ void store(T *to, const f32 (&from)[V]) {
    Pack<T, V> pack;
    if constexpr (sizeof(T) == 2 && V > 1) {
#pragma unroll
        for (int v = 0; v < V; v += 2)
            asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pack.words[v / 2]) : "f"(from[v + 1]), "f"(from[v]));
    } else {
#pragma unroll
        for (int v = 0; v < V; v++) pack.at[v] = from_f32<T>(from[v]);
    }
    *(Pack<T, V> *)to = pack;
}

// Division of numbers below 2^31 by one that is known before the launch (Granlund and Montgomery 1994).
struct Divider {
    u32 divisor, magic, shift;
};

__device__ __forceinline__ u32 quotient(u32 number, const Divider &by) {
    return (__umulhi(number, by.magic) + number) >> by.shift;
}

// Nested loops over N tensors at once, the innermost first.
template <int N, int A>
struct Axes {
    u32 count;
    Divider len[A];
    u32 strides[A][N];
};

// Adds the offsets of position `linear` in each tensor.
template <int N, int A>
__device__ __forceinline__ void locate(u32 (&at)[N], u32 linear, const Axes<N, A> &axes) {
#pragma unroll
    for (int axis = 0; axis < A; axis++) {
        if (axis >= axes.count) break;
        u32 index = linear;
        if (axis + 1 < axes.count) {
            linear = quotient(linear, axes.len[axis]);
            index -= linear * axes.len[axis].divisor;
        }
#pragma unroll
        for (int t = 0; t < N; t++) at[t] += index * axes.strides[axis][t];
    }
}

// Threads that make one result together: a power of two of neighbouring lanes, or a whole block. Joins what
// each of them has; all get the same answer. `shared` holds 32 numbers; every thread of the block must come
// here.
template <class T, class Join>
__device__ __forceinline__ T among(T mine, u32 lanes, T *shared, Join join) {
    for (u32 distance = min(lanes, 32u) / 2; distance > 0; distance /= 2)
        mine = join(mine, __shfl_xor_sync(~0u, mine, distance));
    if (lanes <= 32) return mine;
    u32 warps = lanes / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = shared[threadIdx.x & (warps - 1)];
    for (u32 distance = warps / 2; distance > 0; distance /= 2)
        mine = join(mine, __shfl_xor_sync(~0u, mine, distance));
    return mine;
}

// What operations that fold axes walk over, for N tensors of which the first is folded.
template <int N>
struct Fold {
    // Loops with a result for each position, and loops that are folded; in columns without the lane.
    Axes<N, 5> kept;
    Axes<N, 4> folded;
    // Positions of `kept`, and of `folded`.
    u32 rows, count;
    // Rows: the threads that share a result, and the power of two that they are.
    u32 lanes, lanes_log2;
    // Columns: the kept axis that neighbouring threads lie along, the threads that do so, each with a pack of
    // it, and how many blocks share it.
    u32 lane_len, lane_strides[N];
    Divider width, pieces;
};

// Adds the offsets of folded element i.
template <int N>
__device__ __forceinline__ void fold_to(u32 (&at)[N], u32 i, const Fold<N> &fold) {
    if (fold.folded.count == 1) {
#pragma unroll
        for (int t = 0; t < N; t++) at[t] += i * fold.folded.strides[0][t];
    } else {
        locate(at, i, fold.folded);
    }
}

// `use(i, load(i))` for every `step`th i of a range, B loads at a time under way.
template <int B, class Load, class Use>
__device__ __forceinline__ void batched(u32 begin, u32 end, u32 step, Load load, Use use) {
    for (; begin < end; begin += B * step) {
        decltype(load(begin)) pack[B];
#pragma unroll
        for (int b = 0; b < B; b++)
            if (begin + b * step < end) pack[b] = load(begin + b * step);
#pragma unroll
        for (int b = 0; b < B; b++)
            if (begin + b * step < end) use(begin + b * step, pack[b]);
    }
}

// Which columns a thread of a block has, V side by side.
template <int N, int V>
struct Columns {
    u32 x, y, height, at[N];
    bool live;

    __device__ __forceinline__ Columns(const Fold<N> &fold, u32 block) {
        y = quotient(threadIdx.x, fold.width);
        x = threadIdx.x - y * fold.width.divisor;
        height = quotient(blockDim.x, fold.width);
        u32 number = quotient(block, fold.pieces);
        u32 column = ((block - number * fold.pieces.divisor) * fold.width.divisor + x) * V;
        live = column < fold.lane_len && y < height;
#pragma unroll
        for (int t = 0; t < N; t++) at[t] = live ? column * fold.lane_strides[t] : 0;
        locate(at, number, fold.kept);
    }

    // Joins what the threads of a column have; all get the answer. `shared` holds V numbers a thread.
    template <class Join>
    __device__ __forceinline__ void down(f32 (&mine)[V], const Fold<N> &fold, f32 *shared, Join join) const {
        u32 columns = fold.width.divisor * V;
        __syncthreads();
        if (y < height)
#pragma unroll
            for (int v = 0; v < V; v++) shared[threadIdx.x * V + v] = mine[v];
        // Eighths at a time: line j of those that are left joins j, j + left, and so on.
        for (u32 lines = height; lines > 1;) {
            u32 left = (lines + 7) / 8;
            __syncthreads();
            for (u32 at = threadIdx.x; at < left * columns; at += blockDim.x) {
                u32 line = quotient(at / V, fold.width);
                f32 total = shared[at];
#pragma unroll
                for (u32 k = 1; k < 8; k++)
                    if (line + k * left < lines) total = join(total, shared[at + k * left * columns]);
                shared[at] = total;
            }
            lines = left;
        }
        __syncthreads();
#pragma unroll
        for (int v = 0; v < V; v++) mine[v] = shared[x * V + v];
    }
};

// Which row a thread works for, and with which lane of it.
struct Row {
    u32 lane, number;
    bool live;

    template <int N>
    __device__ __forceinline__ Row(const Fold<N> &fold, u32 block) {
        lane = threadIdx.x & (fold.lanes - 1);
        number = block * (blockDim.x >> fold.lanes_log2) + (threadIdx.x >> fold.lanes_log2);
        live = number < fold.rows;
        // The others do the first one's work, so that all come to each exchange.
        if (!live) number = 0;
    }
};

struct Sum {
    __device__ __forceinline__ f32 operator()(f32 x, f32 y) const {
        return x + y;
    }
};

struct Most {
    __device__ __forceinline__ f32 operator()(f32 x, f32 y) const {
        return fmaxf(x, y);
    }
};

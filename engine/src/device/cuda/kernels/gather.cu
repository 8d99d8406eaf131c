// Slices of a tensor, chosen by indices along one axis.
//
// Elements of any dtype and any strides, as units of 1, 2, 4, 8 or 16 bytes: neighbours within a slice are
// moved as one unit, to whose size addresses and strides are multiples. Indices: i64 or i32, any strides;
// negative ones count from the end. One that is out of range sets the word `flag` (not null) to 1 and makes
// zeros. A thread moves four units that lie a block of 128 apart. Grid: units over blocks. May be captured;
// nothing clears the flag.
#include "prelude.cuh"

constexpr int AXES = 6, EACH = 4;

struct GatherArgs {
    u64 from, indices, to, flag;
    // Strides of source, indices and target; the source's is 0 along the axes of the indices.
    Axes<3, AXES> axes;
    // The size of the axis that is gathered from, its stride in the source, whether indices are i64.
    u32 size, stride, wide, units;
};

template <class T>
__device__ __forceinline__ void gather(const GatherArgs &args) {
    u32 first = blockIdx.x * (blockDim.x * EACH) + threadIdx.x;
    T unit[EACH] = {};
    u32 at[EACH][3] = {};
    i64 index[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        u32 linear = first + e * blockDim.x;
        if (linear >= args.units) break;
        locate(at[e], linear, args.axes);
        index[e] = args.wide ? ((const i64 *)args.indices)[at[e][1]] : ((const i32 *)args.indices)[at[e][1]];
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (first + e * blockDim.x >= args.units) break;
        if (index[e] < 0) index[e] += args.size;
        if ((u64)index[e] < args.size)
            unit[e] = ((const T *)args.from)[at[e][0] + (u32)index[e] * args.stride];
        else
            *(u32 *)args.flag = 1;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (first + e * blockDim.x < args.units) ((T *)args.to)[at[e][2]] = unit[e];
}

#define GATHER(bytes, type) \
    KERNEL((128), gather_##bytes, GatherArgs) { \
        gather<type>(args); \
    }

GATHER(1, u8)
GATHER(2, u16)
GATHER(4, u32)
GATHER(8, u64)
GATHER(16, Wide)

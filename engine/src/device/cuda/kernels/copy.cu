// The same elements with other strides: slices, pieces of concatenations, broadcasts, transpositions.
//
// Elements of any dtype, as units of 1, 2, 4, 8 or 16 bytes: neighbours that stay neighbours are moved as one
// unit, to whose size addresses and strides are multiples. May be captured. Two ways:
// `copy_*`: any strides; a thread moves four units that lie a block of 128 apart. Grid: units over blocks.
// `transpose_*`: where neighbours of the target are not neighbours in the source: tiles of SIDE × SIDE
// through shared memory, so that both sides are touched in lines. Grid: tiles. `transpose_pairs` moves 2
// bytes twice at a time: all lengths and strides are even there, and addresses multiples of 4.
#include "prelude.cuh"

constexpr int AXES = 6, EACH = 4;

struct CopyArgs {
    u64 from, to;
    // Strides of source and target, in units.
    Axes<2, AXES> axes;
    u32 units;
};

template <class T>
__device__ __forceinline__ void copy(const CopyArgs &args) {
    u32 first = blockIdx.x * (blockDim.x * EACH) + threadIdx.x;
    T unit[EACH];
    u32 at[EACH][2] = {};
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        u32 linear = first + e * blockDim.x;
        if (linear < args.units) {
            locate(at[e], linear, args.axes);
            unit[e] = ((const T *)args.from)[at[e][0]];
        }
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (first + e * blockDim.x < args.units) ((T *)args.to)[at[e][1]] = unit[e];
}

struct TransposeArgs {
    u64 from, to;
    // Of the axis along which the source has stride 1, and of that along which the target has.
    u32 from_len, to_len, from_stride, to_stride;
    Divider from_tiles, to_tiles;
    // The other axes.
    Axes<2, AXES> axes;
};

template <class T, int SIDE>
__device__ __forceinline__ void transpose(const TransposeArgs &args) {
    __shared__ T tile[SIDE][SIDE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)];
    u32 rest = quotient(blockIdx.x, args.from_tiles);
    u32 from_tile = (blockIdx.x - rest * args.from_tiles.divisor) * SIDE;
    u32 number = quotient(rest, args.to_tiles);
    u32 to_tile = (rest - number * args.to_tiles.divisor) * SIDE;
    u32 at[2] = {};
    locate(at, number, args.axes);
    const T *from = (const T *)args.from + at[0];
    T *to = (T *)args.to + at[1];
#pragma unroll
    for (u32 y = 0; y < SIDE; y += 8)
#pragma unroll
        for (u32 x = 0; x < SIDE; x += 32) {
            u32 along = from_tile + x + threadIdx.x, across = to_tile + y + threadIdx.y;
            if (along < args.from_len && across < args.to_len)
                tile[y + threadIdx.y][x + threadIdx.x] = from[along + (u64)across * args.from_stride];
        }
    __syncthreads();
#pragma unroll
    for (u32 y = 0; y < SIDE; y += 8)
#pragma unroll
        for (u32 x = 0; x < SIDE; x += 32) {
            u32 along = to_tile + x + threadIdx.x, across = from_tile + y + threadIdx.y;
            if (along < args.to_len && across < args.from_len)
                to[along + (u64)across * args.to_stride] = tile[x + threadIdx.x][y + threadIdx.y];
        }
}

// The same for elements of 2 bytes whose neighbours can be moved two at a time on both sides.
__device__ __forceinline__ void transpose_pairs_of(const TransposeArgs &args) {
    constexpr u32 SIDE = 64;
    // By column of the source, each a line of pairs; the second half of the columns is shifted by a bank.
    __shared__ u32 tile[SIDE * (SIDE / 2 + 1) + 1];
    auto place = [&](u32 column, u32 pair) -> u32 & {
        return tile[column * (SIDE / 2 + 1) + column / 32 + pair];
    };
    u32 rest = quotient(blockIdx.x, args.from_tiles);
    u32 from_tile = (blockIdx.x - rest * args.from_tiles.divisor) * SIDE;
    u32 number = quotient(rest, args.to_tiles);
    u32 to_tile = (rest - number * args.to_tiles.divisor) * SIDE;
    u32 at[2] = {};
    locate(at, number, args.axes);
    const u16 *from = (const u16 *)args.from + at[0];
    u16 *to = (u16 *)args.to + at[1];
    u32 x = 2 * threadIdx.x;
#pragma unroll
    for (u32 i = 0; i < SIDE / 2; i += 8) {
        u32 y = 2 * (i + threadIdx.y);
        if (from_tile + x >= args.from_len || to_tile + y >= args.to_len) continue;
        const u16 *line = from + from_tile + x + (u64)(to_tile + y) * args.from_stride;
        u32 upper = *(const u32 *)line, lower = *(const u32 *)(line + args.from_stride);
        place(x, y / 2) = __byte_perm(upper, lower, 0x5410);
        place(x + 1, y / 2) = __byte_perm(upper, lower, 0x7632);
    }
    __syncthreads();
#pragma unroll
    for (u32 y = threadIdx.y; y < SIDE; y += 8)
        if (to_tile + x < args.to_len && from_tile + y < args.from_len)
            *(u32 *)(to + to_tile + x + (u64)(from_tile + y) * args.to_stride) = place(y, threadIdx.x);
}

#define COPY(bytes, type) \
    KERNEL((128), copy_##bytes, CopyArgs) { \
        copy<type>(args); \
    }
#define TRANSPOSE(bytes, type, side, blocks) \
    KERNEL((256, blocks), transpose_##bytes, TransposeArgs) { \
        transpose<type, side>(args); \
    }

COPY(1, u8)
COPY(2, u16)
COPY(4, u32)
COPY(8, u64)
COPY(16, Wide)
TRANSPOSE(1, u8, 64, 2)
TRANSPOSE(2, u16, 64, 4)
TRANSPOSE(4, u32, 32, 4)
TRANSPOSE(8, u64, 32, 4)

KERNEL((256, 4), transpose_pairs, TransposeArgs) {
    transpose_pairs_of(args);
}

// Maximum, sum or average over windows of an image with one to three spatial axes.
//
// x and out: any strides, both f32 or both f16; arithmetic is f32. A thread makes V neighbouring channels of
// one pixel: V is 1, or a pack of 16 bytes where channels have stride 1, their number and all other strides
// are multiples of V and both addresses of 16. A maximum is NaN if any element is, and −∞ for a window that
// lies outside.
// Grid: pixels times packs of channels over blocks of 128. May be captured.
#include "prelude.cuh"

enum Kind { MAX, SUM, AVERAGE, AVERAGE_INSIDE };

struct PoolArgs {
    u64 x, out;
    u32 threads, kind;
    // Packs of channels, the output's size from the last axis on.
    Divider packs, size[3];
    // From here on all is by axis, the first one first; missing axes are of size 1. Strides: batch, axes,
    // channel.
    i32 in_size[3], window[3], stride[3], before[3];
    Divider dilation[3];
    u32 x_strides[5], out_strides[5];
};

template <class T, int V>
__device__ __forceinline__ void pool(const PoolArgs &args) {
    u32 rest = blockIdx.x * blockDim.x + threadIdx.x;
    if (rest >= args.threads) return;
    u32 next = quotient(rest, args.packs);
    u32 channel = (rest - next * args.packs.divisor) * V;
    i32 start[3], index[3];
    rest = next;
#pragma unroll
    for (int axis = 2; axis >= 0; axis--) {
        next = quotient(rest, args.size[2 - axis]);
        index[axis] = rest - next * args.size[2 - axis].divisor;
        start[axis] = index[axis] * args.stride[axis] - args.before[axis];
        rest = next;
    }
    const T *x = (const T *)args.x + rest * args.x_strides[0] + channel * args.x_strides[4];
    f32 total[V];
#pragma unroll
    for (int v = 0; v < V; v++) total[v] = args.kind == MAX ? -INFINITE : 0;
    // The taps along each axis that lie in the image: the first one, and the one after the last.
    i32 from[3], to[3];
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        i32 dilation = args.dilation[axis].divisor, last = args.in_size[axis] - 1 - start[axis];
        from[axis] = start[axis] < 0 ? quotient(dilation - 1 - start[axis], args.dilation[axis]) : 0;
        to[axis] = last < 0 ? 0 : min(args.window[axis], (i32)quotient(last, args.dilation[axis]) + 1);
    }
    u32 inside = max(to[0] - from[0], 0) * max(to[1] - from[1], 0) * max(to[2] - from[2], 0);
    u32 step = args.dilation[2].divisor * args.x_strides[3];
    for (i32 a = from[0]; a < to[0]; a++) {
        const T *slice = x + (start[0] + a * (i32)args.dilation[0].divisor) * args.x_strides[1];
        for (i32 b = from[1]; b < to[1]; b++) {
            const T *line = slice + (start[1] + b * (i32)args.dilation[1].divisor) * args.x_strides[2];
            line += start[2] * (i64)args.x_strides[3];
            batched<4>(from[2], to[2] < from[2] ? from[2] : to[2], 1,
                [&](u32 c) { return *(const Pack<T, V> *)(line + c * step); },
                [&](u32, Pack<T, V> pack) {
                    f32 element[V];
                    unpack(element, pack);
#pragma unroll
                    for (int v = 0; v < V; v++) {
                        f32 x = element[v];
                        total[v] = args.kind == MAX ? max_or_nan(total[v], x) : total[v] + x;
                    }
                });
        }
    }
    f32 factor = 1;
    if (args.kind == AVERAGE) factor = 1.0f / (args.window[0] * args.window[1] * args.window[2]);
    if (args.kind == AVERAGE_INSIDE) factor = 1.0f / max(inside, 1);
#pragma unroll
    for (int v = 0; v < V; v++) total[v] *= factor;
    u32 at = rest * args.out_strides[0] + channel * args.out_strides[4];
#pragma unroll
    for (int axis = 0; axis < 3; axis++) at += index[axis] * args.out_strides[axis + 1];
    store((T *)args.out + at, total);
}

#define POOL(type, pack) \
    KERNEL((128, 8), pool_##type##_##pack, PoolArgs) { \
        pool<type, pack>(args); \
    }

POOL(f32, 1)
POOL(f32, 4)
POOL(f16, 1)
POOL(f16, 8)

// A border around a tensor, made of one element, of the nearest one or of those mirrored at the edge; or a
// cut.
//
// Elements of any dtype and any strides, as units of 1, 2, 4, 8 or 16 bytes: neighbours along an axis without
// a border are moved as one unit, to whose size addresses and strides are multiples. A thread makes four
// units that lie a block of 128 apart. Grid: units over blocks. May be captured.
#include "prelude.cuh"

constexpr int AXES = 6, EACH = 4;

enum Mode { CONSTANT, EDGE, REFLECT };

struct PadArgs {
    u64 from, to;
    // The element of the border, repeated.
    Wide value;
    // The target's axes, in units; strides of source and target.
    Axes<2, AXES> axes;
    // The source's sizes, and how far the target begins before it.
    i32 len[AXES], before[AXES];
    u32 units, mode;
};

template <class T>
__device__ __forceinline__ void pad(const PadArgs &args) {
    u32 first = blockIdx.x * (blockDim.x * EACH) + threadIdx.x;
    T unit[EACH];
    u32 to[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        u32 linear = first + e * blockDim.x;
        if (linear >= args.units) break;
        u32 from = 0;
        bool inside = true;
        to[e] = 0;
#pragma unroll
        for (int axis = 0; axis < AXES; axis++) {
            if (axis >= args.axes.count) break;
            u32 rest = quotient(linear, args.axes.len[axis]);
            i32 index = linear - rest * args.axes.len[axis].divisor, len = args.len[axis];
            linear = rest;
            to[e] += index * args.axes.strides[axis][1];
            index -= args.before[axis];
            if ((u32)index >= (u32)len) {
                if (args.mode == CONSTANT) {
                    inside = false;
                } else if (args.mode == EDGE) {
                    index = min(max(index, 0), len - 1);
                } else {
                    i32 period = max(2 * len - 2, 1);
                    index %= period;
                    if (index < 0) index += period;
                    if (index >= len) index = period - index;
                }
            }
            from += index * args.axes.strides[axis][0];
        }
        unit[e] = inside ? ((const T *)args.from)[from] : *(const T *)&args.value;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (first + e * blockDim.x < args.units) ((T *)args.to)[to[e]] = unit[e];
}

#define PAD(bytes, type) \
    KERNEL((128), pad_##bytes, PadArgs) { \
        pad<type>(args); \
    }

PAD(1, u8)
PAD(2, u16)
PAD(4, u32)
PAD(8, u64)
PAD(16, Wide)

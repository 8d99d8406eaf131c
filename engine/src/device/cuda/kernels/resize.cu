// Interpolation along one to three axes by tables: out[i] = Σ weight · x[index] over the taps of each resized
// axis.
//
// x and out: any strides, both f32 or both f16; arithmetic is f32. The table of an axis has, for each index
// of the output, `taps` pairs (index of x, weight). Tables lie one after the other in memory that the
// launcher describes. A thread makes V neighbours: V is 1, or a pack of 16 bytes along an axis that is not
// resized and has stride 1 on both sides; its length and all other strides are then multiples of V, both
// addresses of 16.
// Grid: groups of V elements over blocks of 128. May be captured.
#include "prelude.cuh"

struct Tap {
    u32 index;
    f32 weight;
};

constexpr int AXES = 6, RESIZED = 3;

struct ResizeArgs {
    u64 x, out, tables;
    // Strides of x, which are 0 along resized axes, and of out, and of the taps of each resized axis along
    // itself.
    Axes<2 + RESIZED, AXES> axes;
    u32 threads;
    // For each resized axis: its first tap, taps of an index, the stride of x. Missing axes have no tap.
    u32 first[RESIZED], taps[RESIZED], stride[RESIZED];
};

template <class T, int V>
__device__ __forceinline__ void resize(const ResizeArgs &args) {
    u32 number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= args.threads) return;
    u32 at[2 + RESIZED] = {0, 0, args.first[0], args.first[1], args.first[2]};
    locate(at, number, args.axes);
    u32 out_at = at[1];
    const Tap *tables = (const Tap *)args.tables;
    f32 total[V] = {};
    const T *from = (const T *)args.x + at[0];
    if (args.taps[2] == 0 && args.taps[0] <= 2 && args.taps[1] <= 2) {
        // Linear along two axes, the usual case: all four are under way at once. What is missing has a weight
        // of 0.
        Tap outer[2], inner[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            outer[i] = i < args.taps[0] ? tables[at[2] + i]
                                        : Tap{0, args.taps[0] == 0 && i == 0 ? 1.0f : 0.0f};
            inner[i] = i < args.taps[1] ? tables[at[3] + i]
                                        : Tap{0, args.taps[1] == 0 && i == 0 ? 1.0f : 0.0f};
        }
        bool both[2] = {true, args.taps[0] == 2}, across[2] = {true, args.taps[1] == 2};
        Pack<T, V> pack[2][2];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                if (both[i] && across[j]) {
                    const T *line = from + outer[i].index * args.stride[0];
                    pack[i][j] = *(const Pack<T, V> *)(line + inner[j].index * args.stride[1]);
                }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                if (!both[i] || !across[j]) continue;
                f32 weight = outer[i].weight * inner[j].weight, x[V];
                unpack(x, pack[i][j]);
#pragma unroll
                for (int v = 0; v < V; v++) total[v] = fmaf(weight, x[v], total[v]);
            }
        store((T *)args.out + out_at, total);
        return;
    }
    for (u32 a = 0; a < max(args.taps[0], 1); a++) {
        Tap outer = args.taps[0] ? tables[at[2] + a] : Tap{0, 1.0f};
        for (u32 b = 0; b < max(args.taps[1], 1); b++) {
            Tap middle = args.taps[1] ? tables[at[3] + b] : Tap{0, 1.0f};
                for (u32 c = 0; c < max(args.taps[2], 1); c++) {
                Tap inner = args.taps[2] ? tables[at[4] + c] : Tap{0, 1.0f};
                        u32 offset = outer.index * args.stride[0] + middle.index * args.stride[1] +
                             inner.index * args.stride[2];
                f32 weight = outer.weight * middle.weight * inner.weight, x[V];
                load(x, from + offset);
#pragma unroll
                for (int v = 0; v < V; v++) total[v] = fmaf(weight, x[v], total[v]);
            }
        }
    }
    store((T *)args.out + out_at, total);
}

#define RESIZE(type, pack) \
    KERNEL((128, 8), resize_##type##_##pack, ResizeArgs) { \
        resize<type, pack>(args); \
    }

RESIZE(f32, 1)
RESIZE(f32, 4)
RESIZE(f16, 1)
RESIZE(f16, 8)

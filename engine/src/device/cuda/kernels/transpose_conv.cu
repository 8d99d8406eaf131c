// Transposed convolution with one to three spatial axes, by gathering: each element of the output sums what
// reaches it.
//
// Input pixel i adds to output pixels i · stride + k · dilation − before. x, weights, out: any strides, all
// f32 or all f16; the bias f32 or as they are; arithmetic is f32. A thread makes PIXELS elements of one
// channel that lie apart by whole strides along the last axis, so that they meet the same taps and share each
// weight. V channels of the input are read at once: 1, or 4 where they have stride 1, a group has a multiple
// of 4, and so are the other strides and the address of x. Grid: groups of elements over blocks of 128,
// neighbouring threads along the channels. May be captured.
#include "prelude.cuh"

constexpr int PIXELS = 4;

enum Activation { NONE, CLAMP, SILU, HARD_SWISH, SIGMOID, TANH, GELU, LEAKY };

struct TransposeConvArgs {
    u64 x, weights, bias, out;
    u32 threads;
    // Channels of the output, then groups of pixels along the last axis, then the output's other sizes from
    // the last on.
    Divider channels, columns, size[2];
    u32 group_in, group_out, wide_bias;
    i32 in_size[3], out_size[3], window[3], dilation[3], before[3];
    Divider stride[3];
    // Batch, axes, channel; of the weights: channel of the input, axes, channel of the output.
    u32 x_strides[5], out_strides[5], weight_strides[5];
    u32 activation;
    f32 low, high;
};

__device__ __forceinline__ f32 activate(f32 x, const TransposeConvArgs &args) {
    switch (args.activation) {
        case CLAMP: return min_or_nan(max_or_nan(x, args.low), args.high);
        case SILU: return x / (1.0f + expf(-x));
        case HARD_SWISH: return x * __saturatef(fmaf(x, 1.0f / 6.0f, 0.5f));
        case SIGMOID: return 1.0f / (1.0f + expf(-x));
        case TANH: return tanhf(x);
        case GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
        case LEAKY: return x >= 0 ? x : x * args.low;
    }
    return x;
}

// The input index along an axis that tap k brings to output index `at`, or −1.
__device__ __forceinline__ i32 source(i32 at, i32 k, int axis, const TransposeConvArgs &args) {
    i32 reach = at + args.before[axis] - k * args.dilation[axis];
    if (reach < 0) return -1;
    i32 index = quotient(reach, args.stride[axis]);
    return index * args.stride[axis].divisor == reach && index < args.in_size[axis] ? index : -1;
}

template <class T, int V>
__device__ __forceinline__ void transpose_conv(const TransposeConvArgs &args) {
    u32 rest = blockIdx.x * blockDim.x + threadIdx.x;
    if (rest >= args.threads) return;
    u32 next = quotient(rest, args.channels);
    u32 channel = rest - next * args.channels.divisor;
    rest = quotient(next, args.columns);
    // Groups of stride · PIXELS columns, in which thread s makes s, s + stride and so on.
    u32 group = next - rest * args.columns.divisor, step = args.stride[2].divisor;
    u32 block = quotient(group, args.stride[2]);
    i32 column = block * step * PIXELS + (group - block * step);
    next = quotient(rest, args.size[0]);
    i32 row = rest - next * args.size[0].divisor;
    rest = quotient(next, args.size[1]);
    i32 slice = next - rest * args.size[1].divisor;

    u32 first_in = channel / args.group_out * args.group_in;
    const T *x = (const T *)args.x + rest * args.x_strides[0] + first_in * args.x_strides[4];
    const T *weights = (const T *)args.weights + first_in * args.weight_strides[0] +
                       channel % args.group_out * args.weight_strides[4];
    f32 total[PIXELS] = {};
    for (i32 a = 0; a < args.window[0]; a++) {
        i32 i = source(slice, a, 0, args);
        if (i < 0) continue;
        for (i32 b = 0; b < args.window[1]; b++) {
            i32 j = source(row, b, 1, args);
            if (j < 0) continue;
            for (i32 c = 0; c < args.window[2]; c++) {
                // Elements of one thread reach input pixels that are neighbours; some may lie outside.
                i32 reach = column + args.before[2] - c * args.dilation[2];
                i32 shifted = reach + (i32)(args.window[2] * args.dilation[2] * step);
                i32 k = (i32)quotient(shifted, args.stride[2]);
                if (k * (i32)step != shifted) continue;
                k -= args.window[2] * args.dilation[2];
                const T *line = x + i * args.x_strides[1] + j * args.x_strides[2];
                const T *tap = weights + a * args.weight_strides[1] + b * args.weight_strides[2] +
                               c * args.weight_strides[3];
                const T *pixel[PIXELS];
                bool inside[PIXELS];
#pragma unroll
                for (int p = 0; p < PIXELS; p++) {
                    inside[p] = (u32)(k + p) < (u32)args.in_size[2];
                    pixel[p] = line + (inside[p] ? k + p : 0) * args.x_strides[3];
                }
                for (u32 in = 0; in < args.group_in; in += V) {
                    f32 weight[V];
#pragma unroll
                    for (int v = 0; v < V; v++) weight[v] = to_f32(tap[(in + v) * args.weight_strides[0]]);
#pragma unroll
                    for (int p = 0; p < PIXELS; p++) {
                        f32 element[V];
                        load(element, pixel[p] + in * args.x_strides[4]);
#pragma unroll
                        for (int v = 0; v < V; v++)
                            total[p] = inside[p] ? fmaf(weight[v], element[v], total[p]) : total[p];
                    }
                }
            }
        }
    }
    f32 bias = 0;
    if (args.bias)
        bias = args.wide_bias ? ((const f32 *)args.bias)[channel] : to_f32(((const T *)args.bias)[channel]);
    T *out = (T *)args.out + rest * args.out_strides[0] + slice * args.out_strides[1] +
             row * args.out_strides[2] + channel * args.out_strides[4];
#pragma unroll
    for (int p = 0; p < PIXELS; p++) {
        i32 at = column + p * (i32)step;
        if (at < args.out_size[2])
            out[at * args.out_strides[3]] = from_f32<T>(activate(total[p] + bias, args));
    }
}

#define TRANSPOSE_CONV(type, pack) \
    KERNEL((128, 8), transpose_conv_##type##_##pack, TransposeConvArgs) { \
        transpose_conv<type, pack>(args); \
    }

TRANSPOSE_CONV(f32, 1)
TRANSPOSE_CONV(f32, 4)
TRANSPOSE_CONV(f16, 1)
TRANSPOSE_CONV(f16, 4)

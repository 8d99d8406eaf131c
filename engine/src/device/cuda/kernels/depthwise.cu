// Depthwise convolution of images, channels last, one output channel an input channel: at memory's speed.
//
// A thread computes V neighbouring channels (16 bytes; or one, any strides) of X neighbouring pixels of a
// line. Grid: threads for image × line × group of pixels × group of channels, in blocks of 128. Weights are
// packed as [tap][channels up to a multiple of 8], in the storage type. May be captured, and launched
// dependently.
#include "div.cuh"
#include "epilogue.cuh"

// As `Args` in depthwise.rs.
struct Args {
    const void *x, *weights;
    void *y;
    const float *bias;
    const void *operand;
    int threads, channels, pitch;
    // Groups of channels, groups of pixels of a line, lines of an image.
    Div groups, spans, lines;
    int in_h, in_w, out_w;
    int x_strides[4], y_strides[4], operand_strides[4];
    int window_h, window_w, stride_y, stride_x, dilation_y, dilation_x, before_y, before_x;
    int act, order;
    float alpha, beta;
};
static_assert(sizeof(Args) == 200, "as in depthwise.rs");

template <class T, int V> struct Pack {
    // The words of V elements.
    static const int WORDS = V == 1 ? 1 : 4;
    u32 w[WORDS];
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < WORDS; i++) w[i] = 0;
    }
    __device__ __forceinline__ void load(const void *from, i64 at) {
        const typename T::Stored *p = (const typename T::Stored *)from + at;
        if (V == 1)
            w[0] = *p;
        else {
            uint4 x = *(const uint4 *)p;
            w[0] = x.x, w[1] = x.y, w[2] = x.z, w[3] = x.w;
        }
    }
    __device__ __forceinline__ void store(void *to, i64 at) const {
        typename T::Stored *p = (typename T::Stored *)to + at;
        if (V == 1)
            *p = (typename T::Stored)w[0];
        else
            *(uint4 *)p = make_uint4(w[0], w[1], w[2], w[3]);
    }
    __device__ __forceinline__ float get(int i) const {
        if (T::SIZE == 4) return __uint_as_float(w[i]);
        return i & 1 ? high_half(w[i / 2]) : low_half(w[i / 2]);
    }
    __device__ __forceinline__ void set(const float (&x)[V]) {
        if (T::SIZE == 4) {
#pragma unroll
            for (int i = 0; i < V; i++) w[i] = __float_as_uint(x[i]);
        } else {
#pragma unroll
            for (int i = 0; i < V; i += 2)
                w[i / 2] = to_halves(x[i], V == 1 ? 0.0f : x[i + 1 < V ? i + 1 : i]);
        }
    }
};

// A window of W × W that moves by S and touches its neighbours; W is 0 where only the arguments know all
// this.
template <class T, int V, int W, int S, int X> struct Depthwise {
    static __device__ __forceinline__ void run(const Args &p) {
        let_next_start();
        int thread = blockIdx.x * 128 + threadIdx.x;
        if (thread >= p.threads) {
            wait_for_previous();
            return;
        }
        int rest = divide(thread, p.groups), channel = (thread - rest * p.groups.by) * V;
        int line = divide(rest, p.spans), column = (rest - line * p.spans.by) * X;
        int image = divide(line, p.lines), row = line - image * p.lines.by;
        int stride_y = W ? S : p.stride_y, stride_x = W ? S : p.stride_x;
        int y0 = row * stride_y - p.before_y, x0 = column * stride_x - p.before_x;
        i64 from = (i64)image * p.x_strides[0] + (i64)channel * p.x_strides[3];

        float sum[X][V];
#pragma unroll
        for (int v = 0; v < V; v++) {
            float bias = p.bias && channel + v < p.channels ? p.bias[channel + v] : 0.0f;
#pragma unroll
            for (int x = 0; x < X; x++) sum[x][v] = bias;
        }
        if (W && X == 1) {
            // One pixel a thread where there are few: weights before the wait, then all of the window at
            // once.
            Pack<T, V> weights[W * W + 1], in[W * W + 1];
#pragma unroll
            for (int i = 0; i < W * W; i++) weights[i].load(p.weights, i * p.pitch + channel);
            wait_for_previous();
#pragma unroll
            for (int i = 0; i < W * W; i++) {
                int y = y0 + i / (W ? W : 1), x = x0 + i % (W ? W : 1);
                in[i].clear();
                if ((u32)y < (u32)p.in_h && (u32)x < (u32)p.in_w)
                    in[i].load(p.x, from + (i64)y * p.x_strides[1] + (i64)x * p.x_strides[2]);
            }
#pragma unroll
            for (int i = 0; i < W * W; i++)
#pragma unroll
                for (int v = 0; v < V; v++) sum[0][v] += in[i].get(v) * weights[i].get(v);
        } else if (W) {
            wait_for_previous();
            const int IN = (X - 1) * S + W;
#pragma unroll
            for (int i = 0; i < W; i++) {
                int y = y0 + i;
                bool inside = (u32)y < (u32)p.in_h;
                Pack<T, V> in[IN > 0 ? IN : 1];
#pragma unroll
                for (int j = 0; j < IN; j++) {
                    in[j].clear();
                    if (inside && (u32)(x0 + j) < (u32)p.in_w)
                        in[j].load(p.x, from + (i64)y * p.x_strides[1] + (i64)(x0 + j) * p.x_strides[2]);
                }
#pragma unroll
                for (int j = 0; j < W; j++) {
                    Pack<T, V> weight;
                    weight.load(p.weights, (i * W + j) * p.pitch + channel);
#pragma unroll
                    for (int x = 0; x < X; x++)
#pragma unroll
                        for (int v = 0; v < V; v++) sum[x][v] += in[x * S + j].get(v) * weight.get(v);
                }
            }
        } else {
            wait_for_previous();
            for (int i = 0; i < p.window_h; i++) {
                int y = y0 + i * p.dilation_y;
                if ((u32)y >= (u32)p.in_h) continue;
                for (int j = 0; j < p.window_w; j++) {
                    int x = x0 + j * p.dilation_x;
                    if ((u32)x >= (u32)p.in_w) continue;
                    Pack<T, V> in, weight;
                    in.load(p.x, from + (i64)y * p.x_strides[1] + (i64)x * p.x_strides[2]);
                    weight.load(p.weights, (i * p.window_w + j) * p.pitch + channel);
#pragma unroll
                    for (int v = 0; v < V; v++) sum[0][v] += in.get(v) * weight.get(v);
                }
            }
        }
#pragma unroll
        for (int x = 0; x < X; x++) {
            if (column + x >= p.out_w) break;
            i64 to =
                (i64)image * p.y_strides[0] + (i64)row * p.y_strides[1] + (i64)(column + x) * p.y_strides[2];
            Pack<T, V> operand;
            if (p.order != ALONE)
                operand.load(p.operand, (i64)image * p.operand_strides[0] + (i64)row * p.operand_strides[1] +
                                            (i64)(column + x) * p.operand_strides[2] +
                                            (i64)channel * p.operand_strides[3]);
            if (p.order == ADD_BEFORE)
#pragma unroll
                for (int v = 0; v < V; v++) sum[x][v] += operand.get(v);
            activate_all(p.act, sum[x], p.alpha, p.beta);
            if (p.order == ADD_AFTER)
#pragma unroll
                for (int v = 0; v < V; v++) sum[x][v] += operand.get(v);
            if (p.order == MUL_AFTER)
#pragma unroll
                for (int v = 0; v < V; v++) sum[x][v] *= operand.get(v);
            Pack<T, V> out;
            out.set(sum[x]);
            out.store(p.y, to + (i64)channel * p.y_strides[3]);
        }
    }
};

// Left to itself the compiler aims at more blocks a multiprocessor than fit from sm_100 on, and spills.
#if __CUDA_ARCH__ >= 1000
#define BOUNDS __launch_bounds__(128, 3)
#else
#define BOUNDS __launch_bounds__(128)
#endif
#define DEPTHWISE(name, type, v, w, s, x)                                                                    \
    extern "C" __global__ void BOUNDS name(const __grid_constant__ Args p) {                                 \
        Depthwise<type, v, w, s, x>::run(p);                                                                 \
    }
#define WINDOW(type, prefix, v, w, s)                                                                        \
    DEPTHWISE(depthwise_##prefix##_##w##_##s##_1, type, v, w, s, 1)                                          \
    DEPTHWISE(depthwise_##prefix##_##w##_##s##_2, type, v, w, s, 2)                                          \
    DEPTHWISE(depthwise_##prefix##_##w##_##s##_4, type, v, w, s, 4)
#define FAMILY(type, prefix, v)                                                                              \
    WINDOW(type, prefix, v, 3, 1)                                                                            \
    WINDOW(type, prefix, v, 3, 2)                                                                            \
    WINDOW(type, prefix, v, 5, 1)                                                                            \
    WINDOW(type, prefix, v, 5, 2)                                                                            \
    DEPTHWISE(depthwise_##prefix, type, v, 0, 0, 1)                                                          \
    DEPTHWISE(depthwise_##prefix##_any, type, 1, 0, 0, 1)
FAMILY(Half, f16, 8)
FAMILY(Single, f32, 4)

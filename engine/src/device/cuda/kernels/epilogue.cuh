// What a product does with its elements while they are in registers: bias, activation, and one further
// operand.
#pragma once
#include "ptx.cuh"

// Activations; numbers as in epilogue.rs.
enum Act {
    NONE,
    RELU,
    CLAMP,
    LEAKY_RELU,
    SIGMOID,
    SILU,
    HARD_SIGMOID,
    HARD_SWISH,
    TANH,
    GELU_ERF,
    GELU_TANH
};
// Where the operand comes in: nowhere, act(x + operand), act(x) + operand, act(x) · operand.
enum Order { ALONE, ADD_BEFORE, ADD_AFTER, MUL_AFTER };

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// x · Φ(x), to 2e-6: log2 Φ(−a) is nearly a parabola, so that one power of two and five additions do where the error
// function would take a division as well. The polynomial was fitted to log2(erfc(a / √2) / 2) for a up to 6.5, and
// falls from there on.
__device__ __forceinline__ float gelu_erf(float x) {
    // Infinity times zero would be no number.
    float a = fminf(fabsf(x), 1e4f), half, positive;
    float p = -3.87326581e-4f * a + 6.56703906e-3f;
    p = ((p * a - 5.07791415e-2f) * a - 4.60809976e-1f) * a - 1.15060425f;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(half) : "f"(p * a - 1.00002563f));
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(positive) : "f"(x));
    return positive - a * half;
}

__device__ __forceinline__ float activate(int act, float x, float alpha, float beta) {
    switch (act) {
    case RELU: return fmaxf(x, 0.0f);
    case CLAMP: return fminf(fmaxf(x, alpha), beta);
    case LEAKY_RELU: return x >= 0.0f ? x : x * alpha;
    case SIGMOID: return sigmoid(x);
    case SILU: return x * sigmoid(x);
    case HARD_SIGMOID: return __saturatef(x * alpha + beta);
    case HARD_SWISH: return x * __saturatef(x * (1.0f / 6.0f) + 0.5f);
    case TANH: return tanhf(x);
    case GELU_ERF: return gelu_erf(x);
    case GELU_TANH: return x * sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
    default: return x;
    }
}

// The activation of several elements; one branch for all.
template <int N>
__device__ __forceinline__ void activate_all(int act, float (&x)[N], float alpha, float beta) {
    if (act == NONE) return;
    if (act == RELU) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = fmaxf(x[i], 0.0f);
    } else if (act == HARD_SWISH) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = x[i] * __saturatef(x[i] * (1.0f / 6.0f) + 0.5f);
    } else if (act == GELU_ERF) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = activate(GELU_ERF, x[i], alpha, beta);
    } else {
#pragma unroll 1
        for (int i = 0; i < N; i++) {
            // A register array may be indexed by constants only, so that it turns while the loop runs.
            float y = activate(act, x[0], alpha, beta);
#pragma unroll
            for (int j = 0; j + 1 < N; j++) x[j] = x[j + 1];
            x[N - 1] = y;
        }
    }
}

// Storage of elements: f16 or f32, 16 bytes at a time.
struct Half {
    typedef u16 Stored;
    static const int SIZE = 2, CHUNK = 8;
    static __device__ __forceinline__ float load(const void *from, i64 at) {
        return from_half(((const u16 *)from)[at]);
    }
    static __device__ __forceinline__ void store(void *to, i64 at, float x) { ((u16 *)to)[at] = to_half(x); }
    static __device__ __forceinline__ void load8(float (&x)[8], const void *from, i64 at) {
        uint4 w = *(const uint4 *)((const u16 *)from + at);
        x[0] = low_half(w.x), x[1] = high_half(w.x), x[2] = low_half(w.y), x[3] = high_half(w.y);
        x[4] = low_half(w.z), x[5] = high_half(w.z), x[6] = low_half(w.w), x[7] = high_half(w.w);
    }
    static __device__ __forceinline__ void store8(void *to, i64 at, const float (&x)[8]) {
        uint4 w = {to_halves(x[0], x[1]), to_halves(x[2], x[3]), to_halves(x[4], x[5]),
                   to_halves(x[6], x[7])};
        *(uint4 *)((u16 *)to + at) = w;
    }
};
struct Single {
    typedef u32 Stored;
    static const int SIZE = 4, CHUNK = 4;
    static __device__ __forceinline__ float load(const void *from, i64 at) {
        return ((const float *)from)[at];
    }
    static __device__ __forceinline__ void store(void *to, i64 at, float x) { ((float *)to)[at] = x; }
    static __device__ __forceinline__ void load8(float (&x)[8], const void *from, i64 at) {
        float4 a = *(const float4 *)((const float *)from + at),
               b = *(const float4 *)((const float *)from + at + 4);
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    }
    static __device__ __forceinline__ void store8(void *to, i64 at, const float (&x)[8]) {
        *(float4 *)((float *)to + at) = make_float4(x[0], x[1], x[2], x[3]);
        *(float4 *)((float *)to + at + 4) = make_float4(x[4], x[5], x[6], x[7]);
    }
};

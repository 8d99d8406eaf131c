// What the matrix units do with 32 bytes of k, for each way to store and multiply elements.
#pragma once
#include "epilogue.cuh"

// f16, added up in f32.
struct F16 : Half {
    template <int MI, int NI>
    static __device__ __forceinline__ void step(float (&c)[MI][NI][4], u32 (&a)[MI][4], u32 (&b)[NI / 2][4]) {
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NI; j++)
                multiply_f16(c[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
};
// f32 elements rounded to tf32.
struct TF32 : Single {
    template <int MI, int NI>
    static __device__ __forceinline__ void step(float (&c)[MI][NI][4], u32 (&a)[MI][4], u32 (&b)[NI / 2][4]) {
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int w = 0; w < 4; w++) a[i][w] = to_tf32(a[i][w]);
#pragma unroll
        for (int j = 0; j < NI / 2; j++)
#pragma unroll
            for (int w = 0; w < 4; w++) b[j][w] = to_tf32(b[j][w]);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NI; j++)
                multiply_tf32(c[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
};
// f32 elements as sums of two tf32, of whose four products the smallest is left out: nearly the precision of
// f32.
struct F32 : Single {
    static __device__ __forceinline__ void part(u32 x, u32 &high, u32 &low) {
        high = to_tf32(x);
        low = to_tf32(__float_as_uint(__uint_as_float(x) - __uint_as_float(high)));
    }
    template <int MI, int NI>
    static __device__ __forceinline__ void step(float (&c)[MI][NI][4], u32 (&a)[MI][4], u32 (&b)[NI / 2][4]) {
        u32 ah[MI][4], al[MI][4];
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int w = 0; w < 4; w++) part(a[i][w], ah[i][w], al[i][w]);
#pragma unroll
        for (int j = 0; j < NI; j++) {
            u32 h0, l0, h1, l1;
            part(b[j / 2][j % 2 * 2], h0, l0);
            part(b[j / 2][j % 2 * 2 + 1], h1, l1);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                multiply_tf32(c[i][j], al[i], h0, h1);
                multiply_tf32(c[i][j], ah[i], l0, l1);
                multiply_tf32(c[i][j], ah[i], h0, h1);
            }
        }
    }
};

// Where a block of k is added up: in the tile's sums themselves, or, since the units cut off what they add
// and that would show in full precision, apart.
template <class T, int MI, int NI> struct Sums {
    float (&c)[MI][NI][4];
    __device__ __forceinline__ Sums(float (&c)[MI][NI][4]) : c(c) {}
    __device__ __forceinline__ void end(float (&)[MI][NI][4]) {}
};
template <int MI, int NI> struct Sums<F32, MI, NI> {
    float c[MI][NI][4] = {};
    __device__ __forceinline__ Sums(float (&)[MI][NI][4]) {}
    __device__ __forceinline__ void end(float (&to)[MI][NI][4]) {
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NI; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) to[i][j][e] += c[i][j][e];
    }
};

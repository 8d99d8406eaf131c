// Elements of one dtype as another, as `as` of Rust converts: to whole numbers towards zero and saturating
// from floats, 0 for NaN, wrapping from wider ones; to bool whether it is not 0. To f16 from what f32 cannot
// hold by way of f64.
//
// Any strides. A thread converts four elements: neighbours where all are neighbours on both sides and both
// addresses are multiples of four elements (`packed`), else elements that lie a block of 128 apart. Grid:
// elements over blocks. May be captured. One kernel for each dtype of the source.
#include "prelude.cuh"

constexpr int AXES = 6, EACH = 4;

struct CastArgs {
    u64 from, to;
    // Strides of source and target.
    Axes<2, AXES> axes;
    u32 elements, packed, target;
};

struct flag {
    u8 bits;
};

template <class T>
struct alignas(EACH * sizeof(T)) Quad {
    T at[EACH];
};

// In the order of the launcher's dtypes.
enum Target { BOOL, U8, U16, U32, U64, I8, I16, I32, I64, F16, F32, F64 };

template <class T> struct Limits;
template <> struct Limits<u8> { static constexpr u8 low = 0, high = 255; };
template <> struct Limits<u16> { static constexpr u16 low = 0, high = 65535; };
template <> struct Limits<u32> { static constexpr u32 low = 0, high = ~0u; };
template <> struct Limits<u64> { static constexpr u64 low = 0, high = ~0ull; };
template <> struct Limits<i8> { static constexpr i8 low = -128, high = 127; };
template <> struct Limits<i16> { static constexpr i16 low = -32768, high = 32767; };
template <> struct Limits<i32> { static constexpr i32 low = ~0x7fffffff, high = 0x7fffffff; };
template <> struct Limits<i64> { static constexpr i64 low = 1ll << 63, high = ~(1ll << 63); };

// Numbers as they are converted from: a whole number, f32 or f64.
template <class T> __device__ __forceinline__ T number(T x) { return x; }
__device__ __forceinline__ u8 number(flag x) { return x.bits != 0; }
__device__ __forceinline__ f32 number(f16 x) { return to_f32(x); }

template <class To, class From>
__device__ __forceinline__ To saturated(From x) {
    if (x != x) return 0;
    if (x <= (From)Limits<To>::low) return Limits<To>::low;
    if (x >= (From)Limits<To>::high) return Limits<To>::high;
    return (To)x;
}

__device__ __forceinline__ f16 to_half(f64 x) {
    f16 y;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.bits) : "d"(x));
    return y;
}

template <class To>
struct Convert {
    template <class From> static __device__ __forceinline__ To of(From x) { return (To)x; }
    static __device__ __forceinline__ To of(f32 x) { return saturated<To>(x); }
    static __device__ __forceinline__ To of(f64 x) { return saturated<To>(x); }
};
template <> struct Convert<flag> {
    template <class From> static __device__ __forceinline__ flag of(From x) { return {x != 0}; }
};
template <> struct Convert<f32> {
    template <class From> static __device__ __forceinline__ f32 of(From x) { return (f32)x; }
};
template <> struct Convert<f64> {
    template <class From> static __device__ __forceinline__ f64 of(From x) { return (f64)x; }
};
template <> struct Convert<f16> {
    template <class From> static __device__ __forceinline__ f16 of(From x) { return to_half((f64)x); }
    // A model's own conversion: what is out of range becomes infinite, as the operator says.
    static __device__ __forceinline__ f16 of(f32 x) {
        f16 y;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
        return y;
    }
};

template <class From, class To>
__device__ __forceinline__ void cast(const CastArgs &args) {
    const From *from = (const From *)args.from;
    To *to = (To *)args.to;
    if (args.packed) {
        u32 first = (blockIdx.x * blockDim.x + threadIdx.x) * EACH;
        if (first + EACH <= args.elements) {
            Quad<From> x = *(const Quad<From> *)(from + first);
            Quad<To> y;
#pragma unroll
            for (int e = 0; e < EACH; e++) y.at[e] = Convert<To>::of(number(x.at[e]));
            *(Quad<To> *)(to + first) = y;
        } else {
            for (; first < args.elements; first++) to[first] = Convert<To>::of(number(from[first]));
        }
        return;
    }
    u32 first = blockIdx.x * (blockDim.x * EACH) + threadIdx.x;
#pragma unroll 1
    for (int e = 0; e < EACH && first < args.elements; e++, first += blockDim.x) {
        u32 at[2] = {};
        locate(at, first, args.axes);
        to[at[1]] = Convert<To>::of(number(from[at[0]]));
    }
}

template <class From>
__device__ __forceinline__ void cast(const CastArgs &args) {
    switch (args.target) {
        case BOOL: return cast<From, flag>(args);
        case U8: return cast<From, u8>(args);
        case U16: return cast<From, u16>(args);
        case U32: return cast<From, u32>(args);
        case U64: return cast<From, u64>(args);
        case I8: return cast<From, i8>(args);
        case I16: return cast<From, i16>(args);
        case I32: return cast<From, i32>(args);
        case I64: return cast<From, i64>(args);
        case F16: return cast<From, f16>(args);
        case F32: return cast<From, f32>(args);
        case F64: return cast<From, f64>(args);
    }
}

#define CAST(name, type) \
    KERNEL((128), cast_##name, CastArgs) { \
        cast<type>(args); \
    }

CAST(bool, flag)
CAST(u8, u8)
CAST(u16, u16)
CAST(u32, u32)
CAST(u64, u64)
CAST(i8, i8)
CAST(i16, i16)
CAST(i32, i32)
CAST(i64, i64)
CAST(f16, f16)
CAST(f32, f32)
CAST(f64, f64)

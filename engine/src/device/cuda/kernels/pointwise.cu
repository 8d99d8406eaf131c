// Any chain of pointwise operations over broadcast operands, interpreted: out[i] = chain(operands[i]).
//
// Each thread computes V elements at once, so that reading an operation costs an element little. The result
// of the last operation stays in registers; a result that is needed later has a slot in shared memory, one
// column a thread. The first operands are loaded before anything is computed, so that their latencies
// overlap; the others when they are read.
//
// Dtypes: operands f32, f16, i32, i64 (the low 32 bits) and bool; results f32, f16 and bool; arithmetic f32.
// `pointwise_f32_V`, `pointwise_f16_V`: all operands and the result of that dtype; `pointwise_mixed_4`: of
// any. V neighbours along the innermost axis, where each operand and the output has stride 1 or, operands
// only, 0. Those with stride 1 begin at multiples of 16 bytes or of V elements, whichever is less, and so
// does each row of them.
// `pointwise_any_4`: any strides, V elements that lie a block apart.
// `pointwise_short_*`: for chains of at most two operations of the most usual kinds, which need no
// interpretation: one pack of 16 bytes a thread, else as `pointwise_f32_V`.
// Grid: groups of V elements over blocks of 128 threads. Shared memory: 512 · V bytes a slot. May be
// captured.
#include "prelude.cuh"

constexpr int OPERANDS = 12, EARLY = 4, INSTRS = 96, NUMBERS = 96, AXES = 6;

enum Elements : u8 { F32, F16, I32, I64, BOOL };

// What an operation reads, as one byte: the last result, or operand, slot or number so many from these on, or
// nothing.
constexpr u32 LAST = 0, OPERAND = 1, SLOT = 32, NUMBER = 64, NOTHING = 255;

// An operation: op, x, y and z from the lowest byte on; then the slot that keeps its result, or NOTHING.
struct alignas(8) Instr {
    u32 what, slot;
};

// N operands and the output, which comes last.
template <int N>
struct Tensors {
    u64 out;
    u64 operands[N];
    Axes<N + 1, AXES> axes;
    // Groups of V elements; elements of the last of them, or of all where they are no neighbours; operands.
    u32 groups, tail, operand_count;
    u8 kinds[N + 1];
    // Whether an operand's neighbours are one element.
    u8 still[N];
};

struct PointwiseArgs {
    Tensors<OPERANDS> tensors;
    u32 instr_count;
    f32 numbers[NUMBERS];
    // One more than are run, since the next one is read before it is needed.
    Instr instrs[INSTRS + 1];
};

// function(first ⊕ second): the first operation joins the two operands, or is SAME; the second one takes its
// result, low and high where it is CLAMP.
struct ShortArgs {
    Tensors<2> tensors;
    u32 join, function;
    f32 low, high;
};

// The operations; the launcher numbers them alike.
enum Op : u8 {
    ADD, SUB, MUL, DIV, MIN, MAX, POW, EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL,
    EQUAL_I32, AND, OR, XOR, LEAKY_RELU, SELECT, CLAMP, MUL_ADD,
    NEG = 24, ABS, SIGN, SQUARE, SQRT, RSQRT, RECIP, EXP, LN, SIN, COS, TAN, ASIN, ACOS, ATAN, SINH,
    COSH, TANH, ASINH, ACOSH, ATANH, ERF, SIGMOID, SILU, HARD_SWISH, GELU_ERF, GELU_TANH, FLOOR, CEIL,
    ROUND, ROUND_HALF_EVEN, NOT, FROM_I32, SAME,
};

__device__ __forceinline__ f32 sigmoid(f32 x) {
    return __fdividef(1.0f, 1.0f + expf(-x));
}

// To 3e-7 of 1: a quotient that overflows to 0 and to 2 where tanh is ±1.
__device__ __forceinline__ f32 gate_tanh(f32 x) {
    return 1.0f - __fdividef(2.0f, 1.0f + expf(2.0f * x));
}

__device__ __forceinline__ f32 silu(f32 x) {
    return x * sigmoid(x);
}

__device__ __forceinline__ f32 hard_swish(f32 x) {
    return x * __saturatef(fmaf(x, 1.0f / 6.0f, 0.5f));
}

// erf to about 4 ulp without a branch: a quotient of polynomials, past ±4 ±1, as on the CPU.
__device__ __forceinline__ f32 smooth_erf(f32 x) {
    f32 square = x * x;
    f32 p = fmaf(square, -2.7261423e-10f, 2.7706814e-8f);
    p = fmaf(p, square, -2.101024e-6f);
    p = fmaf(p, square, -5.6925064e-5f);
    p = fmaf(p, square, -7.3499063e-4f);
    p = fmaf(p, square, -2.9546e-3f);
    p = fmaf(p, square, -1.6096033e-2f);
    f32 q = fmaf(square, -1.4566072e-5f, -2.1337402e-4f);
    q = fmaf(q, square, -1.682827e-3f);
    q = fmaf(q, square, -7.373329e-3f);
    q = fmaf(q, square, -1.4264739e-2f);
    f32 inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(q));
    return fabsf(x) >= 4.0f ? copysignf(1.0f, x) : x * p * inverse;
}

__device__ __forceinline__ f32 gelu_erf(f32 x) {
    f32 half = 0.5f * x;
    return fmaf(half, smooth_erf(x * 0.70710678f), half);
}

__device__ __forceinline__ f32 gelu_tanh(f32 x) {
    return 0.5f * x * (1.0f + gate_tanh(0.7978846f * fmaf(0.044715f * x * x, x, x)));
}

template <int V, class F>
__device__ __forceinline__ void each(f32 (&x)[V], F f) {
#pragma unroll
    for (int v = 0; v < V; v++) x[v] = f(x[v], v);
}

// The same for functions of much code, which stands there once: elements take their turn in the first place.
template <int V, class F>
__device__ __forceinline__ void in_turn(f32 (&x)[V], F f) {
#pragma unroll 1
    for (int turn = 0; turn < V; turn++) {
        f32 result = f(x[0]);
#pragma unroll
        for (int v = 1; v < V; v++) x[v - 1] = x[v];
        x[V - 1] = result;
    }
}

template <int V>
__device__ __forceinline__ void power(f32 (&x)[V], const f32 (&exponents)[V]) {
    f32 y[V];
#pragma unroll
    for (int v = 0; v < V; v++) y[v] = exponents[v];
#pragma unroll 1
    for (int turn = 0; turn < V; turn++) {
        f32 result = powf(x[0], y[0]);
#pragma unroll
        for (int v = 1; v < V; v++) x[v - 1] = x[v], y[v - 1] = y[v];
        x[V - 1] = result;
    }
}

template <int V>
__device__ __forceinline__ void apply(u32 op, f32 (&x)[V], const f32 (&y)[V], const f32 (&z)[V]) {
#define UNARY(name, value) \
    case name: each(x, [&](f32 x, int) { return value; }); break;
#define LONG(name, value) \
    case name: in_turn(x, [&](f32 x) { return value; }); break;
#define BINARY(name, value) \
    case name: each(x, [&](f32 x, int v) { f32 y_ = y[v]; return value; }); break;
    // The most usual ones first: each comparison is a step of a search.
    if (op <= MAX) {
        switch (op) {
            BINARY(ADD, x + y_)
            BINARY(SUB, x - y_)
            BINARY(MUL, x * y_)
            BINARY(DIV, x / y_)
            BINARY(MIN, min_or_nan(x, y_))
            BINARY(MAX, max_or_nan(x, y_))
        }
        return;
    }
    switch (op) {
        UNARY(NEG, -x)
        UNARY(ABS, fabsf(x))
        UNARY(SIGN, x > 0 ? 1.0f : x < 0 ? -1.0f : x)
        UNARY(SQUARE, x * x)
        UNARY(SQRT, sqrtf(x))
        UNARY(RSQRT, rsqrtf(x))
        UNARY(RECIP, 1.0f / x)
        UNARY(EXP, expf(x))
        LONG(LN, logf(x))
        LONG(SIN, sinf(x))
        LONG(COS, cosf(x))
        LONG(TAN, tanf(x))
        LONG(ASIN, asinf(x))
        LONG(ACOS, acosf(x))
        LONG(ATAN, atanf(x))
        LONG(SINH, sinhf(x))
        LONG(COSH, coshf(x))
        UNARY(TANH, tanhf(x))
        LONG(ASINH, asinhf(x))
        LONG(ACOSH, acoshf(x))
        LONG(ATANH, atanhf(x))
        UNARY(ERF, erff(x))
        UNARY(SIGMOID, sigmoid(x))
        UNARY(SILU, silu(x))
        UNARY(HARD_SWISH, hard_swish(x))
        UNARY(GELU_ERF, gelu_erf(x))
        UNARY(GELU_TANH, gelu_tanh(x))
        UNARY(FLOOR, floorf(x))
        UNARY(CEIL, ceilf(x))
        UNARY(ROUND, roundf(x))
        UNARY(ROUND_HALF_EVEN, rintf(x))
        UNARY(NOT, x == 0 ? 1.0f : 0.0f)
        UNARY(FROM_I32, __int2float_rn(__float_as_int(x)))
        case POW: power(x, y); break;
        BINARY(EQUAL, x == y_ ? 1.0f : 0.0f)
        BINARY(NOT_EQUAL, x == y_ ? 0.0f : 1.0f)
        BINARY(LESS, x < y_ ? 1.0f : 0.0f)
        BINARY(LESS_EQUAL, x <= y_ ? 1.0f : 0.0f)
        BINARY(GREATER, x > y_ ? 1.0f : 0.0f)
        BINARY(GREATER_EQUAL, x >= y_ ? 1.0f : 0.0f)
        BINARY(EQUAL_I32, __float_as_int(x) == __float_as_int(y_) ? 1.0f : 0.0f)
        BINARY(AND, fminf(x, y_))
        BINARY(OR, fmaxf(x, y_))
        BINARY(XOR, fabsf(x - y_))
        BINARY(LEAKY_RELU, x >= 0 ? x : x * y_)
        BINARY(SELECT, x == 0 ? z[v] : y_)
        BINARY(CLAMP, min_or_nan(max_or_nan(x, y_), z[v]))
        BINARY(MUL_ADD, x * y_ + z[v])
    }
#undef UNARY
#undef LONG
#undef BINARY
}

__device__ __forceinline__ u32 fetch(u64 first, u32 at, u32 kind) {
    if (kind == F16) return *(const u16 *)(first + 2ull * at);
    if (kind == BOOL) return *(const u8 *)(first + at);
    if (kind == I64) return *(const u32 *)(first + 8ull * at);
    return *(const u32 *)(first + 4ull * at);
}

__device__ __forceinline__ f32 half_of(u32 bits) {
    f16 x;
    x.bits = bits;
    return to_f32(x);
}

// Words that lie one after the other, 16 bytes at once or, where there are fewer, all of them.
template <int W>
__device__ __forceinline__ void fetch_words(u32 *to, u64 from) {
    constexpr int EACH = W < 4 ? W : 4;
#pragma unroll
    for (int first = 0; first < W; first += EACH) {
        Pack<u32, EACH> pack = *(const Pack<u32, EACH> *)(from + 4 * first);
#pragma unroll
        for (int w = 0; w < EACH; w++) to[first + w] = pack.at[w];
    }
}

// Operands of one dtype stay as they lie until they are read.
template <class T>
struct All {
    template <int V>
    static constexpr int WORDS = V * sizeof(T) / 4;

    static __device__ __forceinline__ u32 kind(u32) {
        return sizeof(T) == 2 ? F16 : F32;
    }

    template <int V>
    static __device__ __forceinline__ bool fetch_all(u32 (&raw)[WORDS<V>], u64 first, u32 at, u32) {
        fetch_words<WORDS<V>>(raw, first + sizeof(T) * (u64)at);
        return true;
    }

    // Element v as bits of T.
    template <int V>
    static __device__ __forceinline__ void set(u32 (&raw)[WORDS<V>], int v, u32 bits) {
        if (sizeof(T) == 4) raw[v] = bits;
        else if (v % 2) raw[v / 2] |= bits << 16;
        else raw[v / 2] = bits;
    }

    template <int V>
    static __device__ __forceinline__ void decode(u32 (&)[WORDS<V>], u32, bool) {}

    // To what is computed with. By code that differs for each operand: the compiler would join like branches,
    // and index what are to be registers.
    template <int WHICH, int V>
    static __device__ __forceinline__ void values(f32 (&to)[V], const u32 (&raw)[WORDS<V>]) {
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int v = 0; v < V; v++) asm("mov.b32 %0, %1; // %2" : "=f"(to[v]) : "r"(raw[v]), "n"(WHICH));
        } else {
#pragma unroll
            for (int v = 0; v < V; v += 2)
                asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; "
                    "cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; } // %3"
                    : "=f"(to[v]), "=f"(to[v + 1]) : "r"(raw[v / 2]), "n"(WHICH));
        }
    }
};

// Operands of any dtypes are decoded once all have arrived, one element a word.
struct Mixed {
    template <int V>
    static constexpr int WORDS = V;

    static __device__ __forceinline__ u32 kind(u32 kind) {
        return kind;
    }

    // V neighbours; true if they lie packed in the first words.
    template <int V>
    static __device__ __forceinline__ bool fetch_all(u32 (&raw)[V], u64 first, u32 at, u32 kind) {
        if (kind == F16) {
            fetch_words<V / 2>(raw, first + 2ull * at);
        } else if (kind == BOOL) {
            fetch_words<V / 4>(raw, first + at);
        } else if (kind == I64) {
#pragma unroll
            for (int v = 0; v < V; v++) raw[v] = *(const u32 *)(first + 8ull * (at + v));
        } else {
            fetch_words<V>(raw, first + 4ull * at);
        }
        return true;
    }

    template <int V>
    static __device__ __forceinline__ void set(u32 (&raw)[V], int v, u32 bits) {
        raw[v] = bits;
    }

    template <int V>
    static __device__ __forceinline__ void decode(u32 (&raw)[V], u32 kind, bool packed) {
        if (kind == F16) {
#pragma unroll
            for (int v = V - 1; v >= 0; v--) {
                u32 bits = packed ? raw[v / 2] >> (v % 2 * 16) : raw[v];
                raw[v] = __float_as_uint(half_of(bits));
            }
        } else if (kind == BOOL) {
#pragma unroll
            for (int v = V - 1; v >= 0; v--) {
                u32 bits = packed ? raw[v / 4] >> (v % 4 * 8) & 255 : raw[v];
                raw[v] = bits ? __float_as_uint(1.0f) : 0;
            }
        }
    }

    template <int WHICH, int V>
    static __device__ __forceinline__ void values(f32 (&to)[V], const u32 (&raw)[V]) {
        All<f32>::values<WHICH>(to, raw);
    }
};

// One thread's elements: where they are, and the operands that were loaded before anything was computed.
template <class Kinds, int V, bool PACKED, int N>
struct Group {
    static constexpr int WORDS = Kinds::template WORDS<V>, OUT = N;
    const Tensors<N> &args;
    u32 first;
    f32 *slots;

    // How many of the elements there are.
    __device__ __forceinline__ u32 valid() const {
        return first == args.groups - 1 ? args.tail : V;
    }

    // The linear position of element v, where they are not neighbours.
    __device__ __forceinline__ u32 position(int v) const {
        return first / 128 * (128 * V) + v * 128 + first % 128;
    }

    __device__ __forceinline__ u32 offset(u32 t, u32 linear) const {
        u32 at = 0;
#pragma unroll 1
        for (int axis = 0; axis < args.axes.count; axis++) {
            u32 rest = quotient(linear, args.axes.len[axis]);
            at += (linear - rest * args.axes.len[axis].divisor) * args.axes.strides[axis][t];
            linear = rest;
        }
        return at;
    }

    // Operand t, whose first element of this group is at `at`.
    __device__ __forceinline__ bool neighbours(u32 t, u32 at, u32 (&raw)[WORDS]) const {
        u32 kind = Kinds::kind(args.kinds[t]);
        u64 base = args.operands[t];
        if (args.still[t]) {
            u32 bits = fetch(base, at, kind);
#pragma unroll
            for (int v = 0; v < V; v++) Kinds::template set<V>(raw, v, bits);
            return false;
        }
        if (valid() == V) return Kinds::template fetch_all<V>(raw, base, at, kind);
#pragma unroll
        for (int v = 0; v < V; v++)
            Kinds::template set<V>(raw, v, v < valid() ? fetch(base, at + v, kind) : 0);
        return false;
    }

    // An operand that was not loaded before.
    __device__ __forceinline__ void late(u32 t, f32 (&to)[V]) const {
        u32 raw[WORDS], kind = Kinds::kind(args.kinds[t]);
        bool together = false;
        if (PACKED) {
            together = neighbours(t, offset(t, first), raw);
        } else {
#pragma unroll
            for (int v = 0; v < V; v++) {
                u32 linear = position(v);
                raw[v] = linear < args.tail ? fetch(args.operands[t], offset(t, linear), kind) : 0;
            }
        }
        Kinds::template decode<V>(raw, kind, together);
        Kinds::template values<EARLY>(to, raw);
    }

    __device__ __forceinline__ void read(
        u32 from, f32 (&to)[V], const f32 (&last)[V], const u32 (&early)[EARLY][WORDS],
        const PointwiseArgs &chain) const {
        if (from == LAST) {
#pragma unroll
            for (int v = 0; v < V; v++) to[v] = last[v];
        } else if (from >= NUMBER) {
            f32 number = chain.numbers[from - NUMBER];
#pragma unroll
            for (int v = 0; v < V; v++) to[v] = number;
        } else if (from >= SLOT) {
#pragma unroll
            for (int half = 0; half < V; half += 4) {
                u32 at = ((from - SLOT) * (V / 4) + half / 4) * 128 + threadIdx.x;
                Pack<f32, 4> pack = ((Pack<f32, 4> *)slots)[at];
#pragma unroll
                for (int v = 0; v < 4; v++) to[half + v] = pack.at[v];
            }
        } else {
            u32 t = from - OPERAND;
            if (t == 0) return Kinds::template values<0>(to, early[0]);
            if (t == 1) return Kinds::template values<1>(to, early[1]);
            if (t == 2) return Kinds::template values<2>(to, early[2]);
            if (t == 3) return Kinds::template values<3>(to, early[3]);
            late(t, to);
        }
    }

    __device__ __forceinline__ void keep(u32 slot, const f32 (&x)[V]) const {
#pragma unroll
        for (int half = 0; half < V; half += 4) {
            Pack<f32, 4> pack;
#pragma unroll
            for (int v = 0; v < 4; v++) pack.at[v] = x[half + v];
            ((Pack<f32, 4> *)slots)[(slot * (V / 4) + half / 4) * 128 + threadIdx.x] = pack;
        }
    }

    __device__ __forceinline__ void put(f32 x, u32 at) const {
        u32 kind = Kinds::kind(args.kinds[OUT]);
        if (kind == F32) ((f32 *)args.out)[at] = x;
        else if (kind == F16) ((f16 *)args.out)[at] = from_f32<f16>(x);
        else ((u8 *)args.out)[at] = x != 0;
    }

    template <class T>
    __device__ __forceinline__ void put_all(const f32 (&x)[V], u32 at) const {
        constexpr int EACH = V * sizeof(T) < 16 ? V : 16 / sizeof(T);
#pragma unroll
        for (int first = 0; first < V; first += EACH) {
            f32 part[EACH];
#pragma unroll
            for (int v = 0; v < EACH; v++) part[v] = x[first + v];
            store((T *)args.out + at + first, part);
        }
    }

    __device__ __forceinline__ void result(const f32 (&x)[V], u32 at) const {
        u32 kind = Kinds::kind(args.kinds[OUT]);
        if (valid() != V) {
#pragma unroll
            for (int v = 0; v < V; v++)
                if (v < valid()) put(x[v], at + v);
        } else if (kind == F32) {
            put_all<f32>(x, at);
        } else if (kind == F16) {
            put_all<f16>(x, at);
        } else {
            Pack<u8, V> pack;
#pragma unroll
            for (int v = 0; v < V; v++) pack.at[v] = x[v] != 0;
            *(Pack<u8, V> *)((u8 *)args.out + at) = pack;
        }
    }

    // Offsets of the first COUNT operands and of the output.
    template <int COUNT>
    __device__ __forceinline__ void locate(u32 (&at)[COUNT + 1], u32 linear) const {
        // Tensors without gaps, the usual case.
        if (args.axes.count == 1) {
#pragma unroll
            for (int t = 0; t < COUNT; t++) at[t] = linear * args.axes.strides[0][t];
            at[COUNT] = linear * args.axes.strides[0][OUT];
            return;
        }
#pragma unroll 1
        for (int axis = 0; axis < args.axes.count; axis++) {
            u32 rest = quotient(linear, args.axes.len[axis]);
            u32 index = linear - rest * args.axes.len[axis].divisor;
            linear = rest;
#pragma unroll
            for (int t = 0; t < COUNT; t++) at[t] += index * args.axes.strides[axis][t];
            at[COUNT] += index * args.axes.strides[axis][OUT];
        }
    }

    __device__ __forceinline__ void run(const PointwiseArgs &chain) const {
        u32 early[EARLY][WORDS] = {}, at[PACKED ? 1 : V][EARLY + 1] = {};
        bool together[EARLY] = {};
        if (PACKED) {
            locate<EARLY>(at[0], first);
#pragma unroll
            for (int t = 0; t < EARLY; t++)
                if (t < args.operand_count) together[t] = neighbours(t, at[0][t], early[t]);
        } else {
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (position(v) >= args.tail) break;
                u32(&own)[EARLY + 1] = at[PACKED ? 0 : v];
                locate<EARLY>(own, position(v));
#pragma unroll
                for (int t = 0; t < EARLY; t++)
                    if (t < args.operand_count)
                        early[t][v] = fetch(args.operands[t], own[t], Kinds::kind(args.kinds[t]));
            }
        }
#pragma unroll
        for (int t = 0; t < EARLY; t++)
            if (t < args.operand_count)
                Kinds::template decode<V>(early[t], Kinds::kind(args.kinds[t]), together[t]);

        f32 x[V] = {};
        Instr next = chain.instrs[0];
#pragma unroll 1
        for (int i = 0; i < chain.instr_count; i++) {
            Instr instr = next;
            next = chain.instrs[i + 1];
            f32 y[V], z[V];
            u32 from = instr.what >> 16 & 255;
            if (from != NOTHING) read(from, y, x, early, chain);
            from = instr.what >> 24;
            if (from != NOTHING) read(from, z, x, early, chain);
            from = instr.what >> 8 & 255;
            if (from != LAST) read(from, x, x, early, chain);
            apply(instr.what & 255, x, y, z);
            if (instr.slot != NOTHING) keep(instr.slot, x);
        }
        if (PACKED) {
            result(x, at[0][EARLY]);
        } else {
#pragma unroll
            for (int v = 0; v < V; v++)
                if (position(v) < args.tail) put(x[v], at[PACKED ? 0 : v][EARLY]);
        }
    }
};

template <class Kinds, int V, bool PACKED>
__device__ __forceinline__ void pointwise(const PointwiseArgs &args) {
    extern __shared__ Wide slots[];
    u32 first = blockIdx.x * 128 + threadIdx.x;
    const Tensors<OPERANDS> &tensors = args.tensors;
    if (first < tensors.groups) Group<Kinds, V, PACKED, OPERANDS>{tensors, first, (f32 *)slots}.run(args);
}

template <class T>
__device__ __forceinline__ void short_chain(const ShortArgs &args) {
    constexpr int V = 16 / sizeof(T);
    using Kinds = All<T>;
    u32 first = blockIdx.x * 128 + threadIdx.x;
    if (first >= args.tensors.groups) return;
    Group<Kinds, V, true, 2> group{args.tensors, first, nullptr};
    u32 at[3] = {}, raw[2][4];
    group.template locate<2>(at, first);
    group.neighbours(0, at[0], raw[0]);
    if (args.join != SAME) group.neighbours(1, at[1], raw[1]);
    f32 x[V], y[V];
    Kinds::template values<0>(x, raw[0]);
    if (args.join != SAME) {
        Kinds::template values<1>(y, raw[1]);
        if (args.join == ADD) each(x, [&](f32 x, int v) { return x + y[v]; });
        else if (args.join == MUL) each(x, [&](f32 x, int v) { return x * y[v]; });
        else each(x, [&](f32 x, int v) { return x - y[v]; });
    }
    switch (args.function) {
        case CLAMP: {
            f32 low = args.low, high = args.high;
            each(x, [&](f32 x, int) { return min_or_nan(max_or_nan(x, low), high); });
            break;
        }
        case SIGMOID: each(x, [](f32 x, int) { return sigmoid(x); }); break;
        case SILU: each(x, [](f32 x, int) { return silu(x); }); break;
        case HARD_SWISH: each(x, [](f32 x, int) { return hard_swish(x); }); break;
        case GELU_ERF: each(x, [](f32 x, int) { return gelu_erf(x); }); break;
        case GELU_TANH: each(x, [](f32 x, int) { return gelu_tanh(x); }); break;
        case TANH: each(x, [](f32 x, int) { return tanhf(x); }); break;
    }
    group.result(x, at[2]);
}

#define POINTWISE(name, kinds, v, packed) \
    KERNEL((128), pointwise_##name##_##v, PointwiseArgs) { \
        pointwise<kinds, v, packed>(args); \
    }
#define SHORT(type) \
    KERNEL((128), pointwise_short_##type, ShortArgs) { \
        short_chain<type>(args); \
    }

POINTWISE(f32, All<f32>, 4, true)
POINTWISE(f32, All<f32>, 8, true)
POINTWISE(f16, All<f16>, 8, true)
POINTWISE(mixed, Mixed, 4, true)
POINTWISE(any, Mixed, 4, false)
SHORT(f32)
SHORT(f16)

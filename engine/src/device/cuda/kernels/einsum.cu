// Any product of two tensors summed over labels, plainly: c = Σ a · b + bias. For what no matrix kernel
// takes.
//
// a, b, c: any strides, all f32 or all f16; the bias f32 or as they are; arithmetic is f32 fused
// multiply-add. A thread makes one element. Grid: elements over blocks of 128, neighbouring threads along c's
// innermost axis. May be captured.

struct EinsumArgs {
    u64 a, b, bias, c;
    // Strides of a, b, bias and c.
    Axes<4, 6> kept;
    // The summed labels but the innermost one: strides of a and b.
    Axes<2, 5> summed;
    u32 elements, sums, inner, inner_strides[2], wide_bias;
};

template <class T>
__device__ __forceinline__ void einsum(const EinsumArgs &args) {
    u32 linear = blockIdx.x * blockDim.x + threadIdx.x;
    if (linear >= args.elements) return;
    u32 at[4] = {};
    locate(at, linear, args.kept);
    f32 total[2] = {};
    for (u32 sum = 0; sum < args.sums; sum++) {
        u32 from[2] = {at[0], at[1]};
        locate(from, sum, args.summed);
        const T *a = (const T *)args.a + from[0], *b = (const T *)args.b + from[1];
        u32 i = 0;
#pragma unroll 2
        for (; i + 1 < args.inner; i += 2) {
            total[0] = fmaf(to_f32(a[0]), to_f32(b[0]), total[0]);
            total[1] = fmaf(to_f32(a[args.inner_strides[0]]), to_f32(b[args.inner_strides[1]]), total[1]);
            a += 2 * args.inner_strides[0];
            b += 2 * args.inner_strides[1];
        }
        if (i < args.inner) total[0] = fmaf(to_f32(a[0]), to_f32(b[0]), total[0]);
    }
    f32 bias = 0;
    if (args.bias)
        bias = args.wide_bias ? ((const f32 *)args.bias)[at[2]] : to_f32(((const T *)args.bias)[at[2]]);
    ((T *)args.c)[at[3]] = from_f32<T>(total[0] + total[1] + bias);
}

KERNEL((128), einsum_f32, EinsumArgs) {
    einsum<f32>(args);
}

KERNEL((128), einsum_f16, EinsumArgs) {
    einsum<f16>(args);
}

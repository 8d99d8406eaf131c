// Large products and convolutions on sm_90a, f16 or f32 by tf32. Operands as for gemm.cu and conv.cu, with
// rows of C, the operand and the bias aligned to 16 bytes and n a multiple of 8. What is not a tf32 yet is
// cut off.
//
// Grid: (as many blocks as there are multiprocessors, or tiles where those are fewer; batch); those with `parts` in
// their names: (tiles, batch, parts of k), in clusters of 2, 4 or 8 parts. Block: 384 threads. May be captured, and
// launched dependently.
#include "wide.cuh"
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WIDE(name, type, tn, stages, read_a, parted)                                                         \
    extern "C" __global__ void __launch_bounds__(384, 1) name(const __grid_constant__ Args p) {              \
        Wide<type, tn, stages, read_a, parted>::run(p);                                                      \
    }
#define FAMILY(op, type, prefix, read_a)                                                                     \
    WIDE(op##_##prefix##_wide_128x64, type, 64, 7, read_a, false)                                            \
    WIDE(op##_##prefix##_wide_128x128, type, 128, 5, read_a, false)                                          \
    WIDE(op##_##prefix##_wide_128x192, type, 192, 4, read_a, false)                                          \
    WIDE(op##_##prefix##_wide_parts_128x64, type, 64, 8, read_a, true)                                       \
    WIDE(op##_##prefix##_wide_parts_128x128, type, 128, 6, read_a, true)
FAMILY(gemm, F16, f16, ROWS)
FAMILY(gemm, TF32, tf32, ROWS)
FAMILY(conv, F16, f16, WINDOWS)
FAMILY(conv, TF32, tf32, WINDOWS)
#endif

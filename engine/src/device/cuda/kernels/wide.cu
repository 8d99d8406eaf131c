// Large products and convolutions on sm_90a, f16 or f32 by tf32. Operands as for gemm.cu and conv.cu, with
// rows of C, the operand and the bias aligned to 16 bytes and n a multiple of 8. What is not a tf32 yet is
// cut off.
//
// Grid: (as many blocks as there are multiprocessors, or tiles where those are fewer; batch); block: 384
// threads. May be captured, and launched dependently.
#include "wide.cuh"
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WIDE(name, type, tn, stages, read_a)                                                                 \
    extern "C" __global__ void __launch_bounds__(384, 1) name(const __grid_constant__ Args p) {              \
        Wide<type, tn, stages, read_a>::run(p);                                                              \
    }
#define FAMILY(type, prefix)                                                                                 \
    WIDE(gemm_##prefix##_wide_128x64, type, 64, 7, ROWS)                                                     \
    WIDE(gemm_##prefix##_wide_128x128, type, 128, 5, ROWS)                                                   \
    WIDE(gemm_##prefix##_wide_128x192, type, 192, 4, ROWS)                                                   \
    WIDE(conv_##prefix##_wide_128x64, type, 64, 7, WINDOWS)                                                  \
    WIDE(conv_##prefix##_wide_128x128, type, 128, 5, WINDOWS)                                                \
    WIDE(conv_##prefix##_wide_128x192, type, 192, 4, WINDOWS)
FAMILY(F16, f16)
FAMILY(TF32, tf32)
#endif

// C[m, n] = act(A[m, k] · B[k, n] + bias …), batches of it; f16 or f32, the latter by tf32 or in full
// precision.
//
// Any m, n, k and strides. Grid: (tiles of m × tiles of n, batch, splits of k), from sm_90 on in clusters of
// the splits; block and dynamic shared memory: as tile.rs says. May be captured, and launched dependently.
#include "tile.cuh"
#define FAMILY(type, prefix)                                                                                 \
    TILE(gemm_##prefix##_128x64, type, 128, 64, 32, 32, 1, 4, ROWS, PACKED, 2)                               \
    TILE(gemm_##prefix##_64x128, type, 64, 128, 32, 32, 1, 4, ROWS, PACKED, 2)                               \
    TILE(gemm_##prefix##_64x64, type, 64, 64, 32, 32, 2, 5, ROWS, PACKED, 2)                                 \
    TILE(gemm_##prefix##_64x32, type, 64, 32, 32, 32, 2, 6, ROWS, PACKED, 2)                                 \
    TILE(gemm_##prefix##_32x64, type, 32, 64, 32, 32, 2, 6, ROWS, PACKED, 2)                                 \
    TILE(gemm_##prefix##_32x32, type, 32, 32, 32, 32, 4, 8, ROWS, PACKED, 2)                                 \
    TILE(gemm_##prefix##_16x64, type, 16, 64, 16, 32, 2, 8, ROWS, PACKED, 2)                                 \
    TILE(gemm_##prefix##_16x32, type, 16, 32, 16, 32, 4, 8, ROWS, PACKED, 2)                                 \
    TILE(gemm_##prefix##_rows_64x64, type, 64, 64, 32, 32, 1, 4, ROWS, ROWS, 2)                              \
    TILE(gemm_##prefix##_any_64x64, type, 64, 64, 32, 32, 1, 3, GATHER, GATHER, 2)                           \
    TILE(gemm_##prefix##_any_packed_64x64, type, 64, 64, 32, 32, 1, 3, GATHER, PACKED, 2)
#define LARGEST(type, prefix)                                                                                \
    TILE(gemm_##prefix##_128x128, type, 128, 128, 64, 64, 1, 3, ROWS, PACKED, 2)                             \
    TILE(gemm_##prefix##_rows_128x128, type, 128, 128, 64, 64, 1, 3, ROWS, ROWS, 2)
FAMILY(F16, f16)
FAMILY(TF32, tf32)
FAMILY(F32, f32)
LARGEST(F16, f16)
LARGEST(TF32, tf32)

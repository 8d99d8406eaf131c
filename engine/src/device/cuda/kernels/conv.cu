// Convolution of images, channels last, as a product: rows are the output's pixels, k is the window's taps
// times channels, read from the image where they lie (implicit GEMM). Weights are packed (`pack.rs`); groups
// are a batch.
//
// Grid, block, shared memory as in gemm.cu. May be captured, and launched dependently.
#include "tile.cuh"
#define FAMILY(type, prefix)                                                                                 \
    TILE(conv_##prefix##_128x64, type, 128, 64, 32, 32, 1, 4, WINDOWS, PACKED, 2)                            \
    TILE(conv_##prefix##_64x128, type, 64, 128, 32, 32, 1, 4, WINDOWS, PACKED, 2)                            \
    TILE(conv_##prefix##_64x64, type, 64, 64, 32, 32, 2, 5, WINDOWS, PACKED, 2)                              \
    TILE(conv_##prefix##_64x32, type, 64, 32, 32, 32, 2, 6, WINDOWS, PACKED, 2)                              \
    TILE(conv_##prefix##_32x64, type, 32, 64, 32, 32, 2, 6, WINDOWS, PACKED, 2)                              \
    TILE(conv_##prefix##_32x32, type, 32, 32, 32, 32, 4, 8, WINDOWS, PACKED, 2)                              \
    TILE(conv_##prefix##_any_64x64, type, 64, 64, 32, 32, 1, 3, GATHER, PACKED, 2)                           \
    TILE(conv_##prefix##_any_64x32, type, 64, 32, 32, 16, 1, 3, GATHER, PACKED, 2)
#define LARGEST(type, prefix) TILE(conv_##prefix##_128x128, type, 128, 128, 64, 64, 1, 3, WINDOWS, PACKED, 2)
FAMILY(F16, f16)
FAMILY(TF32, tf32)
FAMILY(F32, f32)
LARGEST(F16, f16)
LARGEST(TF32, tf32)

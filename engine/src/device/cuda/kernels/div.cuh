// Division by numbers that the host prepares, as `Div` in grid.rs.
#pragma once
#include "ptx.cuh"

// n / by = (n · mul >> 32) >> shift, for n < 2^31 (Granlund and Montgomery 1994); `mul` is 0 for powers of
// two.
struct Div {
    u32 by, mul, shift;
};
__device__ __forceinline__ u32 divide(u32 n, const Div &d) {
    return (d.mul ? __umulhi(n, d.mul) : n) >> d.shift;
}

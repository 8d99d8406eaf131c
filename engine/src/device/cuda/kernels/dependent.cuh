// Launches that begin before the one ahead of them is done.
#pragma once

// Programmatic dependent launch (sm_90 on; nothing elsewhere): the next kernel of the stream may start, and
// this one waits here until all before it are done and what they wrote is seen. What comes before the wait
// must touch constants alone. A kernel that never waits must not be launched with the attribute.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

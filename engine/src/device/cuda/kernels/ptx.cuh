// Instructions that CUDA C++ has no word for without its headers. f16 is handled as its bits.
#pragma once
#include "dependent.cuh"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef long long i64;

// The address of shared memory as instructions on it want it.
__device__ __forceinline__ u32 shared_address(const void *at) {
    u64 address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(at));
    return (u32)address;
}

// Copies 16 bytes to shared memory in the background; those from `bytes` on become 0 and are not read.
__device__ __forceinline__ void copy_async(u32 to, const void *from, u32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_async(u32 to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING of the groups committed by this thread are under way.
template <int PENDING> __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Waits for all of this thread's copies, committed or not.
__device__ __forceinline__ void copies_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Four matrices of 8 rows of 16 bytes, whose rows' addresses lanes 0-7, 8-15, 16-23 and 24-31 give; lane i
// gets word i % 4 of row i / 4 of each.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
// The same, of f16, transposed: lane i gets elements 2 (i % 4) and the next of column i / 4.
__device__ __forceinline__ void load_matrices_transposed(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

// c += a · b, 16 × 8 over 16 of f16, or over 8 of tf32.
__device__ __forceinline__ void multiply_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_tf32(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The nearest tf32.
__device__ __forceinline__ u32 to_tf32(u32 x) {
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

__device__ __forceinline__ float from_half(u16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
// What is out of range becomes the largest number, and NaN stays.
__device__ __forceinline__ u16 to_half(float x) {
    u16 y;
    asm("cvt.rn.satfinite.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
// Two f16 in a word, the first in its lower half.
__device__ __forceinline__ u32 to_halves(float low, float high) {
    u32 y;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
__device__ __forceinline__ float low_half(u32 x) { return from_half((u16)x); }
__device__ __forceinline__ float high_half(u32 x) { return from_half((u16)(x >> 16)); }

// All blocks of a cluster meet: they come, and go on when all have come. What was written to shared memory
// before is seen after. Clusters exist from sm_90 on.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ u32 cluster_blocks() {
    u32 blocks = 1;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_nctaid.z;" : "=r"(blocks));
#endif
    return blocks;
}
// Makes a barrier in shared memory that is passed once so many bytes have been sent to it.
__device__ __forceinline__ void expect(u32 barrier, u32 bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(barrier)
        : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
#endif
}
__device__ __forceinline__ void await(u32 barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .pred p;\n"
                 "again:\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n\t@!p bra "
                 "again;\n\t}" ::"r"(barrier)
                 : "memory");
#endif
}
// Sends to this shared address of another block of the cluster, and tells its barrier.
__device__ __forceinline__ void cluster_send(u32 address, u32 barrier, u32 rank, const float (&x)[8]) {
#if __CUDA_ARCH__ >= 900
    u32 to, there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(address), "r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(barrier), "r"(rank));
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(to),
        "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(there)
        : "memory");
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0+16], {%1,%2,%3,%4}, [%5];" ::"r"(
            to),
        "f"(x[4]), "f"(x[5]), "f"(x[6]), "f"(x[7]), "r"(there)
        : "memory");
#endif
}

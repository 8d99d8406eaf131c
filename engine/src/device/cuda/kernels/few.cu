// Convolution of images with few channels, as a network's first is: a line of a window is one run of
// elements.
//
// A block brings the patch of the image under its pixels to shared memory once, as it lies, and the matrix
// units read their left side from there, since neighbouring pixels' runs overlap: word w of pixel x's run is
// word x · stride + w of the line. Wants pixels without gaps, dilation 1 along x and whole words from pixel
// to pixel. Weights are packed (`pack.rs`) with lines of the window as taps and a line's elements as
// channels, filled up to whole chunks.
//
// A block has 64 pixels of 2 · part_rows.by lines, N output channels. Grid: (groups of pixels × groups of
// lines, groups of channels, images); block: 256 threads. May be captured, and launched dependently.
#include "tile.cuh"

template <class T, int N> struct Few {
    static const int NI = N / 8, K = 128 / T::SIZE, E = T::CHUNK;
    // Elements of a row of results on their way out.
    static const int PITCH = N + E;

    static __device__ __forceinline__ void run(const Args &p) {
        let_next_start();
        int group_y = divide(blockIdx.x, p.tiles_n), x0 = (blockIdx.x - group_y * p.tiles_n.by) * 64;
        int lines = p.part_rows.by, y0 = group_y * 2 * lines, n0 = blockIdx.y * N, image = blockIdx.z;
        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        u32 base = shared_address(shared);

        // Weights are constants.
        int chunks = min(N, p.packed_rows - n0) * 8;
#pragma unroll 1
        for (int block = 0; block < p.k_blocks; block++)
#pragma unroll 1
            for (int i = threadIdx.x; i < chunks; i += 256)
                copy_async(base + block * N * 128 + i * 16,
                           (const char *)p.b + (((i64)block * p.packed_rows + n0) * 8 + i) * 16);
        copies_commit();
        float bias[NI][2];
#pragma unroll
        for (int j = 0; j < NI; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int n = n0 + j * 8 + lane % 4 * 2 + e;
                bias[j][e] = p.bias && n < p.n ? p.bias[n] : 0.0f;
            }

        // Elements of a pixel's step, of a run with what it is filled up to, and of a line of the patch.
        int step = p.stride_x * p.channels, run = (p.window_w.by * p.channels + E - 1) / E * E,
            pitch = (63 * step + run + 7) & ~7;
        int height = (2 * lines - 1) * p.stride_y + (p.window_h - 1) * p.dilation_y + 1;
        int first = (x0 * p.stride_x - p.before_x) * p.channels, line0 = y0 * p.stride_y - p.before_y,
            width = p.in_w * p.channels;
        typename T::Stored *patch = (typename T::Stored *)(shared + p.k_blocks * N * 128);
        wait_for_previous();
        for (int line = warp; line < height; line += 8) {
            int y = line0 + line;
            const typename T::Stored *from =
                (const typename T::Stored *)p.a + (i64)image * p.a_image + (i64)y * p.a_y + first;
            bool inside = (u32)y < (u32)p.in_h;
#pragma unroll 1
            for (int start = lane; start < pitch; start += 14 * 32) {
                // All loads before the first store.
                typename T::Stored x[14];
#pragma unroll
                for (int i = 0; i < 14; i++) {
                    x[i] = 0;
                    if (inside && (u32)(first + start + i * 32) < (u32)width) x[i] = from[start + i * 32];
                }
#pragma unroll
                for (int i = 0; i < 14; i++)
                    if (start + i * 32 < pitch) patch[line * pitch + start + i * 32] = x[i];
            }
        }
        copies_wait<0>();
        __syncthreads();

        const u32 *words = (const u32 *)patch;
        typename T::Stored *out = patch + height * pitch + warp * 16 * PITCH;
        int per_line = run / E, total = per_line * p.window_h, steps = (total + 1) / 2;
        u32 from_b = base + ((lane & 7) + (lane >> 4) * 8) * 128;
        for (int i = 0; i < lines; i++) {
            int line = (warp >> 2) * lines + i;
            // Words of this lane's pixel, the one 8 further on, and how far lines of the window are apart.
            int pixel = (warp & 3) * 16 + lane / 4,
                word = (line * p.stride_y * pitch + pixel * step) * T::SIZE / 4 + lane % 4;
            int next = 8 * step * T::SIZE / 4, down = p.dilation_y * pitch * T::SIZE / 4;
            float c[1][NI][4];
#pragma unroll
            for (int j = 0; j < NI; j++)
                c[0][j][0] = c[0][j][2] = bias[j][0], c[0][j][1] = c[0][j][3] = bias[j][1];
            int tap = 0, at = 0, left = total;
#pragma unroll 2
            for (int s = 0; s < steps; s++) {
                u32 a[1][4], b[NI / 2][4];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    // An odd chunk at the end has weights of zero.
                    int from = left > 0 ? word + tap * down + at * 4 : word;
                    a[0][h * 2] = words[from], a[0][h * 2 + 1] = words[from + next];
                    if (++at == per_line) at = 0, tap++;
                    left--;
                }
                u32 block = from_b + (s >> 2) * N * 128 + (((s & 3) * 2 + (lane >> 3 & 1) ^ (lane & 7)) << 4);
#pragma unroll
                for (int j = 0; j < NI / 2; j++) load_matrices(b[j], block + j * 16 * 128);
                T::template step<1, NI>(c, a, b);
            }
            // Activation, then whole rows through shared memory.
            activate_all(p.act, *(float (*)[NI * 4]) c, p.alpha, p.beta);
            __syncwarp();
#pragma unroll
            for (int j = 0; j < NI; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    T::store(out, (lane / 4 + e / 2 * 8) * PITCH + j * 8 + lane % 4 * 2 + (e & 1),
                             c[0][j][e]);
            __syncwarp();
            int y = y0 + line;
            if (y >= (int)(p.out_hw.by / p.out_w.by)) break;
            for (int item = lane; item < 16 * N / E; item += 32) {
                int row = item / (N / E), n = item % (N / E) * E, x = x0 + (warp & 3) * 16 + row;
                if (x >= (int)p.out_w.by) continue;
                i64 to = (i64)image * p.c_image + (i64)y * p.c_y + (i64)x * p.c_x;
                if (p.vector && n0 + n + E <= p.n)
                    *(uint4 *)((typename T::Stored *)p.c + to + n0 + n) =
                        *(const uint4 *)(out + row * PITCH + n);
                else
                    for (int e = 0; e < E; e++)
                        if (n0 + n + e < p.n)
                            ((typename T::Stored *)p.c)[to + (i64)(n0 + n + e) * p.c_n] =
                                out[row * PITCH + n + e];
            }
        }
    }
};

#define FEW(name, type, n)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) name(const __grid_constant__ Args p) {                 \
        Few<type, n>::run(p);                                                                                \
    }
#define FAMILY(type, prefix)                                                                                 \
    FEW(conv_##prefix##_few_64x16, type, 16)                                                                 \
    FEW(conv_##prefix##_few_64x32, type, 32)                                                                 \
    FEW(conv_##prefix##_few_64x64, type, 64)
FAMILY(F16, f16)
FAMILY(TF32, tf32)
FAMILY(F32, f32)

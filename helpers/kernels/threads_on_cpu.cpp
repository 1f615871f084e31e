// Runs the text of a simple CUDA kernel without a GPU: shown and used in notebooks/02_load_inline.ipynb.
// It says whether a kernel is right, never how fast it is. No shared memory, no __syncthreads: threads do not meet.

// [kernel:threads_on_cpu]
#include <cmath>
#include <cstdint>

#define __global__
using cudaStream_t = void*;
static int cudaGetLastError() { return 0; }
static const char* cudaGetErrorString(int) { return "no error"; }

struct dim3 {
    unsigned x, y;
    dim3(unsigned x = 1, unsigned y = 1) : x(x), y(y) {}
};
static dim3 gridDim, blockDim, blockIdx, threadIdx;

template <class Kernel>
auto one_thread_at_a_time(Kernel kernel, dim3 grid, dim3 block) {
    return [=](auto... arguments) {
        gridDim = grid, blockDim = block;
        for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
                for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y)
                    for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) kernel(arguments...);
    };
}
#define LAUNCH(kernel, grid, block, stream) one_thread_at_a_time(kernel, grid, block)
// [/kernel:threads_on_cpu]

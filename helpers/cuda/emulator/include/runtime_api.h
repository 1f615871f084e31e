// What host code may call of CUDA's runtime and of PyTorch's CUDA headers. Part of cuda_host.h.
#pragma once

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInvalidConfiguration = 9 };
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };

inline cudaError_t cudaPeekAtLastError() { return (cudaError_t)wb::last_error; }
inline cudaError_t cudaGetLastError() {
    const cudaError_t error = cudaPeekAtLastError();
    wb::last_error = 0;
    return error;
}
inline const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    }
    return "unrecognized error code";
}
inline const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    }
    return "unrecognized error code";
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
template <class F> cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute which, int value) {
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > wb::MAX_SHARED) return cudaErrorInvalidValue;
    if ((size_t)value > wb::allowed_dynamic) wb::allowed_dynamic = (size_t)value;
    return cudaSuccess;
}
template <class T> cudaError_t cudaMalloc(T** p, size_t bytes) {
    if (posix_memalign((void**)p, 256, bytes ? bytes : 1)) return cudaErrorMemoryAllocation;
    wb::device_ranges.push_back({(char*)*p, bytes});
    return cudaSuccess;
}
inline cudaError_t cudaFree(void* p) {
    auto& all = wb::device_ranges;
    for (size_t i = 0; i < all.size(); ++i)
        if (all[i].base == p) {
            all.erase(all.begin() + (long)i);
            free(p);
            return cudaSuccess;
        }
    return p ? cudaErrorInvalidValue : cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) { return memmove(to, from, bytes), cudaSuccess; }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t = nullptr) { return memmove(to, from, bytes), cudaSuccess; }
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) { return memset(to, value, bytes), cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr) { return memset(to, value, bytes), cudaSuccess; }
template <class T> cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice) {
    if (offset + bytes > sizeof(T)) return cudaErrorInvalidValue;
    return memcpy((char*)&symbol + offset, from, bytes), cudaSuccess;
}
template <class T> cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t = nullptr) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}

#ifdef TORCH_CHECK
#define C10_CUDA_CHECK(call)                                                             \
    do {                                                                                 \
        const cudaError_t wb_error = (call);                                             \
        TORCH_CHECK(wb_error == cudaSuccess, "CUDA error: ", cudaGetErrorString(wb_error)); \
    } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK C10_CUDA_CHECK
namespace c10::cuda {
struct CUDAGuard {
    template <class D> explicit CUDAGuard(D) {}
};
struct OptionalCUDAGuard {
    OptionalCUDAGuard() {}
    template <class D> explicit OptionalCUDAGuard(D) {}
};
struct CUDAStream {
    cudaStream_t stream() const { return nullptr; }
    operator cudaStream_t() const { return nullptr; }
};
inline CUDAStream getCurrentCUDAStream(int = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(int = -1) { return {}; }
}  // namespace c10::cuda
namespace at {
template <class T> struct RestrictPtrTraits { using PtrType = T* __restrict__; };
}  // namespace at
namespace at::cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::OptionalCUDAGuard;
}  // namespace at::cuda
#endif

// What device code may call: barriers, warp functions, atomics, math and bits. Part of cuda_host.h.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#if !defined(__clang__)
#define __builtin_assume(condition)
#endif
#define __grid_constant__
#ifndef __restrict__
#define __restrict__ __restrict
#endif
#define __align__(n) __attribute__((aligned(n)))
#define threadIdx (wb::ctx.thread)
#define blockIdx (wb::ctx.block)
#define blockDim (wb::ctx.block_dim)
#define gridDim (wb::ctx.grid_dim)
#define warpSize 32
#ifndef CUDART_INF_F
#define CUDART_INF_F __builtin_huge_valf()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_huge_val()
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931e+0
#endif

#define WB_LINE int line = __builtin_LINE()
inline void __syncthreads(WB_LINE) { wb::barrier(line, 0); }
inline int __syncthreads_count(int predicate, WB_LINE) { return wb::barrier(line, predicate != 0); }
inline int __syncthreads_or(int predicate, WB_LINE) { return wb::barrier(line, predicate != 0) > 0; }
inline int __syncthreads_and(int predicate, WB_LINE) { return wb::barrier(line, predicate != 0) == (int)wb::ctx.worker->n; }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
[[noreturn]] inline void __trap(WB_LINE) { wb::fail("assert", "", wb::ctx.kernel, wb::ctx.thread, line, "__trap()", 0, "__trap() was called"); }

// ---- warps

namespace wb {
template <class T>
T shuffle(WarpOp op, unsigned mask, T value, int arg, int width, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = warp_wait(op, mask, bits, sizeof(T), arg, width, false, line);
    std::remove_cv_t<T> result;
    memcpy(&result, &bits, sizeof(T));
    return result;
}
template <class T>
T reduce(WarpOp op, unsigned mask, T value, int line) {
    static_assert(std::is_integral_v<T> && sizeof(T) == 4, "__reduce_*_sync takes int or unsigned");
    return (T)warp_wait(op, mask, (unsigned)value, 4, 0, 32, std::is_signed_v<T>, line);
}
template <class T> struct same { using type = T; };
template <class T> using as = typename same<T>::type;
}  // namespace wb
template <class T> T __shfl_sync(unsigned mask, T v, int lane, int width = 32, WB_LINE) { return wb::shuffle(wb::SHFL, mask, v, lane, width, line); }
template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, WB_LINE) { return wb::shuffle(wb::SHFL_UP, mask, v, by, width, line); }
template <class T> T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, WB_LINE) { return wb::shuffle(wb::SHFL_DOWN, mask, v, by, width, line); }
template <class T> T __shfl_xor_sync(unsigned mask, T v, int with, int width = 32, WB_LINE) { return wb::shuffle(wb::SHFL_XOR, mask, v, with, width, line); }
inline int __all_sync(unsigned mask, int predicate, WB_LINE) { return (int)wb::warp_wait(wb::ALL, mask, predicate != 0, 4, 0, 32, true, line); }
inline int __any_sync(unsigned mask, int predicate, WB_LINE) { return (int)wb::warp_wait(wb::ANY, mask, predicate != 0, 4, 0, 32, true, line); }
inline unsigned __ballot_sync(unsigned mask, int predicate, WB_LINE) { return (unsigned)wb::warp_wait(wb::BALLOT, mask, predicate != 0, 4, 0, 32, true, line); }
inline void __syncwarp(unsigned mask = 0xffffffffu, WB_LINE) { wb::warp_wait(wb::SYNCWARP, mask, 0, 4, 0, 32, false, line); }
template <class T> unsigned __match_any_sync(unsigned mask, T v, WB_LINE) {
    unsigned long long bits = 0;
    memcpy(&bits, &v, sizeof(T));
    return (unsigned)wb::warp_wait(wb::MATCH_ANY, mask, bits, sizeof(T), 0, 32, false, line);
}
template <class T> T __reduce_add_sync(unsigned mask, T v, WB_LINE) { return wb::reduce(wb::RED_ADD, mask, v, line); }
template <class T> T __reduce_min_sync(unsigned mask, T v, WB_LINE) { return wb::reduce(wb::RED_MIN, mask, v, line); }
template <class T> T __reduce_max_sync(unsigned mask, T v, WB_LINE) { return wb::reduce(wb::RED_MAX, mask, v, line); }
inline unsigned __reduce_and_sync(unsigned mask, unsigned v, WB_LINE) { return wb::reduce(wb::RED_AND, mask, v, line); }
inline unsigned __reduce_or_sync(unsigned mask, unsigned v, WB_LINE) { return wb::reduce(wb::RED_OR, mask, v, line); }
inline unsigned __reduce_xor_sync(unsigned mask, unsigned v, WB_LINE) { return wb::reduce(wb::RED_XOR, mask, v, line); }

// ---- memory

template <class T> T __ldg(const wb::ptr<T>& p, WB_LINE) { return *wb::access(p.raw(), p.a, wb::READ, -line); }
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldcs(const wb::ptr<T>& p, WB_LINE) { return __ldg(p, line); }
template <class T> T __ldcg(const wb::ptr<T>& p, WB_LINE) { return __ldg(p, line); }
template <class T, class V> void __stcs(const wb::ptr<T>& p, V v, WB_LINE) { *wb::access(p.raw(), p.a, wb::WRITE, -line) = v; }
template <class T, class V> void __stcg(const wb::ptr<T>& p, V v, WB_LINE) { __stcs(p, v, line); }

namespace wb {
template <class T, class F>
T atomic(T* p, F change) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "atomics work on 2, 4 or 8 bytes");
    T old, now;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do now = change(old);
    while (!__atomic_compare_exchange(p, &old, &now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
template <class T> T* place(const ptr<T>& p, int line) { return access(p.raw(), p.a, ATOMIC, -line); }
}  // namespace wb
// The value's type follows the element's, as in CUDA's overloads.
#define WB_ATOMIC(Name, Change)                                                                             \
    template <class T> T Name(const wb::ptr<T>& p, wb::as<T> v, WB_LINE) {                                    \
        return wb::atomic(wb::place(p, line), [&](T old) -> T { return Change; });                            \
    }                                                                                                         \
    template <class T> T Name(T* p, wb::as<T> v) { return wb::atomic(p, [&](T old) -> T { return Change; }); } \
    template <class T> T Name##_block(const wb::ptr<T>& p, wb::as<T> v, WB_LINE) { return Name(p, v, line); }  \
    template <class T> T Name##_system(const wb::ptr<T>& p, wb::as<T> v, WB_LINE) { return Name(p, v, line); }
WB_ATOMIC(atomicAdd, old + v)
WB_ATOMIC(atomicSub, old - v)
WB_ATOMIC(atomicExch, v)
WB_ATOMIC(atomicMin, v < old ? v : old)
WB_ATOMIC(atomicMax, v > old ? v : old)
WB_ATOMIC(atomicAnd, old & v)
WB_ATOMIC(atomicOr, old | v)
WB_ATOMIC(atomicXor, old ^ v)
WB_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
WB_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
#undef WB_ATOMIC
template <class T> T atomicCAS(T* p, wb::as<T> expected, wb::as<T> v) {
    return wb::atomic(p, [&](T old) -> T { return old == expected ? v : old; });
}
template <class T> T atomicCAS(const wb::ptr<T>& p, wb::as<T> expected, wb::as<T> v, WB_LINE) {
    return wb::atomic(wb::place(p, line), [&](T old) -> T { return old == expected ? v : old; });
}

// ---- numbers

#define WB_MIN_MAX(T)                                    \
    inline T min(T a, T b) { return b < a ? b : a; }     \
    inline T max(T a, T b) { return a < b ? b : a; }
WB_MIN_MAX(int)
WB_MIN_MAX(unsigned)
WB_MIN_MAX(long)
WB_MIN_MAX(unsigned long)
WB_MIN_MAX(long long)
WB_MIN_MAX(unsigned long long)
#undef WB_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline float sinpif(float x) { return (float)sin(3.14159265358979323846 * fmod(x, 2.0)); }
inline float cospif(float x) { return (float)cos(3.14159265358979323846 * fmod(x, 2.0)); }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// A GPU's fast versions are less exact than these.
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

inline int __float2int_rn(float x) { return (int)rintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline int __float2int_rd(float x) { return (int)floorf(x); }
inline int __float2int_ru(float x) { return (int)ceilf(x); }
inline unsigned __float2uint_rn(float x) { return (unsigned)rintf(x); }
inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
inline float __double2float_rn(double x) { return (float)x; }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
template <class To, class From> To wb_bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from);
    memcpy(&to, &from, sizeof to);
    return to;
}
inline int __float_as_int(float x) { return wb_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return wb_bits<unsigned>(x); }
inline float __int_as_float(int x) { return wb_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return wb_bits<float>(x); }
inline long long __double_as_longlong(double x) { return wb_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return wb_bits<double>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned r = 0;
    for (int i = 0; i < 32; ++i) r = r << 1 | (x >> i & 1);
    return r;
}
inline int __mul24(int x, int y) { return (int)((unsigned)(x << 8 >> 8) * (unsigned)(y << 8 >> 8)); }
inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
inline unsigned __sad(int x, int y, unsigned z) { return z + (unsigned)(x > y ? x - y : y - x); }
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned by) { return (unsigned)(((unsigned long long)hi << 32 | lo) << (by & 31) >> 32); }
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned by) { return (unsigned)(((unsigned long long)hi << 32 | lo) >> (by & 31)); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; ++i) r |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}

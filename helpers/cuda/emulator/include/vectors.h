// dim3 and CUDA's vector types, with CUDA's alignments. Part of cuda_host.h.
#pragma once

#define WB_VECTORS(T, Name, A2, A4)                                                            \
    struct Name##1 { T x; };                                                                   \
    struct alignas(A2) Name##2 { T x, y; };                                                    \
    struct Name##3 { T x, y, z; };                                                             \
    struct alignas(A4) Name##4 { T x, y, z, w; };                                              \
    inline Name##1 make_##Name##1(T x) { return {x}; }                                         \
    inline Name##2 make_##Name##2(T x, T y) { return {x, y}; }                                 \
    inline Name##3 make_##Name##3(T x, T y, T z) { return {x, y, z}; }                         \
    inline Name##4 make_##Name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
WB_VECTORS(signed char, char, 2, 4)
WB_VECTORS(unsigned char, uchar, 2, 4)
WB_VECTORS(short, short, 4, 8)
WB_VECTORS(unsigned short, ushort, 4, 8)
WB_VECTORS(int, int, 8, 16)
WB_VECTORS(unsigned, uint, 8, 16)
WB_VECTORS(long, long, 16, 16)
WB_VECTORS(unsigned long, ulong, 16, 16)
WB_VECTORS(long long, longlong, 16, 16)
WB_VECTORS(unsigned long long, ulonglong, 16, 16)
WB_VECTORS(float, float, 8, 16)
WB_VECTORS(double, double, 16, 16)
#undef WB_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

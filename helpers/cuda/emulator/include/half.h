// half and bfloat16: stored in 16 bits, computed in float and rounded to nearest even after each operation, as a GPU's own
// 16-bit instructions round. Part of cuda_host.h.
#pragma once

namespace wb {
inline unsigned short float_to_half(float f) {
    const unsigned x = wb_bits<unsigned>(f), sign = x >> 16 & 0x8000, rest = x & 0x7fffffff;
    if (rest > 0x7f800000) return (unsigned short)(sign | 0x7fff);           // NaN
    if (rest >= 0x477ff000) return (unsigned short)(sign | 0x7c00);          // rounds to infinity
    if (rest < 0x38800000) {                                                 // subnormal: let the float adder round
        const float tiny = wb_bits<float>(rest) + 0.5f;
        return (unsigned short)(sign | (wb_bits<unsigned>(tiny) - 0x3f000000));
    }
    const unsigned odd = rest >> 13 & 1;
    return (unsigned short)(sign | (rest - 0x38000000 + 0xfff + odd) >> 13);
}
inline float half_to_float(unsigned short h) {
    const unsigned sign = (unsigned)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 31) return wb_bits<float>(sign | 0x7f800000 | fraction << 13);
    if (exponent) return wb_bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
    const float tiny = (float)fraction * 5.9604644775390625e-8f;
    return sign ? -tiny : tiny;
}
inline unsigned short float_to_bfloat(float f) {
    const unsigned x = wb_bits<unsigned>(f);
    if ((x & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (unsigned short)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}
inline float bfloat_to_float(unsigned short h) { return wb_bits<float>((unsigned)h << 16); }
}  // namespace wb

#define WB_SMALL_FLOAT(Name, encode, decode)                                                                         \
    struct Name {                                                                                                    \
        unsigned short bits;                                                                                         \
        Name() = default;                                                                                            \
        template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0> Name(T v) : bits(wb::encode((float)v)) {} \
        operator float() const { return wb::decode(bits); }                                                          \
        Name& operator+=(Name o) { return *this = Name((float)*this + (float)o); }                                   \
        Name& operator-=(Name o) { return *this = Name((float)*this - (float)o); }                                   \
        Name& operator*=(Name o) { return *this = Name((float)*this * (float)o); }                                   \
        Name& operator/=(Name o) { return *this = Name((float)*this / (float)o); }                                   \
        friend Name operator+(Name a, Name b) { return a += b; }                                                     \
        friend Name operator-(Name a, Name b) { return a -= b; }                                                     \
        friend Name operator*(Name a, Name b) { return a *= b; }                                                     \
        friend Name operator/(Name a, Name b) { return a /= b; }                                                     \
        friend Name operator-(Name a) { return Name(-(float)a); }                                                    \
    };                                                                                                               \
    struct alignas(4) Name##2 { Name x, y; };                                                                        \
    inline Name __hadd(Name a, Name b) { return a + b; }                                                             \
    inline Name __hsub(Name a, Name b) { return a - b; }                                                             \
    inline Name __hmul(Name a, Name b) { return a * b; }                                                             \
    inline Name __hdiv(Name a, Name b) { return a / b; }                                                             \
    inline Name __hneg(Name a) { return -a; }                                                                        \
    inline Name __hfma(Name a, Name b, Name c) { return Name((float)((double)(float)a * (float)b + (float)c)); }     \
    inline Name __hmax(Name a, Name b) { return (float)a < (float)b ? b : a; }                                       \
    inline Name __hmin(Name a, Name b) { return (float)b < (float)a ? b : a; }                                       \
    inline bool __hgt(Name a, Name b) { return (float)a > (float)b; }                                                \
    inline bool __hlt(Name a, Name b) { return (float)a < (float)b; }                                                \
    inline Name##2 __hadd2(Name##2 a, Name##2 b) { return {a.x + b.x, a.y + b.y}; }                                  \
    inline Name##2 __hmul2(Name##2 a, Name##2 b) { return {a.x * b.x, a.y * b.y}; }                                  \
    inline Name##2 __hfma2(Name##2 a, Name##2 b, Name##2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
WB_SMALL_FLOAT(__half, float_to_half, half_to_float)
WB_SMALL_FLOAT(__nv_bfloat16, float_to_bfloat, bfloat_to_float)
#undef WB_SMALL_FLOAT
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline float __half2float(__half x) { return x; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline float2 __half22float2(__half2 v) { return {(float)v.x, (float)v.y}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }

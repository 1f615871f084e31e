// Pointers that know how far their memory goes. Part of cuda_host.h.
//
// The translator turns `float*` in device code into `wb::ptr<float>` and every subscript `p[i]` into `p[wb::R(i, site)]`
// (read), `W` (written), `M` (read and written), `P` (its address is taken) or `N` (a member of it is used). `site`
// numbers the subscript in the learner's text. An access inside its memory costs two comparisons.
#pragma once

namespace wb {

struct Site {
    int line;
    const char* text;
};
extern const Site sites[];  // written by the translator at the end of the file

struct Kernel {
    const char* name;
    const char* const* parameters;
    int n_parameters;
};

enum Kind { UNCHECKED, GLOBAL, SHARED, NOWHERE };
enum Use { READ, WRITE, MODIFY, ATOMIC, TOUCH };

struct Alloc {
    char* base;
    size_t limit;  // bytes that need no further look: 0 where every access is looked at (shared memory, traced runs)
    size_t bytes;
    char* start;  // where the argument points; elements are counted from here
    Kind kind;
    int argument;
    const char* name;  // of a shared array
};
static Alloc unchecked{nullptr, ~size_t(0), ~size_t(0), nullptr, UNCHECKED, -1, nullptr};

[[gnu::noinline]] void look_closer(char* at, size_t size, const Alloc* a, Use use, int site);
[[gnu::noinline, noreturn]] void misaligned(char* at, size_t size, size_t alignment, const Alloc* a, int site);
Alloc* find_alloc(const void* address);

template <class T>
inline T* access(T* at, const Alloc* a, Use use, int site) {
    using Plain = std::remove_cv_t<T>;
    char* address = (char*)at;
    if constexpr (alignof(Plain) > 1)
        if (__builtin_expect((uintptr_t)address & (alignof(Plain) - 1), 0))
            misaligned(address, sizeof(Plain), alignof(Plain), a, site);
    const size_t offset = address - a->base;
    if (__builtin_expect(offset >= a->limit || a->limit - offset < sizeof(Plain), 0))
        look_closer(address, sizeof(Plain), a, use, site);
    return at;
}

// What stands between the brackets of a subscript. Converts to an integer, so that plain arrays take it as well.
#define WB_TAG(Name)                                                        \
    struct Name {                                                           \
        ptrdiff_t i;                                                        \
        int site;                                                           \
        constexpr Name(ptrdiff_t i, int site) : i(i), site(site) {}         \
        constexpr operator ptrdiff_t() const { return i; }                  \
    }
WB_TAG(R);
WB_TAG(W);
WB_TAG(M);
WB_TAG(P);
WB_TAG(N);

template <class T> struct ptr;

// An element whose use is not known from the text: in a macro, behind `*` that the translator did not understand, or
// behind `&`. It reads when converted and writes when assigned.
template <class T>
struct ref {
    T* at;
    Alloc* a;
    int site;
    using Value = std::remove_cv_t<T>;
    operator T&() const { return *access(at, a, READ, site); }
    T& operator=(const Value& v) const { return *access(at, a, WRITE, site) = v; }
    T& operator=(const ref& other) const { return *this = Value(other); }
    template <class V> T& operator+=(const V& v) const { return *access(at, a, MODIFY, site) += v; }
    template <class V> T& operator-=(const V& v) const { return *access(at, a, MODIFY, site) -= v; }
    template <class V> T& operator*=(const V& v) const { return *access(at, a, MODIFY, site) *= v; }
    template <class V> T& operator/=(const V& v) const { return *access(at, a, MODIFY, site) /= v; }
    T& operator++() const { return ++*access(at, a, MODIFY, site); }
    Value operator++(int) const { return (*access(at, a, MODIFY, site))++; }
    ptr<T> operator&() const { return ptr<T>(at, a); }
};

template <class I> using if_integer = std::enable_if_t<std::is_integral_v<I> || std::is_enum_v<I>, int>;

// What ptr<T> and ptr<const T> have in common; `Self` is the class itself, `T` what it points to.
#define WB_POINTER(Self, T)                                                                                     \
    Self() = default;                                                                                           \
    Self(std::nullptr_t) {}                                                                                     \
    Self(T* raw) : Self(raw, raw ? find_alloc((const void*)raw) : &unchecked) {}                                \
    template <class U, std::enable_if_t<!std::is_convertible_v<U*, T*>, int> = 0>                               \
    explicit Self(const ptr<U>& o) : Self((T*)o.raw(), o.a) {}                                                  \
    T* raw() const { return (T*)this->p; }                                                                      \
    explicit operator bool() const { return this->p != nullptr; }                                               \
    template <class U, if_integer<U> = 0> explicit operator U() const { return (U)this->p; }                    \
    template <class U> explicit operator U*() const { return (U*)this->p; }                                     \
    T& operator[](R t) const { return *access(raw() + t.i, this->a, READ, t.site); }                            \
    T& operator[](W t) const { return *access(raw() + t.i, this->a, WRITE, t.site); }                           \
    T& operator[](M t) const { return *access(raw() + t.i, this->a, MODIFY, t.site); }                          \
    T& operator[](N t) const { return *access(raw() + t.i, this->a, TOUCH, t.site); }                           \
    ref<T> operator[](P t) const { return {raw() + t.i, this->a, t.site}; }                                     \
    template <class I, if_integer<I> = 0> ref<T> operator[](I i) const { return {raw() + (ptrdiff_t)i, this->a, 0}; } \
    ref<T> operator*() const { return {raw(), this->a, 0}; }                                                    \
    T* operator->() const { return access(raw(), this->a, TOUCH, 0); }                                          \
    template <class I, if_integer<I> = 0> Self operator+(I i) const { return Self(raw() + (ptrdiff_t)i, this->a); } \
    template <class I, if_integer<I> = 0> Self operator-(I i) const { return Self(raw() - (ptrdiff_t)i, this->a); } \
    template <class I, if_integer<I> = 0> friend Self operator+(I i, const Self& s) { return s + i; }           \
    template <class I, if_integer<I> = 0> Self& operator+=(I i) { return *this = *this + i; }                   \
    template <class I, if_integer<I> = 0> Self& operator-=(I i) { return *this = *this - i; }                   \
    Self& operator++() { return *this += 1; }                                                                   \
    Self& operator--() { return *this -= 1; }                                                                   \
    Self operator++(int) { Self was = *this; *this += 1; return was; }                                          \
    Self operator--(int) { Self was = *this; *this -= 1; return was; }                                          \
    friend bool operator==(const Self& s, const void* o) { return s.p == o; }                                   \
    friend bool operator!=(const Self& s, const void* o) { return s.p != o; }                                   \
    friend bool operator<(const Self& s, const void* o) { return s.p < o; }                                     \
    friend bool operator==(const void* o, const Self& s) { return s.p == o; }                                   \
    friend bool operator!=(const void* o, const Self& s) { return s.p != o; }                                   \
    friend ptrdiff_t operator-(const Self& s, T* o) { return s.raw() - o; }

template <class T>
struct ptr<const T> {
    const T* p = nullptr;
    Alloc* a = &unchecked;
    ptr(const T* at, Alloc* a) : p(at), a(a) {}
    WB_POINTER(ptr, const T)
    template <class U, std::enable_if_t<std::is_convertible_v<U*, const T*>, int> = 0>
    ptr(const ptr<U>& o) : p((const T*)o.raw()), a(o.a) {}
};

template <class T>
struct ptr : ptr<const T> {  // so that a template that takes `const T*` also takes a `T*`
    ptr(T* at, Alloc* a) : ptr<const T>(at, a) {}
    WB_POINTER(ptr, T)
    template <class U, std::enable_if_t<std::is_convertible_v<U*, T*>, int> = 0>
    ptr(const ptr<U>& o) : ptr((T*)o.raw(), o.a) {}
};

template <class T, class U> ptrdiff_t operator-(const ptr<T>& x, const ptr<U>& y) { return x.raw() - y.raw(); }
template <class T, class U> bool operator==(const ptr<T>& x, const ptr<U>& y) { return x.raw() == y.raw(); }
template <class T, class U> bool operator!=(const ptr<T>& x, const ptr<U>& y) { return x.raw() != y.raw(); }
template <class T, class U> bool operator<(const ptr<T>& x, const ptr<U>& y) { return x.raw() < y.raw(); }
template <class T, class U> bool operator<=(const ptr<T>& x, const ptr<U>& y) { return x.raw() <= y.raw(); }
template <class T, class U> bool operator>(const ptr<T>& x, const ptr<U>& y) { return x.raw() > y.raw(); }
template <class T, class U> bool operator>=(const ptr<T>& x, const ptr<U>& y) { return x.raw() >= y.raw(); }

// reinterpret_cast in device code.
template <class To> struct is_ptr : std::false_type {};
template <class T> struct is_ptr<ptr<T>> : std::true_type { using element = T; };
template <class To, class From>
To reinterpret(From&& from) {
    using Plain = std::remove_cv_t<std::remove_reference_t<From>>;
    if constexpr (is_ptr<To>::value && std::is_pointer_v<Plain>) return To((typename is_ptr<To>::element*)from);
    else if constexpr (std::is_reference_v<To>) return reinterpret_cast<To>(from);
    else return To(from);
}

// A __shared__ array: T[N] is a pointer to its first element, T[N][M] gives rows.
template <class A> struct shared_array;
template <class T, size_t N>
struct shared_array<T[N]> : ptr<T> {
    shared_array(void* at, Alloc* a) : ptr<T>((T*)at, a) {}
};
template <class T, size_t N, size_t M>
struct shared_array<T[N][M]> {
    char* at;
    Alloc* a;
    shared_array(void* at, Alloc* a) : at((char*)at), a(a) {}
    shared_array<T[M]> operator[](ptrdiff_t i) const { return {at + i * (ptrdiff_t)sizeof(T[M]), a}; }
};

// One for each declaration of a __shared__ array (in a template: for each instantiation).
struct Key {
    const char* name;
};
Alloc* shared_alloc(const Key& key, size_t bytes);
Alloc* dynamic_shared_alloc(const char* name);
template <class A>
shared_array<A> shared(const Key& key) {
    Alloc* a = shared_alloc(key, sizeof(A));
    return {a->base, a};
}
template <class T>
ptr<T> dynamic_shared(const char* name) {
    Alloc* a = dynamic_shared_alloc(name);
    return {(T*)a->base, a};
}

}  // namespace wb

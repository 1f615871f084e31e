// Shared memory: who wrote and read each byte since the last barrier; and which tensor a pointer points into. Part of cuda_host.h.
#pragma once

namespace wb {

inline void check_overwritten() {  // two threads wrote one element: harmless only where both wrote the same
    Worker& w = *ctx.worker;
    auto& o = w.overwritten;
    if (!o.set) return;
    o.set = false;
    if (memcmp(o.at, o.was, o.size) == 0) return;
    fail("race", argument_name(o.a, o.kernel), o.kernel, o.thread, site_of(o.site).line, site_of(o.site).text, 0,
         "two threads write element " + std::to_string((o.at - o.a->base) / (long long)o.size) + " of " + where(o.a) + " without a barrier between: " +
             threads_name(o.first) + " in line " + std::to_string(site_of(o.first_site).line) + ", then " + threads_name(o.second));
}

void fail_unwritten() {
    auto u = ctx.worker->unwritten;
    fail("uninitialised", argument_name(u.a, u.kernel), u.kernel, u.thread, site_of(u.site).line, site_of(u.site).text, 0,
         "reads element " + std::to_string((u.at - u.a->base) / (long long)u.size) + " of " + where(u.a) + ", which no thread of the block has written");
}

inline void end_of_interval() {
    check_overwritten();
    if (ctx.worker->unwritten.set) fail_unwritten();
    ++ctx.worker->epoch;
}

inline bool ordered(unsigned other, unsigned sync) {  // by __syncwarp
    const unsigned warp = ctx.tid / 32;
    return other != NOBODY && other / 32 == warp && sync < ctx.worker->warp_syncs[warp];
}

[[noreturn]] inline void race(const char* what, unsigned other, int other_site, char* at, size_t size, const Alloc* a, int site) {
    fail("race", argument_name(a, ctx.kernel), ctx.kernel, ctx.thread, site_of(site).line, site_of(site).text, 0,
         std::string(what) + " element " + std::to_string((at - a->base) / (long long)size) + " of " + where(a) + ", and no barrier separates this from " +
             threads_name(other) + ", which " + (what[0] == 'w' ? "reads" : "writes") + " it in line " + std::to_string(site_of(other_site).line));
}

void look_closer_shared(char* at, size_t size, const Alloc* a, Use use, int site) {
    check_overwritten();
    Worker& w = *ctx.worker;
    const unsigned short tid = ctx.tid;
    const unsigned sync = w.warp_syncs[tid / 32];
    for (size_t k = 0; k < size; ++k) {
        Cell& c = w.cells[at + k - w.arena];
        const bool fresh = c.wrote == w.epoch && !(use == ATOMIC && c.by_atomic);
        const bool clash = fresh && c.writer != tid && !ordered(c.writer, c.wrote_sync);
        if (use != WRITE) {
            if (c.wrote < w.block_epoch) {
                if (!w.unwritten.set) w.unwritten = {true, tid, ctx.thread, ctx.kernel, site, a, at, size};
            } else if (clash) race("reads", c.writer, c.wrote_site, at, size, a, site);
        }
        if (use != READ) {
            if (clash) {
                if (use != WRITE || size > sizeof w.overwritten.was) race("writes", c.writer, c.wrote_site, at, size, a, site);
                if (!w.overwritten.set) {
                    w.overwritten = {true, at, size, {}, c.writer, tid, ctx.thread, ctx.kernel, c.wrote_site, site, a};
                    memcpy(w.overwritten.was, at, size);
                }
            }
            if (c.read == w.epoch && !ordered(c.reader, c.read_sync)) {
                const unsigned other = c.reader != tid ? c.reader : c.other_reader;
                if (other != NOBODY && other != tid) race("writes", other, c.read_site, at, size, a, site);
            }
        }
        if (use == READ || use == MODIFY) {
            if (c.read != w.epoch || (c.reader != tid && ordered(c.reader, c.read_sync))) c.reader = tid, c.other_reader = NOBODY, c.read_site = site;
            else if (c.reader != tid) c.other_reader = tid;
            c.read = w.epoch, c.read_sync = sync;
        }
        if (use != READ) {
            const bool joint = use == ATOMIC && c.by_atomic && c.wrote == w.epoch && c.writer != tid;
            c.wrote = w.epoch, c.wrote_sync = sync, c.writer = joint ? NOBODY : tid, c.by_atomic = use == ATOMIC, c.wrote_site = site;
        }
    }
}

inline void need_arena(Worker& w, size_t bytes) {
    if (bytes <= w.arena_bytes) return;
    // Room for the most there can be, taken once: pages that nobody touches cost nothing, and addresses stay.
    w.arena_bytes = 2 * MAX_SHARED;
    w.arena = (char*)mmap(nullptr, w.arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    w.cells = (Cell*)mmap(nullptr, w.arena_bytes * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w.arena == MAP_FAILED || w.cells == MAP_FAILED) throw std::bad_alloc();
}

Alloc* shared_alloc(const Key& key, size_t bytes) {
    Worker& w = *ctx.worker;
    for (int i = 0; i < w.n_shared; ++i)
        if (w.shared[i].key == &key) return &w.shared[i].alloc;
    need_arena(w, 1);
    size_t at = (w.static_bytes + 15) / 16 * 16;
    if (w.n_shared == 64 || at + bytes > (size_t)STATIC_SHARED)
        fail("too much shared memory", key.name, ctx.kernel, ctx.thread, 0, "", 0,
             "its __shared__ arrays take more than the 48 KB that a kernel may declare; ask for more as dynamic shared memory");
    w.static_bytes = at + bytes;
    char* base = w.arena + MAX_SHARED + at;  // dynamic shared memory comes first
    memset(base, 0xFF, bytes);
    w.shared[w.n_shared] = {&key, {base, 0, bytes, base, SHARED, -1, key.name}};
    return &w.shared[w.n_shared++].alloc;
}

Alloc* dynamic_shared_alloc(const char* name) {
    Worker& w = *ctx.worker;
    need_arena(w, 1);
    w.dynamic = {w.arena, 0, w.launch->dynamic_bytes, w.arena, SHARED, -1, name};
    return &w.dynamic;
}

// ---- pointers' memory

inline Alloc lookup(char* p, int argument) {
    for (const auto* list : {&ranges, &device_ranges})
        for (const Range& r : *list)
            if (p >= r.base && p < r.base + r.bytes) return {r.base, tracing ? 0 : r.bytes, r.bytes, p, GLOBAL, argument, nullptr};
    return {p, 0, 0, p, NOWHERE, argument, nullptr};
}

Alloc* find_alloc(const void* address) {  // a raw pointer turns up in device code: is it into something we know?
    Worker* w = ctx.worker;
    if (!w || !w->launch) return &unchecked;
    char* p = (char*)address;
    const auto holds = [p](const Alloc& a) { return p >= a.base && p < a.base + a.bytes; };
    for (int i = 0; i < w->launch->n_allocs; ++i)
        if (holds(w->launch->allocs[i])) return &w->launch->allocs[i];
    for (int i = 0; i < w->n_shared; ++i)
        if (holds(w->shared[i].alloc)) return &w->shared[i].alloc;
    return w->dynamic.bytes && holds(w->dynamic) ? &w->dynamic : &unchecked;
}

template <class A> A bind(Launch& l, int, A a) { (void)l; return a; }
template <class T>
ptr<T> bind(Launch& l, int argument, T* p) {
    if constexpr (std::is_function_v<T> || std::is_void_v<T>) return ptr<T>(p, &unchecked);
    else {
        l.allocs[l.n_allocs] = lookup((char*)p, argument);
        return ptr<T>(p, &l.allocs[l.n_allocs++]);
    }
}

}  // namespace wb

// Runs the threads of a grid. Part of cuda_host.h.
//
// The threads of a block are fibers of one operating-system thread. A fiber takes one CUDA thread after the other for as
// long as they run to their end; only a thread that waits (at a barrier, for its warp) keeps the fiber. So a kernel
// without barriers is a plain loop. Blocks go to the machine's cores in increasing order, and the failure of the first
// failing block is the one that is reported, whatever the cores did.
#pragma once

namespace wb {

struct Error {};  // leaves the kernel; what happened stands in the worker

struct Failure {
    const char* cause;
    const char* kernel;
    const char* argument;
    uint3 block, thread;
    int line;
    const char* expression;
    long long outside;
    char text[600];
};

enum State : unsigned char { WAITS_TO_START, RUNS, AT_BARRIER, AT_WARP, READY, DONE };
enum WarpOp { SHFL, SHFL_UP, SHFL_DOWN, SHFL_XOR, ALL, ANY, BALLOT, SYNCWARP, MATCH_ANY, RED_ADD, RED_MIN, RED_MAX, RED_AND, RED_OR, RED_XOR };
static const char* const warp_op_names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__all_sync",
    "__any_sync", "__ballot_sync", "__syncwarp", "__match_any_sync", "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
    "__reduce_and_sync", "__reduce_or_sync", "__reduce_xor_sync"};

struct Request {  // of a thread that waits for its warp
    WarpOp op;
    unsigned mask;
    int line, arg, width;
    bool is_signed, is_float;
    unsigned char size;
    unsigned long long value, result;
};

struct Fiber {
    void* sp;
    char* stack;
    unsigned tid;
    uint3 thread;
    const Kernel* kernel;
};

// What is known of one byte of shared memory. Times are epochs: a new one begins with each block and at each barrier.
struct Cell {
    unsigned wrote, read;            // in which epoch last
    unsigned wrote_sync, read_sync;  // and after how many __syncwarp of that thread's warp
    unsigned short writer, reader, other_reader;
    bool by_atomic;
    int wrote_site, read_site;
};
static const unsigned short NOBODY = 0xFFFF;

struct Access {  // of a traced run
    unsigned long long block;
    long long offset;
    unsigned thread;
    int launch, argument, site;
    unsigned short size;
    unsigned short use;
    unsigned phase;  // how far the argument points past a multiple of 128 bytes of its tensor's memory
};

struct Launch {
    dim3 grid, block;
    size_t dynamic_bytes;
    int number;
    void (*invoke)(void*);
    void* closure;
    Alloc allocs[64];
    int n_allocs;
};

static const int STACK = 128 * 1024, MAX_THREADS = 1024, MAX_SHARED = 227 * 1024, STATIC_SHARED = 48 * 1024;

struct Worker {
    Launch* launch;
    unsigned long long block_number;
    unsigned n, next, finished, at_barrier;
    int barrier_line;
    uint3 next_thread;
    State state[MAX_THREADS];
    int waits_at[MAX_THREADS];
    Fiber* fiber_of[MAX_THREADS];
    Request request[MAX_THREADS];
    unsigned alive[32], waiting[32], warp_syncs[32];
    unsigned short ready[MAX_THREADS];
    unsigned ready_first, n_ready;
    Fiber* fibers[MAX_THREADS];
    Fiber* idle[MAX_THREADS];
    unsigned n_fibers, n_idle;
    void* scheduler;
    Fiber* current;
    bool failed;
    Failure failure;
    int votes, voted;

    char* arena;
    Cell* cells;
    size_t arena_bytes, static_bytes;
    struct { const Key* key; Alloc alloc; } shared[64];
    int n_shared;
    Alloc dynamic;
    unsigned epoch, block_epoch;
    struct { bool set; unsigned tid; uint3 thread; const Kernel* kernel; int site; const Alloc* a; char* at; size_t size; } unwritten;
    struct { bool set; char* at; size_t size; char was[16]; unsigned first, second; uint3 thread; const Kernel* kernel; int first_site, site; const Alloc* a; } overwritten;
};

struct Context {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    const Kernel* kernel;
    Worker* worker;
    unsigned tid;
};
// Constant-initialised, so that reading it is one address computation and no call of an initialiser.
static thread_local Context ctx = {{0, 0, 0}, {0, 0, 0}, dim3(), dim3(), nullptr, nullptr, 0};

struct Range {
    char* base;
    size_t bytes;
};
static std::vector<Range> ranges;        // of the call's tensors; Python writes it
static std::vector<Range> device_ranges; // of cudaMalloc
static bool tracing = false;
static size_t max_accesses = 4000000;
static std::vector<Access> accesses;
static std::vector<std::string> launches;  // of a traced run
static int last_error = 0;
static Failure last_failure;
static size_t allowed_dynamic = STATIC_SHARED;

// ---- saying what went wrong

// A negative site is a line: of a call such as atomicAdd, which knows no more.
inline Site site_of(int site) { return site < 0 ? Site{-site, ""} : sites[site]; }

inline uint3 place_of(unsigned tid, const dim3& b) { return {tid % b.x, tid / b.x % b.y, tid / (b.x * b.y)}; }

inline std::string coordinates(const uint3& at, const dim3& of) {
    char text[64];
    if (of.z > 1) snprintf(text, sizeof text, "(%u, %u, %u)", at.x, at.y, at.z);
    else if (of.y > 1) snprintf(text, sizeof text, "(%u, %u)", at.x, at.y);
    else snprintf(text, sizeof text, "%u", at.x);
    return text;
}

inline std::string threads_name(unsigned tid) {
    return tid == NOBODY ? "another thread" : "thread " + coordinates(place_of(tid, ctx.block_dim), ctx.block_dim);
}

[[noreturn]] void fail_unwritten();

[[noreturn]] inline void fail(const char* cause, const char* argument, const Kernel* kernel, const uint3& thread, int line,
                              const char* expression, long long outside, const std::string& text) {
    Worker& w = *ctx.worker;
    Failure& f = w.failure;
    f = {cause, kernel ? kernel->name : "a kernel", argument ? argument : "", ctx.block, thread, line, expression, outside, {}};
    snprintf(f.text, sizeof f.text, "%s", text.c_str());
    w.failed = true;
    w.overwritten.set = w.unwritten.set = false;
    throw Error{};
}

inline const char* argument_name(const Alloc* a, const Kernel* kernel) {
    if (a->name) return a->name;
    if (kernel && a->argument >= 0 && a->argument < kernel->n_parameters) return kernel->parameters[a->argument];
    return "a pointer";
}

inline std::string where(const Alloc* a) {
    return std::string("`") + argument_name(a, ctx.kernel) + "`" + (a->kind == SHARED ? " (shared memory)" : "");
}

inline const char* verb(Use use) { return use == READ ? "reads" : use == TOUCH ? "uses" : use == WRITE ? "writes" : "updates"; }

void look_closer_shared(char* at, size_t size, const Alloc* a, Use use, int site);

void misaligned(char* at, size_t size, size_t alignment, const Alloc* a, int site) {
    if (ctx.worker->unwritten.set) fail_unwritten();
    fail("misaligned", argument_name(a, ctx.kernel), ctx.kernel, ctx.thread, site_of(site).line, site_of(site).text, 0,
         "an access of " + std::to_string(size) + " bytes in " + where(a) + " is not aligned: its address is " +
             std::to_string((uintptr_t)at % alignment) + " past a multiple of " + std::to_string(alignment) + " bytes");
}

void look_closer(char* at, size_t size, const Alloc* a, Use use, int site) {
    const long long offset = at - a->base;
    const Site s = site_of(site);
    if (a->kind == NOWHERE || offset < 0 || offset + (long long)size > (long long)a->bytes) {
        if (ctx.worker->unwritten.set) fail_unwritten();
        const char* name = argument_name(a, ctx.kernel);
        if (a->kind == NOWHERE)
            fail("no tensor", name, ctx.kernel, ctx.thread, s.line, s.text, 0,
                 std::string("`") + name + (at - (char*)nullptr < 4096 ? "` is a null pointer" : "` does not point into any tensor of this call"));
        const long long element = (at - a->start) / (long long)size;
        const long long outside = offset < 0 ? -offset : offset + (long long)size - (long long)a->bytes;
        std::string text = std::string(verb(use)) + " element " + std::to_string(element) + " of " + where(a) + ", " + std::to_string(outside) + " bytes ";
        text += offset < 0 ? "before its start" : "past its end";
        text += " (" + std::to_string(a->bytes / size) + " × " + std::to_string(size) + " bytes)";
        fail("out of bounds", name, ctx.kernel, ctx.thread, s.line, s.text, outside, text);
    }
    if (a->kind == SHARED && use != TOUCH) look_closer_shared(at, size, a, use, site);
    if (tracing && a->kind == GLOBAL) {
        if (accesses.size() >= max_accesses)
            fail("trace too long", argument_name(a, ctx.kernel), ctx.kernel, ctx.thread, s.line, s.text, 0,
                 "a traced run keeps at most " + std::to_string(max_accesses) + " accesses: trace a smaller tensor");
        accesses.push_back({ctx.worker->block_number, at - a->start, ctx.tid, ctx.worker->launch->number, a->argument, site, (unsigned short)size,
                            (unsigned short)use, unsigned((a->start - a->base) % 128)});
    }
}

// ---- shared memory: who wrote and read each byte since the last barrier

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
         std::string(what) + " element " + std::to_string((at - a->base) / (long long)size) + " of " + where(a) + ", and no barrier stands between this and " +
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

// ---- fibers

#if defined(__x86_64__)
extern "C" void wb_switch(void** save, void* load);
asm(R"(
.text
.p2align 4
.local wb_switch
.type wb_switch, @function
wb_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size wb_switch, .-wb_switch
)");
inline void* first_frame(char* top, void (*entry)()) {
    void** sp = (void**)top;
    *--sp = nullptr;
    *--sp = (void*)entry;
    for (int i = 0; i < 6; ++i) *--sp = nullptr;
    return sp;
}
#else
inline void wb_switch(void** save, void* load) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, (ucontext_t*)load);
}
inline void* first_frame(char* top, void (*entry)()) {
    ucontext_t* c = (ucontext_t*)(top - sizeof(ucontext_t) - 64);
    getcontext(c);
    c->uc_stack.ss_sp = top - STACK + 4096;
    c->uc_stack.ss_size = STACK - 4096 - sizeof(ucontext_t) - 128;
    makecontext(c, entry, 0);
    return c;
}
#endif

inline void yield() {
    Worker& w = *ctx.worker;
    Fiber* self = w.current;
    self->tid = ctx.tid, self->thread = ctx.thread, self->kernel = ctx.kernel;
    wb_switch(&self->sp, w.scheduler);
}

inline void begin_next_thread(Worker& w) {
    ctx.tid = w.next++;
    ctx.thread = w.next_thread;
    const dim3& b = w.launch->block;
    if (++w.next_thread.x == b.x) {
        w.next_thread.x = 0;
        if (++w.next_thread.y == b.y) w.next_thread.y = 0, ++w.next_thread.z;
    }
}

static void fiber_main() {
    for (;;) {
        Worker& w = *ctx.worker;
        while (w.next < w.n && !w.failed) {
            begin_next_thread(w);
            w.state[ctx.tid] = RUNS;
            try {
                w.launch->invoke(w.launch->closure);
                if (w.overwritten.set) check_overwritten();
            } catch (Error&) {
            }
            w.state[ctx.tid] = DONE;
            w.alive[ctx.tid / 32] &= ~(1u << ctx.tid % 32);
            ++w.finished;
        }
        Fiber* self = w.current;
        w.idle[w.n_idle++] = self;
        wb_switch(&self->sp, w.scheduler);
    }
}

inline Fiber* new_fiber(Worker& w) {
    if (w.n_idle) return w.idle[--w.n_idle];
    Fiber* f = new Fiber{};
    f->stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED) throw std::bad_alloc();
    mprotect(f->stack, 4096, PROT_NONE);
    f->sp = first_frame(f->stack + STACK, fiber_main);
    w.fibers[w.n_fibers++] = f;
    return f;
}

inline void make_ready(Worker& w, unsigned tid) {
    w.state[tid] = READY;
    w.ready[(w.ready_first + w.n_ready++) % MAX_THREADS] = tid;
}

// ---- waiting for one another

inline int barrier(int line, int vote) {
    Worker& w = *ctx.worker;
    if (w.at_barrier && line != w.barrier_line) {
        unsigned first = 0;
        while (w.state[first] != AT_BARRIER) ++first;
        fail("barrier", "", ctx.kernel, ctx.thread, line, "__syncthreads()", 0,
             "the threads of the block wait at different barriers: this one here, " + threads_name(first) + " in line " + std::to_string(w.barrier_line));
    }
    w.barrier_line = line;
    w.votes += vote;
    if (++w.at_barrier == w.n) {
        end_of_interval();
        w.at_barrier = 0, w.voted = w.votes, w.votes = 0;
        w.fiber_of[ctx.tid] = w.current;
        for (unsigned t = 0; t < w.n; ++t) make_ready(w, t);  // this one too: the threads go on in their order
    } else {
        w.state[ctx.tid] = AT_BARRIER;
        w.waits_at[ctx.tid] = line;
        w.fiber_of[ctx.tid] = w.current;
    }
    yield();
    return w.voted;
}

inline void resolve_lane(Worker& w, unsigned warp, unsigned lane, unsigned there) {
    Request* r = &w.request[warp * 32];
    Request& q = r[lane];
    const auto each = [&](auto f) { for (unsigned i = 0; i < 32; ++i) if (there >> i & 1) f(r[i]); };
    unsigned from = 32;
    q.result = q.value;
    const unsigned width = q.width, first = lane / width * width, low = lane - first;
    switch (q.op) {
        case SHFL: from = first + ((unsigned)q.arg & (width - 1)); break;
        case SHFL_UP: from = low >= (unsigned)q.arg ? lane - q.arg : lane; break;
        case SHFL_DOWN: from = low + (unsigned)q.arg < width ? lane + q.arg : lane; break;
        case SHFL_XOR: from = (lane ^ q.arg) < first + width ? lane ^ q.arg : lane; break;
        case ALL: q.result = 1; each([&](Request& o) { q.result &= o.value != 0; }); return;
        case ANY: q.result = 0; each([&](Request& o) { q.result |= o.value != 0; }); return;
        case BALLOT: q.result = 0; each([&](Request& o) { q.result |= (unsigned long long)(o.value != 0) << (&o - r); }); return;
        case MATCH_ANY: q.result = 0; each([&](Request& o) { q.result |= (unsigned long long)(o.value == q.value) << (&o - r); }); return;
        case SYNCWARP: return;
        case RED_ADD: q.result = 0; each([&](Request& o) { q.result += o.value; }); return;
        case RED_AND: each([&](Request& o) { q.result &= o.value; }); return;
        case RED_OR: each([&](Request& o) { q.result |= o.value; }); return;
        case RED_XOR: q.result = 0; each([&](Request& o) { q.result ^= o.value; }); return;
        case RED_MIN: case RED_MAX:
            each([&](Request& o) {
                const bool less = q.is_signed ? (int)o.value < (int)q.result : (unsigned)o.value < (unsigned)q.result;
                if (o.value != q.result && less == (q.op == RED_MIN)) q.result = o.value;
            });
            return;
    }
    if (from < 32 && there >> from & 1) q.result = r[from].value;
    else if (from != lane) q.result = ~0ull;  // undefined on a GPU; here NaN, or all bits set
}

// Whether every lane that `mask` names has come; then all of them go on.
inline bool try_resolve(Worker& w, unsigned warp, unsigned lane) {
    const Request q = w.request[warp * 32 + lane];
    const unsigned there = q.mask & w.alive[warp];
    if ((w.waiting[warp] & there) != there) return false;
    for (unsigned i = 0; i < 32; ++i)
        if (there >> i & 1) {
            const Request& o = w.request[warp * 32 + i];
            if (o.op != q.op || o.mask != q.mask)
                fail("warp", "", ctx.kernel, place_of(warp * 32 + i, ctx.block_dim), o.line, warp_op_names[o.op], 0,
                     std::string("lanes of one warp meet in different calls: lane ") + std::to_string(i) + " in " + warp_op_names[o.op] + ", lane " +
                         std::to_string(lane) + " in " + warp_op_names[q.op] + " of line " + std::to_string(q.line) + (o.op == q.op ? ", with another mask" : ""));
        }
    for (unsigned i = 0; i < 32; ++i)
        if (there >> i & 1) resolve_lane(w, warp, i, there);
    w.waiting[warp] &= ~there;
    if (q.op == SYNCWARP) check_overwritten(), ++w.warp_syncs[warp];
    return true;
}

inline unsigned long long warp_wait(WarpOp op, unsigned mask, unsigned long long value, unsigned size, int arg, int width, bool is_signed, int line) {
    Worker& w = *ctx.worker;
    const unsigned warp = ctx.tid / 32, lane = ctx.tid % 32;
    if (!(mask >> lane & 1))
        fail("warp", "", ctx.kernel, ctx.thread, line, warp_op_names[op], 0, "lane " + std::to_string(lane) + " calls " + warp_op_names[op] + " with a mask that does not name it");
    w.request[ctx.tid] = {op, mask, line, arg, width, is_signed, false, (unsigned char)size, value, 0};
    w.waiting[warp] |= 1u << lane;
    if (try_resolve(w, warp, lane)) {
        const unsigned there = mask & w.alive[warp];
        for (unsigned i = 0; i < 32; ++i)
            if (i != lane && there >> i & 1) make_ready(w, warp * 32 + i);
    } else {
        w.state[ctx.tid] = AT_WARP;
        w.waits_at[ctx.tid] = line;
        w.fiber_of[ctx.tid] = w.current;
        yield();
    }
    return w.request[ctx.tid].result;
}

// Nothing can run any more, and not all threads have ended: say who waits for whom.
inline void report_stuck(Worker& w) {
    unsigned waiter = 0, missing = MAX_THREADS, n_waiting = 0;
    for (unsigned t = w.n; t-- > 0;)
        if (w.state[t] == AT_BARRIER) waiter = t, ++n_waiting;
    try {
        if (n_waiting) {
            for (unsigned t = w.n; t-- > 0;)
                if (w.state[t] != AT_BARRIER) missing = t;
            const int line = w.waits_at[waiter];
            std::string text = std::to_string(n_waiting) + " of the block's " + std::to_string(w.n) + " threads wait at __syncthreads(), but thread " +
                               coordinates(place_of(missing, w.launch->block), w.launch->block);
            text += w.state[missing] == DONE ? " ended without reaching it" : " waits for its warp in line " + std::to_string(w.waits_at[missing]);
            fail("barrier", "", w.fiber_of[waiter]->kernel, place_of(missing, w.launch->block), line, "__syncthreads()", 0, text);
        }
        while (w.state[waiter] != AT_WARP) ++waiter;
        const Request& q = w.request[waiter];
        const unsigned absent = q.mask & w.alive[waiter / 32] & ~w.waiting[waiter / 32];
        fail("warp", "", w.fiber_of[waiter]->kernel, place_of(waiter, w.launch->block), q.line, warp_op_names[q.op], 0,
             std::string("lane ") + std::to_string(waiter % 32) + " waits in " + warp_op_names[q.op] + " for lane " +
                 std::to_string(absent ? __builtin_ctz(absent) : 0) + ", which its mask names but which never comes");
    } catch (Error&) {
    }
}

inline void run_block(Worker& w, unsigned long long number) {
    const Launch& l = *w.launch;
    w.block_number = number;
    ctx.block = {unsigned(number % l.grid.x), unsigned(number / l.grid.x % l.grid.y), unsigned(number / l.grid.x / l.grid.y)};
    w.next = w.finished = w.at_barrier = w.n_ready = w.ready_first = 0;
    w.votes = 0;
    w.next_thread = {0, 0, 0};
    for (unsigned warp = 0; warp * 32 < w.n; ++warp) {
        w.alive[warp] = w.n - warp * 32 >= 32 ? ~0u : (1u << (w.n - warp * 32)) - 1;
        w.waiting[warp] = 0;
    }
    w.block_epoch = ++w.epoch;
    if (w.static_bytes) memset(w.arena + MAX_SHARED, 0xFF, w.static_bytes);
    if (l.dynamic_bytes) need_arena(w, 1), memset(w.arena, 0xFF, l.dynamic_bytes);
    while (w.finished < w.n && !w.failed) {
        if (w.next < w.n) {
            w.current = new_fiber(w);
        } else if (w.n_ready) {
            const unsigned tid = w.ready[w.ready_first];
            w.ready_first = (w.ready_first + 1) % MAX_THREADS, --w.n_ready;
            w.state[tid] = RUNS;
            w.current = w.fiber_of[tid];
            ctx.tid = tid, ctx.thread = w.current->thread, ctx.kernel = w.current->kernel;
        } else {
            // A lane that ended may have been the last one that others waited for.
            bool moved = false;
            try {
                for (unsigned t = 0; t < w.n && !moved; ++t) {
                    if (w.state[t] != AT_WARP) continue;
                    const unsigned there = w.request[t].mask & w.alive[t / 32];
                    if ((moved = try_resolve(w, t / 32, t % 32)))
                        for (unsigned i = 0; i < 32; ++i)
                            if (there >> i & 1) make_ready(w, t / 32 * 32 + i);
                }
            } catch (Error&) {
            }
            if (moved || w.failed) continue;
            report_stuck(w);
            break;
        }
        wb_switch(&w.scheduler, w.current->sp);
    }
    if (!w.failed) {
        try {
            end_of_interval();
        } catch (Error&) {
        }
    }
}

// Fibers begin anew with each launch: after a failure some hold a thread that never ends, and the operating-system thread may
// be another one, whose thread-local variables lie elsewhere than the compiler has remembered.
inline void renew_fibers(Worker& w) {
    for (unsigned i = 0; i < w.n_fibers; ++i) {
        w.fibers[i]->sp = first_frame(w.fibers[i]->stack + STACK, fiber_main);
        w.idle[i] = w.fibers[i];
    }
    w.n_idle = w.n_fibers;
}

struct Job {
    Launch* launch;
    Worker* worker;
    unsigned long long n_blocks, chunk;
    unsigned long long *next, *bad;
};

static void* work(void* argument) {
    Job& job = *(Job*)argument;
    Worker& w = *job.worker;
    ctx.worker = &w;
    ctx.kernel = nullptr;
    ctx.block_dim = job.launch->block, ctx.grid_dim = job.launch->grid;
    w.launch = job.launch;
    w.n = job.launch->block.x * job.launch->block.y * job.launch->block.z;
    renew_fibers(w);
    w.failed = false;
    w.n_shared = 0, w.static_bytes = 0;
    w.dynamic.bytes = 0;
    w.unwritten.set = w.overwritten.set = false;
    while (!w.failed) {
        unsigned long long b = __atomic_fetch_add(job.next, job.chunk, __ATOMIC_RELAXED);
        if (b >= job.n_blocks) break;
        const unsigned long long end = b + job.chunk < job.n_blocks ? b + job.chunk : job.n_blocks;
        for (; b < end && !w.failed && b < __atomic_load_n(job.bad, __ATOMIC_RELAXED); ++b) run_block(w, b);
        if (w.failed) {
            unsigned long long old = __atomic_load_n(job.bad, __ATOMIC_RELAXED);
            while (w.block_number < old && !__atomic_compare_exchange_n(job.bad, &old, w.block_number, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
        }
    }
    w.launch = nullptr;
    ctx.worker = nullptr;
    return nullptr;
}

inline void run(Launch& l) {
    static Worker* workers[8] = {};
    unsigned long long n_blocks = (unsigned long long)l.grid.x * l.grid.y * l.grid.z, next = 0, bad = ~0ull;
    const unsigned long long n_threads = n_blocks * l.block.x * l.block.y * l.block.z;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = tracing || n_threads < 65536 ? 1 : int(cores < 1 ? 1 : cores > 8 ? 8 : cores);
    if ((unsigned long long)n > n_blocks) n = (int)n_blocks;
    unsigned long long chunk = n_blocks / (n * 16);
    Job jobs[8];
    pthread_t threads[8];
    bool started[8] = {};
    for (int i = 0; i < n; ++i) {
        if (!workers[i]) workers[i] = new Worker{};
        jobs[i] = {&l, workers[i], n_blocks, chunk ? chunk : 1, &next, &bad};
    }
    for (int i = 1; i < n; ++i) started[i] = pthread_create(&threads[i], nullptr, work, &jobs[i]) == 0;
    work(&jobs[0]);
    Failure* first = nullptr;
    for (int i = 0; i < n; ++i) {
        if (started[i]) pthread_join(threads[i], nullptr);
        if ((i == 0 || started[i]) && workers[i]->failed && workers[i]->block_number == bad) first = &workers[i]->failure;
    }
    if (first) {
        last_failure = *first;
        throw std::runtime_error(std::string("HostCudaError: ") + first->text);
    }
}

// ---- kernel<<<grid, block, shared, stream>>>(arguments)

struct Config {
    dim3 grid, block;
    size_t dynamic_bytes;
    Config(dim3 grid, dim3 block, size_t dynamic_bytes = 0, const void* stream = nullptr) : grid(grid), block(block), dynamic_bytes(dynamic_bytes) { (void)stream; }
};

template <class F>
struct Launcher {
    Config config;
    const char* text;
    F call;
    template <class... A>
    void operator()(A... a) const {
        const dim3 &g = config.grid, &b = config.block;
        const unsigned long long n = (unsigned long long)b.x * b.y * b.z;
        if (!g.x || !g.y || !g.z || !n || n > (unsigned)MAX_THREADS || b.z > 64 || g.y > 65535 || g.z > 65535 || g.x > 2147483647u) {
            last_error = 9;  // cudaErrorInvalidConfiguration
            return;
        }
        if (config.dynamic_bytes > allowed_dynamic) {
            last_error = 1;  // cudaErrorInvalidValue
            return;
        }
        static_assert(sizeof...(A) <= 64, "a kernel with more than 64 arguments needs a GPU");
        Launch l{g, b, config.dynamic_bytes, (int)launches.size(), nullptr, nullptr, {}, 0};
        int index = 0;
        (void)index;
        std::tuple<decltype(bind(l, 0, a))...> arguments{bind(l, index++, a)...};
        using Arguments = decltype(arguments);
        struct Closure { const F* call; Arguments* values; } closure{&call, &arguments};
        l.invoke = [](void* c) { std::apply(*((Closure*)c)->call, *((Closure*)c)->values); };
        l.closure = &closure;
        if (tracing) launches.push_back(text);
        run(l);
        if (tracing) {
            std::string& about = launches.back();
            if (ctx.kernel) about = ctx.kernel->name;
            for (unsigned n : {g.x, g.y, g.z, b.x, b.y, b.z}) about += "\t" + std::to_string(n);
            for (int i = 0; ctx.kernel && i < ctx.kernel->n_parameters; ++i) about += std::string("\t") + ctx.kernel->parameters[i];
        }
    }
};

template <class F> Launcher<F> launch(F call, const char* text, const Config& config) { return {config, text, call}; }

template <class C>
void assert_that(const C& condition, int site) {
    if (condition) return;
    const Site s = site_of(site);
    fail("assert", "", ctx.kernel, ctx.thread, s.line, s.text, 0, std::string(s.text) + " does not hold");
}

}  // namespace wb

// ---- what Python calls

#define WB_EXPORT extern "C" __attribute__((visibility("default"), used))
WB_EXPORT void wb_ranges(int n, const unsigned long long* bases, const unsigned long long* bytes) {
    wb::ranges.clear();
    for (int i = 0; i < n; ++i) wb::ranges.push_back({(char*)bases[i], (size_t)bytes[i]});
}
WB_EXPORT void wb_add_range(unsigned long long base, unsigned long long bytes) { wb::ranges.push_back({(char*)base, (size_t)bytes}); }
WB_EXPORT const char* wb_failure() {
    static std::string text;
    const wb::Failure& f = wb::last_failure;
    char numbers[256];
    snprintf(numbers, sizeof numbers, "%u\t%u\t%u\t%u\t%u\t%u\t%d\t%lld", f.block.x, f.block.y, f.block.z, f.thread.x, f.thread.y, f.thread.z, f.line, f.outside);
    text = std::string(f.cause) + "\t" + f.kernel + "\t" + f.argument + "\t" + (f.expression ? f.expression : "") + "\t" + numbers + "\t" + f.text;
    return text.c_str();
}
WB_EXPORT void wb_trace(int on) {
    wb::tracing = on;
    if (on) wb::accesses.clear(), wb::launches.clear();
}
WB_EXPORT unsigned long long wb_n_accesses() { return wb::accesses.size(); }
WB_EXPORT const void* wb_accesses() { return wb::accesses.data(); }
WB_EXPORT int wb_n_launches() { return (int)wb::launches.size(); }
WB_EXPORT const char* wb_launch(int i) { return wb::launches[i].c_str(); }

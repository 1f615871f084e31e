// What the threads, blocks and launches of the engine remember, and how a fault is told. Part of cuda_host.h.
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
static volatile sig_atomic_t interrupted = 0;
static Launch* running = nullptr;
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
    if (interrupted) fail("interrupted", "", ctx.kernel, ctx.thread, s.line, s.text, 0, "the run was interrupted here");
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

}  // namespace wb

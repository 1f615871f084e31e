// Runs the threads of a grid. Part of cuda_host.h.
//
// The threads of a block are fibers of one operating-system thread. A fiber takes one CUDA thread after the other for as
// long as they run to their end; only a thread that waits (at a barrier, for its warp) keeps the fiber. So a kernel
// without barriers is a plain loop. Blocks go to the machine's cores in increasing order, and the failure of the first
// failing block is the one that is reported, whatever the cores did.
#pragma once

namespace wb {

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
    while (w.finished < w.n && !w.failed && !interrupted) {
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
    if (!w.failed && !interrupted) {
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
        for (; b < end && !w.failed && !interrupted && b < __atomic_load_n(job.bad, __ATOMIC_RELAXED); ++b) run_block(w, b);
        if (interrupted && !w.failed) {
            w.failed = true;
            w.failure = {"interrupted", ctx.kernel ? ctx.kernel->name : "a kernel", "", ctx.block, ctx.thread, 0, "", 0, "the run was interrupted"};
        }
        if (w.failed) {
            unsigned long long old = __atomic_load_n(job.bad, __ATOMIC_RELAXED);
            while (w.block_number < old && !__atomic_compare_exchange_n(job.bad, &old, w.block_number, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
        }
    }
    w.launch = nullptr;
    ctx.worker = nullptr;
    return nullptr;
}

// Python looks at Ctrl-C only when the call returns. While kernels run, it stops them: no access passes unseen any more.
struct Interruptible {
    struct sigaction before;
    explicit Interruptible(Launch& l) {
        interrupted = 0, running = &l;
        struct sigaction ours = {};
        ours.sa_handler = [](int) {
            interrupted = 1;
            for (int i = 0; running && i < running->n_allocs; ++i) running->allocs[i].limit = 0;
        };
        sigaction(SIGINT, &ours, &before);
    }
    ~Interruptible() {
        sigaction(SIGINT, &before, nullptr);
        interrupted = 0, running = nullptr;
    }
};

inline void run(Launch& l) {
    Interruptible until_the_end(l);
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
        throw std::runtime_error(std::string("EmulatorError: ") + first->text);
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

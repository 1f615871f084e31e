// Fibers: threads that the program itself switches between. Part of cuda_host.h.
#pragma once

namespace wb {

#if defined(__x86_64__) && !defined(WB_UCONTEXT)
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

}  // namespace wb

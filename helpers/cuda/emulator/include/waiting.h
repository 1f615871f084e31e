// How threads wait for one another: barriers and warps. Part of cuda_host.h.
#pragma once

namespace wb {

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

}  // namespace wb

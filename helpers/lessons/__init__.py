"""Code that a single lesson needs and that isn't the subject of that lesson.

`profiling` is for lessons 01 and 07: a drawing of f(i) for all i, and squares measured by several timers and
by a trace. `builds`, `failures` and `grid` are for lessons 02 and 08: builds from files, code that fails in a
separate process, and which thread accesses which element. `programs` and `scripts` are for lesson 03: which
program processes which elements, and scripts that run in separate processes. `widths` and `purposes` are for
lesson 04: the cost of 4-byte and 16-byte loads, and what SASS instructions are for. `occupancy` is for lesson
05: launches by resident warps and time. `traffic` is for lesson 06: it counts what operations read and write.
`fusion` is for lessons 06 and 09: it checks and times softmaxes, and evaluates the league's table. `traps` is
the game of lesson 07. `deadlock` and `wide_rows` are for lesson 09: programs that wait for each other on a
GPU with few places, the gain from each trick of the tuned kernel (`spin_wait` replaces its nap), and the
hardware counters of other softmaxes. `cross_gpu` is for lesson 10: it compares the records of two GPUs for
the same kernels and launches.
"""

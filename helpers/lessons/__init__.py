"""Code that a single lesson needs and that isn't the subject of that lesson.

- `profiling` (01): a drawing of f(i) for all i, squares measured by several timers and by a trace.
- `builds`, `failures`, `grid` (02, 08): builds from files, code that fails in a separate process, and which
  thread accesses which element.
- `ladder` (02): its kernels with their launchers, and what is measured of them.
- `programs`, `scripts`, `squares` (03): which program processes which elements, scripts that run in separate
  processes, and measurements of squares.
- `widths`, `purposes` (04): the cost of 4-byte and 16-byte loads, and what SASS instructions are for.
- `occupancy`, `sm`, `timeline`, `column_sums` (05): launches by resident warps and time, a drawing of an SM,
  when DRAM first nearly stops during a launch, and what the reports say of five versions of a kernel.
- `traffic`, `fusion_runs` (06): what operations read and write, and measurements of fused operations.
- `generated` (03, 06): the Triton kernels that torch.compile generates, as text.
- `fusion` (06, 09): checks and times softmaxes, and evaluates the league's table.
- `timers`, `traps` (07): measurements with different timers, and the game of that lesson.
- `deadlock`, `wide_rows` (09): programs that wait for each other on a GPU with few places, the steps from the
  plain kernel to the tuned one, and its tricks (`spin_wait` replaces its nap).
- `cross_gpu`, `cuda_graphs` (10): compares the records of two GPUs for the same kernels and launches, and
  measures many small kernels with and without a CUDA graph.
- `products`, `precision` (11): measures matrix products, computes their traffic, draws the order of their
  tiles, and compares their rounding errors with a bound.
- `attention`, `attention_kernels`, `attention_times` (12): counts and draws the tiles of attention, and
  defines, compiles and measures its kernels.
- `claims` (13): eight kernels' claims with their problems, and their verification in the background.
"""

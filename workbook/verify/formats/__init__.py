"""Read problems and candidates as benchmarks store them.

`kernelbench`, `flashinfer` (FlashInfer-Trace, and SOL-ExecBench's dialect of it) and `gpumode` are formats of
benchmarks; `function` compares a function of your own with any reference.
"""

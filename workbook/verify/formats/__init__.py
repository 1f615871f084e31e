"""Reads problems and candidates in the formats of published benchmarks.

`kernelbench`, `flashinfer`, `gpumode` and `function` read one format each, with a function `read`. `files`
reads text, JSON and Python modules, and says what is wrong with them. `observing` finds out which arguments
a reference changes.

For FlashInfer-Trace, `axes` has the sizes of a definition, `workloads` makes the arguments, `values` draws
random ones and `safetensors` reads stored ones, `tolerances` compares as the benchmarks do, and `solutions`
reads a candidate. For GPU MODE, `tasks` loads the files of a task.
"""

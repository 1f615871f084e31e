"""Judge a kernel that somebody, or some model, wrote: is it right, is it honest, and how fast is it?

`formats` read a `problem` and its candidate. `verifier` runs the `checks`. The candidate's process is
`stand`, in which it is `loaded`, `slots` hold its arguments, `returned` reads its results, `repeating` calls
it many times, `memory` tells where tensors are, `tracing` records what a call uses, `watch` observes what it
does besides computing, `originals` remembers what it may replace, and `without_gpu` stands in for a GPU,
with `interpreter`; `suspect` is our side of that process, and the `allocator` of both keeps memory. `source`
looks at its code, and `blame` at errors. `judging` compares results with the reference's, also by their
`accuracy`, `arguments` makes other inputs of the same `forms`, `speed` times, also at sizes that are too
large to be sent (`full_size`), and `verdict` and `report` hold and print what was found. `loading` runs the
problem's files, `portable` moves sources to the CPU, `models` copies reference models, and `wide` makes
references compute in float64.
"""

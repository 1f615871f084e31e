"""Judge a kernel that somebody, or some model, wrote: is it right, is it honest, and how fast is it?

`formats` read a `problem` and its candidate. `verifier` runs the `checks`, and `source` searches the
candidate's text. The candidate's process is `stand`, in which `loaded` imports it, `watch` observes what it
does besides computing, `originals` remembers what it may replace, and `without_gpu` stands in for a GPU;
`suspect` is our side of that process. `judging` compares results with the reference's, `arguments` makes
other inputs, `speed` times, and `verdict` and `report` hold and print what was found. `loading` runs the
problem's files, `portable` moves sources to the CPU, and `wide` makes references compute in float64.
"""

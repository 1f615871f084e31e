"""Keep the notebooks in canonical form.

`canonical` defines the form of one notebook, and `files` applies it to all of them, runs notebooks for their
checked outputs, and writes the starters. `limits` checks the length of lessons, `minutes` computes how long a
learner needs, `questions` that every question is answered, and `source` parses cells for both. `keys` records
which lesson asks which question. `starters` derives a lab's starter from its solution, `exercises` the
starters inside a lesson, and `markers` says how a solution marks what the learner writes. `labs` checks a
solution's cells, and `publish` sets the repository's address.
"""

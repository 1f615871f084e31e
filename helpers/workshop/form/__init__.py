"""Keep the notebooks in one canonical form.

`canonical` brings one notebook into it; `files` does so for all, runs them for their checked outputs and writes the
starters. `limits` says where a lesson is too long, `questions` whether what it asks is answered, `source` reads a cell's
code for both, `keys` writes down which lesson asks what. `starters` derives a lab's starter from its solution, `labs`
says what is wrong with a solution's cells, `publish` stamps the repository's address.
"""

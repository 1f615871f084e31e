"""Keep the notebooks in one canonical form.

`canonical` brings one notebook into it; `files` does so for all, runs them for their checked outputs and writes the
starters. `starters` derives a lab's starter from its solution, `labs` says what is wrong with a solution's cells,
`questions` what is wrong with a lesson's predictions, `publish` stamps the repository's address.
"""

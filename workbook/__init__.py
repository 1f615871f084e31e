"""The `workbook` command, which maintains and runs the course, and its packages. Lessons do not import it.

`cli` is the command, with one module per family of subcommands. `batch` runs notebooks, `form` keeps them in
one canonical form and derives the labs' starters, `grade` grades learners' notebooks, `book` builds pages of
the course, `bench` measures kernels, `catalogue` lists what is recorded, and `records_check` checks a set of
records that somebody contributes.

They share `project` (the checkout that the command is called in), `options` and `assignments` (what a command
line gives), `usage` (errors in one sentence), `outputs` (atomic writes), `locks` (one writer at a time),
`gpus` (the GPUs that a command may use), `interrupts` (Ctrl-C), `supervisor` (no process is left behind) and
`page` (the look of the reports), with `static_widgets` in place of widgets.
"""

import sys

# nbformat imports jsonschema, and that a grammar of internationalised addresses, which takes over a second to
# compile. No notebook has such an address: where the grammar is not to be had, jsonschema goes without it.
sys.modules.setdefault("rfc3987_syntax", None)

"""What keeps and runs the course, and no lesson imports: the `workbook` command and what stands behind it.

`cli` is the command, a module for each family of its verbs. `batch` runs notebooks, `form` keeps their one form and
derives the labs' starters, `grade` marks learners' notebooks, `book` makes pages of the course, `bench` watches kernels'
times, `catalogue` lists what is recorded, and `offered` checks a set of records that somebody made. They share `project`
(the checkout that the command is called in), `usage` (errors in a sentence), `outputs` (files written whole), `locks` (one
writer at a time), `gpus` (which of them work may be given to), `interrupts` (Ctrl-C) and `supervisor` (no process is left
behind); `page` is what their reports look like.
"""

import sys

# nbformat imports jsonschema, and that a grammar of internationalised addresses, which takes over a second to compile.
# No notebook has such an address: where the grammar is not to be had, jsonschema goes without it.
sys.modules.setdefault("rfc3987_syntax", None)

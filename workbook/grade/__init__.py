"""Mark learners' notebooks with hidden checks: `grade`.

`grader` grades a batch: `submissions` finds and copies the notebooks, `journal` keeps what came of each,
`seeds` makes a seed for each. For each, `examine` starts an `examination` in a process of its own, which
makes hidden cases and judges, and `calls` has each case called; `process` starts the processes that run what
learners wrote, in `workbook.sandbox`, and `untrusted` checks what they send; `worker` is such a process: it
knows what `stubs` gives it, runs cells in the `shell`, and has `stand_ins` for objects that stay with the
grader. `notebook` reads a learner's notebook, `marks` holds the verdicts, `overrides` the teacher's. `report`
writes the learners' pages, `overview` the class's, `gradebook` the CSV files; `advice` says what a teacher
may want to look at, `starters` what the labs gave.
"""

from workbook.grade.grader import grade
from workbook.grade.marks import Grades

__all__ = ["Grades", "grade"]

"""Mark learners' notebooks with hidden checks: `grade`.

`run` grades a batch: `submissions` finds and copies the notebooks, `journal` keeps what came of each. For each, `examine`
makes hidden cases and judges, in a process of its own; `process` starts, asks and watches the learner's process and
checks every answer; `worker` is that process and runs the cells, after `confine` has asked the kernel to keep it in, with
`syscalls` for what is no file. `sandbox` puts bubblewrap or a container around it, `disk` measures what it writes.
`notebook` reads a learner's notebook, `texts` cleans what learners write, `marks` holds the verdicts, `overrides` the
teacher's. `report` writes the learners' pages, `overview` the class's, `gradebook` the CSV files; `advice` says what a
teacher may want to look at.
"""

from helpers.workshop.grade.marks import Grades
from helpers.workshop.grade.run import grade

__all__ = ["Grades", "grade"]

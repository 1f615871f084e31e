"""Mark learners' notebooks with hidden checks: `grade`.

`run` finds the notebooks and writes what came of them. For each, `examine` makes hidden cases and judges, in a process
of its own; `process` starts, asks and watches the learner's process and checks every answer; `worker` is that process
and runs the cells. `notebook` reads a learner's notebook, `marks` holds the verdicts, `report` writes the pages and the CSV.
"""

from helpers.workshop.grade.marks import Grades
from helpers.workshop.grade.run import grade

__all__ = ["Grades", "grade"]

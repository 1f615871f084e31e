"""Run notebooks with papermill and report on them: `run_course` runs them, `load_results` returns what they
found as a DataFrame.

The package plans, runs, writes and reports.

Plan: `sources` finds and reads notebooks; `plan` makes a job of each notebook and point, with the values that
`parameters` parses and the points that `point_files` reads. `shards` picks the part of a batch that one
machine of several runs.

Run: a `point` is the unit of work. `executor` gives points to processes of this machine, each a `worker`, and
receives their `messages`, which `progress` turns into bars. `cluster` gives them to a Dask scheduler instead,
in whose workers `cluster_worker` runs them. In those processes `work` runs one point: `engine` runs its
notebook in one kernel, which `kernel_client` starts and listens to. Meanwhile `watch` enforces the limits and
`live_output` saves what the notebook has printed so far.

Write: `executed` writes the notebook with its row, and reads it again; `pages` writes its page.
`output_folder` has the lock by which a run owns its folder, and the plan.

Report: `notebook_runs` has the rows, with the `findings` in the outputs. `table` puts them side by side,
`drawings` draws them over the axes of a grid, and `report` writes `index.html`, `results.csv` and
`report.json`. `batch_run` connects all of this; `index` makes the report of a folder later, from the executed
notebooks.
"""

from workbook.batch.batch_run import run_course
from workbook.batch.table import load_results

__all__ = ["load_results", "run_course"]

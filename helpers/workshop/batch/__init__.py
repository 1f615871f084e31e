"""Run notebooks with papermill and report on them: `run_course`; what they found, as a DataFrame: `load_results`.

A planner, an executor and a reporter. `plan` says what will run and refuses what cannot, with the values that `parameters`
parses, the points that `sweeps` reads and the GPUs that `helpers.workshop.gpus` finds. A `point` is the unit of work:
`work` runs it (`engine` its notebook in one kernel, under `watch`, which leaves its `trail`; `pages` its page, with
`stills` of widgets) and returns a row. `executor` gives points to processes of this machine, each a `worker`, and hears
their `messages`, of which `progress` makes bars; `cluster` gives them to a Dask scheduler, in whose workers
`cluster_worker` runs them. `run` goes from the one to the other, `results` holds the rows, with the `figures` that outputs
hold; `table` sets them side by side, `drawings` draws them over a grid's axes, and `report` writes `index.html`,
`results.csv` and `report.json`. `folder` keeps several runs that write into one folder apart, `shards` divides a batch
among them, and `merge` makes one report of what they wrote. `mirror` copies a folder to an address.
"""

from helpers.workshop.batch.run import run_course
from helpers.workshop.batch.table import load_results

__all__ = ["load_results", "run_course"]

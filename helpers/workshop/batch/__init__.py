"""Run notebooks with papermill and report on them: `run_course`.

A planner, an executor and a reporter. `plan` says what will run and refuses what cannot, with the values that
`parameters` parses, the points that `sweeps` reads and the GPUs that `gpus` finds. A `point` is the unit of work: `work`
runs it (`engine` its notebook in one kernel, `pages` its page) and returns a row. `executor` gives points to processes of
this machine, each a `worker`, and hears their `messages`; `cluster` gives them to a Dask scheduler, in whose workers
`cluster_worker` runs them. `run` goes from the one to the other, `results` holds the rows, and `report` writes `index.html`
and `report.json`. `folder` keeps several runs that write into one folder apart, `shards` divides a batch among them, and
`merge` makes one report of what they wrote.
"""

from helpers.workshop.batch.run import run_course

__all__ = ["run_course"]

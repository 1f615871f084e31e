"""Run notebooks with papermill and report on them: `run_course`.

`plan` says what will run and refuses what cannot, with the values that `parameters` parses; `engine` runs one notebook
in one kernel, `run` runs them all. `results` holds what became of them, `pages` makes an executed notebook's page and
`report` writes `index.html` and `report.json`.
"""

from helpers.workshop.batch.run import run_course

__all__ = ["run_course"]

"""Run notebooks with papermill and report on them: `run_course`.

`plan` says what will run and refuses what cannot, `engine` runs one notebook in one kernel, `run` runs them all,
`pages` makes an executed notebook's page, `results` is what became of them, `report` writes `index.html` and `report.json`.
"""

from helpers.workshop.batch.run import run_course

__all__ = ["run_course"]

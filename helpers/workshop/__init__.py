"""What keeps and runs the course, and no lesson imports: the `workbook` command and what stands behind it.

`cli` is the command, `project` the checkout that it is called in, `usage` the error of a wrong command. `batch` runs
notebooks, `form` keeps their one form and derives the labs' starters, `grade` marks learners' notebooks.
"""

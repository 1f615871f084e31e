"""What keeps and runs the course, and no lesson imports: the `workbook` command and what stands behind it.

`cli` is the command. `batch` runs notebooks, `form` keeps their one form and derives the labs' starters, `grade` marks
learners' notebooks. All three use `project` (the checkout that the command is called in), `usage` (the error of a wrong
command), `outputs` (files written whole) and `interrupts` (Ctrl-C); `page` is what their reports look like.
"""

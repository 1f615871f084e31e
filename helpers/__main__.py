"""`python -m helpers` is the `workbook` command, also where the package is not installed."""

from helpers.workshop.cli import main

main()

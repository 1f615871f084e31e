"""`python -m workbook` is the `workbook` command, also in a checkout that isn't installed."""

from workbook.cli import main

main()

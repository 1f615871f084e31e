"""`workbook records --check`: find what is missing, implausible or private in a set of records.

`complete` reads a set and compares it with the others, `plausible` checks provenance, figures and size,
`privacy` searches every file for names of people and machines, and `checking` reports what they find.
"""

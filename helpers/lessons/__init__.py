"""What one lesson alone needs, where its code is not the lesson's subject.

`builds`, `failures` and `grid` are lesson 02's: builds from files, a tour of failures in processes of their own, and
which thread touches what. `programs` and `scripts` are lesson 03's: which program takes which elements, and scripts that
run in processes of their own. `fusion` is lesson 06's: traffic counted, and what the league's table says.
"""

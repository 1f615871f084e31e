"""What one lesson alone needs, where its code is not the lesson's subject.

`builds`, `failures` and `grid` are lesson 02's: builds from files, a tour of failures in processes of their own, and
which thread touches what. `profiling` is lesson 01's and 07's: f(i) for all i,
and squares timed beside a trace. `fusion` is lesson 06's: traffic counted, and what the league's table says.
"""

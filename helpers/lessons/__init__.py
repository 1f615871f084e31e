"""What one lesson alone needs, where its code is not the lesson's subject.

`builds`, `failures` and `grid` are lesson 02's: builds from files, a tour of failures in processes of their own, and
which thread touches what. `widths` is lesson 04's: what 4-byte and 16-byte loads cost. `fusion` is lesson 06's: traffic counted, and what the league's table says.
"""

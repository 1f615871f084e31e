"""What one lesson alone needs, where its code is not the lesson's subject.

`profiling` is lesson 01's and 07's: f(i) for all i, and squares timed beside a trace. `builds`, `failures` and `grid` are
lesson 02's and 08's: builds from files, a tour of failures in processes of their own, and which thread touches what.
`programs` and `scripts` are lesson 03's: which program takes which elements, and scripts that run in processes of their
own. `widths` is lesson 04's: what 4-byte and 16-byte loads cost. `resident` is lesson 05's: launches by their warps and
their time. `traffic` is lesson 06's: what operations read and write, counted. `fusion` is lesson 06's and 09's: softmaxes
checked and timed, and what the league's table says. `traps` is lesson 07's game. `waiting` and `wide_rows` are lesson 09's:
programs that wait for each other on a chip of few places, what each trick of the tuned kernel buys (with `restless`, what
stands in for its nap), and counters of its peers. `another` is lesson 10's: what two GPUs' records say of the same kernels
and launches.
"""

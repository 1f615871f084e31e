"""Lab 11 has no exercises yet; those inside lesson 11 are in `lesson`."""

LAB = "11_matmul"
EXERCISES = ()

"""Lab 04, PTX: its exercises and what judges them.

`exercises` has the exercises, `generated` torch.compile's kernel for any shape, `kernels` those whose loads are counted,
`sass` pairs of listings, `wide` what runs and compiles the kernel of wide loads.
"""

from helpers.exercises.lab04.exercises import EXERCISES

__all__ = ["EXERCISES"]

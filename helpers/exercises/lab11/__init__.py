"""Lab 11, Matrix multiplication: its exercises and their judges.

`exercises` has the exercises, and `lesson` those inside lesson 11. `products` makes the hidden matrices of
the Triton products and recognizes wrong results, `tiled` does so for the CUDA kernel, and `tiles` is the
rule by which a tile is chosen. `claim` has the data behind the free exercise.
`adapters` runs next to the learner's functions and contains no answers: in Triton's interpreter it makes
`tl.dot` round float32 inputs to TF32 where a GPU would. What learners read about a mistake is in hints.toml.
"""

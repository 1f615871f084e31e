"""Lab 04, PTX: its exercises and their judges.

`exercises` has the exercises. `lesson` has the small exercises inside the lesson. `generated` has
torch.compile's kernel for any shape. `kernels` has the kernels whose loads are counted, `sass` pairs of
listings, and `wide` runs and compiles the kernel of wide loads. `blog` has the free exercise's claim and
table. What learners read about a mistake is in hints.toml.
"""

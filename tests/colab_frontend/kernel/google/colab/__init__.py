"""A stand-in for Colab's package in the kernels that the tests start."""

"""What a learner's function works with and may not look into: objects that stay with the judge, and show some methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Shown:
    """An object of which a learner's function sees some methods.

    In a notebook it is passed as it is. While a notebook is graded it stays in the grader's process, and the learner's has
    a stand-in that asks for each call.

    Attributes:
        of: what stands behind it, for other methods of the same object's kind.
        methods: name -> function.
    """

    def __init__(self, methods: Mapping[str, Callable], of: Any = None) -> None:
        self.methods, self.of = dict(methods), of
        self.__dict__.update(self.methods)


class ShownKernel(Shown):
    """A hidden function from a tensor to a tensor. It may change its input, and its results may share memory.

    A stand-in of it repeats that: it takes over what the input became, and puts results that share memory here into shared
    memory there. It also says whether new memory was filled with one value, as under `helpers.check.poisoned`.
    """

    def __init__(self, kernel: Callable) -> None:
        super().__init__({"kernel": kernel})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.methods["kernel"](*args, **kwargs)

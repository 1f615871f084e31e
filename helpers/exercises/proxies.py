"""Objects that a learner's function uses but can't inspect: they stay in the judge's process and expose only
some methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Proxy:
    """An object that exposes only some of its methods to a learner's function.

    In a notebook it is passed as it is. While a notebook is graded it stays in the grader's process, and the
    learner's process has a stand-in that sends each call there.

    Attributes:
        of: the object itself, for other methods of its kind.
        methods: name -> function.
    """

    def __init__(self, methods: Mapping[str, Callable], of: Any = None) -> None:
        self.methods, self.of = dict(methods), of
        self.__dict__.update(self.methods)


class KernelProxy(Proxy):
    """A hidden function from a tensor to a tensor. It may change its input, and its results may share memory.

    Its stand-in in the learner's process does the same: it copies changes to the input, and results that
    share memory here share memory there. It also reports whether new memory was filled with one value, as
    under `helpers.check.poisoned`.
    """

    def __init__(self, kernel: Callable) -> None:
        super().__init__({"kernel": kernel})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.methods["kernel"](*args, **kwargs)

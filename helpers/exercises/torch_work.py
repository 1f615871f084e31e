"""Which of torch's operations compute on a call's data, where a kernel must do that.

Around its launches a function may allocate, view, copy, cast and join tensors. It may also compute on tensors
of its own that hold no data, such as a table of offsets. An operation that does anything else to the inputs,
or to what was computed from them, is noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

_MAKES = {
    *("empty_like", "zeros_like", "ones_like", "full_like"),
    *("new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full"),
}
_COPIES = {"clone", "_to_copy", "_unsafe_view", "zero_", "fill_", "record_stream"}
_JOINS = {"copy_", "cat", "stack", "constant_pad_nd"}  # they can put parts into another order
_MOST_READ = 16  # elements by `item()` in a call: a flag or a length, but no data to compute with
_REARRANGES = {"index", "index_select", "gather", "flip", "roll", "repeat", "rot90"}
_PYTHON_NAMES = {"_local_scalar_dense": "item"}


@dataclass
class TorchWork:
    """The operations of one call that computed on its data.

    Every tensor counts as data, except those that torch made from nothing but numbers since the last launch;
    if launches are not seen, those too.

    Attributes:
        n_elements: of the largest input.
        sees_launches: whether `launches` is called before each one.
        rearranging: whether to change the order of elements is a computation, too.
        computed: names of operations, in the order of their first use: "mul".
    """

    n_elements: int
    sees_launches: bool = True
    rearranging: bool = False
    computed: dict[str, None] = field(default_factory=dict)
    _n_read: int = 0
    _own: set[int] = field(default_factory=set)  # addresses of memory without data
    _launched: set[int] = field(default_factory=set)  # of memory that only launches put data into

    def launches(self) -> None:
        """Note that a kernel is launched, which may write to any memory that exists."""
        self._launched |= self._own
        self._own.clear()

    def note(self, operation: Any, args: tuple, kwargs: dict, result: Any) -> None:
        """Note an operation that was run.

        Args:
            operation: a `torch._ops.OpOverload`.
            args, kwargs, result: its own.
        """
        given, made = list(_tensors((args, tuple(kwargs.values())))), list(_tensors(result))
        name = operation._schema.name.removeprefix("aten::")
        if name == "copy_" and _address(given[0]) == _address(given[1]):  # the interpreter's, after a launch
            return
        if name == "lift_fresh" or not any(map(self._is_data, given)):
            self._own |= {_address(t) for t in made}
            return
        self._n_read += name == "_local_scalar_dense"
        if not self._is_allowed(operation, name, given):
            self.computed[_PYTHON_NAMES.get(name, name.strip("_"))] = None
        if name in _MAKES:
            self._own |= {_address(t) for t in made}
        elif not _is_view(operation):
            with_data = {_address(t) for t in (*made, *(given if operation._schema.is_mutable else ()))}
            self._own -= with_data
            self._launched -= with_data

    def _is_allowed(self, operation: Any, name: str, given: list[torch.Tensor]) -> bool:
        if operation.namespace not in ("aten", "prim"):
            return False
        if name in _REARRANGES:
            return not self.rearranging and not any(map(self._is_data, given[1:]))
        if name in _JOINS and self.rearranging:
            return all(map(self._is_whole, given[1:] if name == "copy_" else given))
        if name == "_local_scalar_dense":
            return self._n_read <= _MOST_READ
        return _is_view(operation) or name in _MAKES | _COPIES | _JOINS

    def _is_data(self, t: torch.Tensor) -> bool:
        return t.numel() > 0 and not (self.sees_launches and _address(t) in self._own)

    def _is_whole(self, t: torch.Tensor) -> bool:
        """Whether it is a whole input, or all of a tensor that a kernel wrote."""
        n = 1
        for size, stride in zip(t.size(), t.stride(), strict=True):
            n *= size if stride else 1
        n_bytes = n * t.element_size()
        return n >= self.n_elements or (
            _address(t) in self._launched | self._own and n_bytes == t.untyped_storage().nbytes()
        )


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _is_view(operation: Any) -> bool:
    return operation.is_view or torch.Tag.inplace_view in operation.tags


def _address(t: torch.Tensor) -> int:
    return t.untyped_storage().data_ptr()


def in_python(operation: Any) -> bool:
    """Whether an operator is written in Python, where each operation that it calls is noted by itself."""
    name = operation._schema.name.replace("::", "/")
    return any(one.startswith(f"{name}/") for one in torch.library._impls)

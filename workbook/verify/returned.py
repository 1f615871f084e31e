"""What a call of a candidate returned, as plain tensors; used in the candidate's process."""

from __future__ import annotations

from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch

from helpers.check.matching import bits_of
from helpers.check.poison import fill_with_poison
from workbook.verify import arguments

_BUILTIN = (MethodDescriptorType, WrapperDescriptorType)  # of OrderedDict, for example
_READING = ("__iter__", "__getitem__", "__len__", "__getattribute__")


class Returned:
    """Reads results and copies them, with functions that are looked up before the candidate is imported.

    Attributes:
        names: of results that may be returned as a dict.
        clone: copies a tensor where it is.
    """

    def __init__(self, on_gpu: bool) -> None:
        self.names: tuple[str, ...] = ()
        self._device = "cuda" if on_gpu else "cpu"
        self._plain_types = (torch.Tensor, torch.nn.Parameter)
        self.clone, self._equal, self._bits = torch.Tensor.clone, torch.equal, bits_of
        self._leaves, self._fill, self._empty = arguments.leaves, fill_with_poison, torch.empty
        self._tensor, self._strided = torch.tensor, torch.strided

    def tensors(self, value: Any, outputs: list[Any]) -> list[Any]:
        """The results of a call: its outputs in destination-passing style, or the tensors of its value.

        Raises:
            TypeError: the value has something else than ordinary tensors.
        """
        if outputs:
            return outputs
        found = self._values(value)
        if wrong := [one for one in found if not isinstance(one, torch.Tensor)]:
            raise TypeError(f"it returned {type(wrong[0]).__name__}, not a tensor")
        if odd := [one for one in found if one.layout is not self._strided or one.is_meta]:
            kind = "a tensor without contents" if odd[0].is_meta else f"a tensor with layout {odd[0].layout}"
            raise TypeError(f"it returned {kind}, not an ordinary tensor")
        return [self._plain(one) for one in found]

    def types(self, value: Any) -> list[str]:
        """The types of a value's leaves, "" for a plain tensor, and those of its containers whose own code
        runs when they are read.
        """
        containers = self._active_containers(value)  # before one of them is used
        return [*map(self._name_of_type, self._values(value)), *containers]

    def outputs(self, specs: Any) -> list[Any]:
        """Outputs for a candidate in destination-passing style, (shape, dtype) each, filled with poison."""
        return [
            self._fill(self._empty(tuple(shape), dtype=dtype, device=self._device)) for shape, dtype in specs
        ]

    def sent(self, tensor: Any) -> Any:
        """A copy on the CPU."""
        if tensor.is_cuda:
            return tensor.detach().contiguous().cpu()
        return self.clone(tensor.detach(), memory_format=torch.contiguous_format)

    def same(self, a: Any, b: Any) -> bool:
        """Whether two tensors have the same shape and bits."""
        return a.shape == b.shape and self._equal(self._bits(a.detach()), self._bits(b.detach()))

    def _values(self, value: Any) -> list[Any]:
        if value is None:
            return []
        if isinstance(value, dict) and set(value) == set(self.names):
            value = [value[name] for name in self.names]
        found = self._leaves(value)
        if not self.names:
            return found
        return [self._tensor(one) if isinstance(one, (int, float)) else one for one in found]

    def _name_of_type(self, value: Any) -> str:
        """ "" for a plain tensor; a subclass may have the same name."""
        return "" if type(value) in self._plain_types else f"{type(value).__module__}.{type(value).__name__}"

    def _active_containers(self, value: Any) -> list[str]:
        if not isinstance(value, (list, tuple, dict)):
            return []
        kind = type(value)
        plain = next(one for one in (list, tuple, dict) if isinstance(value, one))
        own = [vars(one) for one in kind.__mro__[: kind.__mro__.index(plain)]]
        # Of a named tuple, these may be fields.
        names = (*_READING, "keys", "values", "items") if plain is dict else _READING
        if any(name in one and type(one[name]) not in _BUILTIN for one in own for name in names):
            return [self._name_of_type(value)]
        items = dict.values(value) if plain is dict else plain.__iter__(value)
        return [name for one in items for name in self._active_containers(one)]

    def _plain(self, tensor: Any) -> Any:
        """The tensor itself, or what a subclass of a tensor computes when it is used."""
        if type(tensor) in self._plain_types:
            return tensor.resolve_conj().resolve_neg()
        return (tensor + 0).detach().as_subclass(torch.Tensor)

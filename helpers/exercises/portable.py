"""Results of a call: made portable, and compared bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def portable(value: Any) -> Any:
    """Convert a result to what `torch.load(weights_only=True)` accepts; other types become a text that
    describes them.
    """
    if isinstance(value, torch.Tensor):
        return value.detach()
    if value is None:
        return None
    for kind in (bool, int, float, complex, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, np.generic):
        return portable(value.item())
    if isinstance(value, np.ndarray):
        return portable(value.tolist())
    if isinstance(value, list | tuple):
        made = [portable(one) for one in value]
        return tuple(made) if isinstance(value, tuple) else made
    if isinstance(value, set | frozenset):
        return {"a set": sorted((portable(one) for one in value), key=repr)}
    if isinstance(value, dict):
        return {portable(key): portable(one) for key, one in value.items()}
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {name: portable(getattr(value, name)) for name in value.__dataclass_fields__}
    return {"of type": type(value).__name__, "shown as": repr(value)[:500]}


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equality of all bits, so that NaN equals itself."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(bits(a), bits(b))


def bits(t: torch.Tensor) -> torch.Tensor:
    """The tensor's bits as integers."""
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    t = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
    return t.detach().contiguous().view(sizes[t.element_size()])


def differ(a: Any, b: Any) -> bool:
    """Whether two results of the same call differ; False if they aren't tensors."""
    return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and not same_bits(a, b)


def type_with_article(value: Any) -> str:
    """The type of a value, or of what `portable` converted: "an int", "a Path"."""
    kind = value["of type"] if isinstance(value, dict) and "of type" in value else type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"

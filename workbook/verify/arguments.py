"""The arguments of a call as a tree of tensors, and other arguments of the same form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from workbook.verify.problem import BENCHMARK, BEYOND, CONTRACT, Case

_MOST_CHANGED = 4  # tensors in which single elements are changed
_DRAWS = 20  # of an element to change
_MASK_VALUES = 3  # a tensor with so few different values is a mask or a flag, not data
_FEWEST_FREE = 64  # integers; fewer may be sizes or offsets, which belong together


def map_tensors(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """The same tree with each tensor replaced by `function(tensor)`."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(function, one) for one in value)
    if isinstance(value, dict):
        return {key: map_tensors(function, one) for key, one in value.items()}
    return value


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors of a tree, in order."""
    found: list[torch.Tensor] = []
    map_tensors(lambda one: (found.append(one), one)[1], value)
    return found


def leaves(value: Any) -> list[Any]:
    """What a function returned, without its tuples, lists and dicts; a dict's values in order of its keys."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


def with_tensors(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The same tree with its tensors replaced, in order."""
    rest = iter(tensors)
    return map_tensors(lambda _: next(rest), value)


def overwrite(value: Any, contents: Any) -> None:
    """Copy the tensors of another tree into those of a tree; version counters don't change."""
    for old, new in zip(tensors_of(value), tensors_of(contents), strict=True):
        old.data.copy_(new)


def n_bytes(value: Any) -> int:
    """The bytes of all tensors of a tree."""
    return sum(one.numel() * one.element_size() for one in tensors_of(value))


def other_values(case: Case, seed: int, *, ties: bool = True) -> Iterator[Case]:
    """The case with other values in its floating-point tensors.

    Those of ordinary size have the role CONTRACT, others BEYOND. Tensors that look like a mask, are sorted,
    or have rows that sum to 1 keep their values, because the problem may require that. Symmetric and
    triangular matrices stay what they are.

    Args:
        ties: whether to try equal values, too.
    """
    generator = torch.Generator().manual_seed(seed)

    def made(label: str, role: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Case:
        args = map_tensors(
            lambda one: _with_form_of(one, change(one)) if is_data(one) else one.clone(), case.args
        )
        return Case(f"{case.label}, {label}", args, role, case.outputs)

    def extremes(one: torch.Tensor) -> torch.Tensor:
        low, high = one.float().aminmax()
        chosen, jitter = torch.rand((2, *one.shape), generator=generator).to(one.device)
        # With only two values, all roundings of a sum can go the same way, which no bound expects.
        jitter = 0.05 * (high - low) * jitter
        return torch.where(chosen < 0.5, low + jitter, high - jitter).to(one.dtype)

    def normal(one: torch.Tensor) -> torch.Tensor:
        return torch.randn(one.shape, generator=generator).to(one.device, one.dtype)

    data = [one for one in tensors_of(case.args) if is_data(one)]
    if not data:
        return
    role = CONTRACT if case.role == BENCHMARK else case.role
    yield made("values shuffled", role, lambda one: _shuffled(one, generator))
    yield made("reversed", role, lambda one: one.flip(tuple(range(one.dim()))))
    if ties:
        yield made("small and large values", role, extremes)
    if ties and all(float(one.min()) <= 0 <= float(one.max()) for one in data):
        yield made("zeros", role, torch.zeros_like)
    yield made("normally distributed", role, normal)
    if all(float(one.min()) < 0 < float(one.max()) for one in data):
        yield made("all negative", role, lambda one: -normal(one).abs())
    yield made("each row sorted", role, lambda one: one.sort(dim=-1).values if one.dim() else one)
    yield made("all rows alike", role, lambda one: 0.7 * one[:1] + 0.3 * one if one.dim() > 1 else one)
    yield made("values × 3", role, lambda one: one * 3)
    if ties:  # in 16 bits, such values are often equal
        yield made("values around 1", role, lambda one: 1 + 0.1 * normal(one))
        yield made("values + 4", role, lambda one: one + 4)
    yield made("values × 1,000", BEYOND, lambda one: one * 1000)
    yield made("values × 0.001", BEYOND, lambda one: one * 0.001)
    yield made("one NaN", BEYOND, _with_nan)


def other_integers(case: Case, seed: int, *, ties: bool = True) -> Iterator[Case]:
    """The case with other integers and bools between the smallest and the largest one of each tensor.

    Sorted tensors may be offsets, different integers a permutation, and bools a mask of a certain form: other
    values of these have the role BEYOND.

    Args:
        ties: whether to try many equal values in all tensors, not only where some are equal already.
    """
    generator = torch.Generator().manual_seed(seed)

    def chosen(one: torch.Tensor, free: bool) -> bool:
        is_integer = not (one.is_floating_point() or one.is_complex())
        return is_integer and len(one.unique()) > 1 and _is_free(one) == free

    def few(one: torch.Tensor) -> torch.Tensor:
        if one.dtype == torch.bool:
            return torch.ones_like(one)
        low, high = one.aminmax()
        step = (int(high) - int(low)) // 4 + 1
        return (one - low) // step * step + low

    for free in (True, False):
        if not any(chosen(one, free) for one in tensors_of(case.args)):
            continue
        role = CONTRACT if free and case.role == BENCHMARK else BEYOND
        fewer = [("few different integers", few)] if ties or free else []
        for label, change in (("integers shuffled", lambda one: _shuffled(one, generator)), *fewer):
            args = map_tensors(
                lambda one, change=change, free=free: change(one) if chosen(one, free) else one.clone(),
                case.args,
            )
            yield Case(f"{case.label}, {label}", args, role, case.outputs)


def _shuffled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The same elements in another order."""
    order = torch.randperm(tensor.numel(), generator=generator)
    return tensor.reshape(-1)[order.to(tensor.device)].reshape(tensor.shape)


def _is_free(tensor: torch.Tensor) -> bool:
    """Whether integers are neither few, nor sorted, nor all different, as classes or tokens are."""
    if tensor.dtype == torch.bool or tensor.numel() < _FEWEST_FREE:
        return False
    flat = tensor.reshape(-1)
    return len(flat.unique()) < len(flat) and bool((flat.diff() < 0).any())


def other_constants(case: Case, seed: int, keep: frozenset[int] = frozenset()) -> Iterator[Case]:
    """The case with zeros and ones in tensors that hold the same number everywhere, as a scale of ones, a
    bias of zeros or a mask that masks nothing do.

    Args:
        keep: numbers of tensors that stay, because they are outputs.
    """
    generator = torch.Generator().manual_seed(seed)

    def mixed(one: torch.Tensor) -> torch.Tensor:
        chosen = (torch.rand(one.shape, generator=generator) < 0.5).to(one.device)
        return torch.where(chosen, one, (one == 0).to(one.dtype))

    tensors = tensors_of(case.args)
    which = [i for i, one in enumerate(tensors) if i not in keep and _is_constant(one)]
    if which:
        args = with_tensors(case.args, [mixed(one) if i in which else one for i, one in enumerate(tensors)])
        role = CONTRACT if case.role == BENCHMARK else case.role
        yield Case(f"{case.label}, other constants", args, role, case.outputs)


def slightly_changed(case: Case, seed: int) -> Iterator[Case]:
    """The case with one element of one of its tensors of data changed, and with two of its elements
    swapped: the first tensor, and after it each of the others.
    """
    generator = torch.Generator().manual_seed(seed)
    numbers = [i for i, one in enumerate(tensors_of(case.args)) if is_data(one)][:_MOST_CHANGED]
    for number in numbers:
        for label in ("one element changed", "two elements swapped"):
            tensors = [one.clone() for one in tensors_of(case.args)]
            for _ in range(_DRAWS):  # a change that the tensor's form takes back is none
                changed = _with_form_of(
                    tensors[number], _changed(tensors[number], generator, swaps=label.startswith("two"))
                )
                if not torch.equal(changed, tensors[number]):
                    break
            tensors[number] = changed
            where = f" in argument {number}" if len(numbers) > 1 else ""
            args = with_tensors(case.args, tensors)
            yield Case(f"{case.label}, {label}{where}", args, case.role, case.outputs)


def _changed(tensor: torch.Tensor, generator: torch.Generator, *, swaps: bool) -> torch.Tensor:
    """A copy in which one element has another value, or two have changed places."""
    flat = tensor.clone(memory_format=torch.contiguous_format).reshape(-1)
    i, j = (int(one) for one in torch.randint(flat.numel(), (2,), generator=generator))
    first, second = flat[i].clone(), flat[j].clone()
    flat[i] = second if swaps else (flat.max() if first < flat.mean() else flat.min())
    flat[j] = first if swaps else flat[j]
    return flat.view(tensor.shape)


def other_layouts(case: Case) -> Iterator[Case]:
    """The case with the same values in tensors that aren't contiguous, and in tensors that aren't aligned."""

    def transposed(one: torch.Tensor) -> torch.Tensor:
        return one.transpose(-1, -2).contiguous().transpose(-1, -2) if one.dim() > 1 else one

    def shifted(one: torch.Tensor) -> torch.Tensor:
        memory = torch.empty(one.numel() + 1, dtype=one.dtype, device=one.device)
        return memory[1:].view(one.shape).copy_(one)

    if any(one.dim() > 1 and min(one.shape[-2:]) > 1 for one in tensors_of(case.args)):
        args = map_tensors(transposed, case.args)
        yield Case(f"{case.label}, not contiguous", args, BEYOND, case.outputs)
    if tensors_of(case.args):
        args = map_tensors(shifted, case.args)
        yield Case(f"{case.label}, not aligned", args, BEYOND, case.outputs)


def _with_nan(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with a NaN in the middle."""
    changed = tensor.clone(memory_format=torch.contiguous_format)
    changed.view(-1)[changed.numel() // 2] = float("nan")
    return changed


def _is_constant(tensor: torch.Tensor) -> bool:
    """Whether all elements are the same number, and no row is a distribution."""
    if tensor.numel() < 2 or not (tensor.is_floating_point() or tensor.dtype == torch.bool):
        return False
    wide = tensor.double()
    sums_to_1 = tensor.dim() and bool(((wide.sum(-1) - 1).abs() < 1e-3).all())
    return bool(wide.isfinite().all()) and bool((wide == wide.reshape(-1)[0]).all()) and not sums_to_1


def _with_form_of(like: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Make the last two dimensions symmetric or triangular if they are in `like`, which a problem that has
    such matrices promises.
    """
    if like.dim() < 2 or like.shape[-1] != like.shape[-2] or like.shape[-1] < 3:
        return changed
    if bool((like == like.mT).all()):
        return changed.triu() + changed.triu(1).mT
    if not bool(like.tril(-1).any()):
        changed = changed.triu()
    return changed if bool(like.triu(1).any()) else changed.tril()


def is_data(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds numbers that may be replaced by others of the same range."""
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return False
    wide = tensor.float()
    if not wide.isfinite().all() or len(wide.reshape(-1)[:10_000].unique()) <= _MASK_VALUES:
        return False
    if tensor.dim() and tensor.shape[-1] > 2 and bool((wide.diff(dim=-1) >= 0).all()):
        return False
    sums = wide.sum(-1) if tensor.dim() else wide
    return not bool(((sums - 1).abs() < 1e-3).all())

"""The arguments of a call as a tree of tensors, and other arguments of the same form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from helpers.check.matching import bits_of
from workbook.verify.forms import (
    altered,
    copy_into,
    has_free_rows,
    is_constant,
    is_data,
    is_free,
    is_integer,
    is_mask,
)
from workbook.verify.problem import BENCHMARK, BEYOND, CONTRACT, Case

_MOST_CHANGED = 8  # tensors in which single elements are changed
_DRAWS = 20  # of an element to change
_LEVELS = 8  # different values, where equal ones are tried


def map_tensors(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """The same tree with each tensor replaced by `function(tensor)`."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(function, one) for one in value))
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
    """What a function returned, without its tuples, lists, dicts and None; a dict's values in order of its
    keys.
    """
    if value is None:
        return []
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


def with_tensors(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The same tree with its tensors replaced, in order."""
    rest = iter(tensors)
    return map_tensors(lambda _: next(rest), value)


def alike(a: Case, b: Case) -> bool:
    """Whether two cases differ only in the values of their tensors, so that one can be written over the
    other.
    """
    forms = [repr(map_tensors(lambda one: (*one.shape, one.dtype), case.args)) for case in (a, b)]
    return forms[0] == forms[1]


def overwrite(value: Any, contents: Any) -> None:
    """Copy the tensors of another tree into those of a tree; version counters don't change."""
    for old, new in zip(tensors_of(value), tensors_of(contents), strict=True):
        copy_into(old, new)


def n_bytes(value: Any) -> int:
    """The bytes of all tensors of a tree."""
    return sum(one.numel() * one.element_size() for one in tensors_of(value))


def other_values(case: Case, seed: int, *, ties: bool = True) -> Iterator[Case]:
    """The case with other values in its floating-point tensors.

    Those of ordinary size have the role CONTRACT, others BEYOND. Tensors that look like a mask, are sorted,
    or have rows that sum to 1 keep their values, because the problem may require that. Symmetric and
    triangular matrices stay what they are.

    Args:
        ties: whether equal values are ordinary. Otherwise they are tried as BEYOND: which of equal elements
            is the largest, for example, may be open.
    """
    generator = torch.Generator().manual_seed(seed)

    def made(label: str, role: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Case:
        args = map_tensors(lambda one: altered(one, change) if is_data(one) else one.clone(), case.args)
        return Case(f"{case.label}, {label}", args, role, case.outputs)

    def extremes(one: torch.Tensor) -> torch.Tensor:
        low, high = one.float().aminmax()
        chosen, jitter = torch.rand((2, *one.shape), generator=generator).to(one.device)
        # With only two values, all roundings of a sum can go the same way, which no bound expects.
        jitter = 0.05 * (high - low) * jitter
        return torch.where(chosen < 0.5, low + jitter, high - jitter).to(one.dtype)

    def normal(one: torch.Tensor) -> torch.Tensor:
        return torch.randn(one.shape, generator=generator).to(one.device, one.dtype)

    data = [one.float() for one in tensors_of(case.args) if is_data(one)]
    if not data:
        return
    role = CONTRACT if case.role == BENCHMARK else case.role
    yield made("values shuffled", role, lambda one: _shuffled(one, generator))
    yield made("reversed", role, lambda one: one.flip(tuple(range(one.dim()))))
    if ties:
        yield made("small and large values", role, extremes)
    if ties:
        are_in_range = all(float(one.min()) <= 0 <= float(one.max()) for one in data)
        yield made("zeros", role if are_in_range else BEYOND, torch.zeros_like)
    yield made("normally distributed", role, normal)
    if all(float(one.min()) < 0 < float(one.max()) for one in data):
        yield made("all negative", role, lambda one: -normal(one).abs())
    yield made("each row sorted", role, lambda one: one.sort(dim=-1).values if one.dim() else one)
    yield made("all rows alike", role, lambda one: 0.7 * one[:1] + 0.3 * one if one.dim() > 1 else one)
    yield made("values × 3", role, lambda one: one * 3)
    if ties:  # in 16 bits, such values are often equal
        yield made("values around 1", role, lambda one: 1 + 0.1 * normal(one))
        yield made("values + 4", role, lambda one: one + 4)
    else:
        yield made("equal values", BEYOND, _with_ties)
    yield made("values × 1,000", BEYOND, lambda one: one * 1000)
    yield made("values × 0.001", BEYOND, lambda one: one * 0.001)
    yield made("rows of different size", BEYOND, _with_uneven_rows)
    for label, numbers in (("one NaN", (math.nan,)), ("infinities", (math.inf, -math.inf))):
        places = itertools.count(2)  # another one in each tensor
        yield made(label, BEYOND, lambda one, n=numbers, at=places: _with_numbers_at(one, n, at))


def another_draw(case: Case, seed: int) -> Case | None:
    """The case with normally distributed values where it has data, or with shuffled integers where they are
    free; None if it has neither.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(one: torch.Tensor) -> torch.Tensor:
        if is_data(one):
            return altered(one, lambda x: torch.randn(x.shape, generator=generator).to(x.device, x.dtype))
        return altered(one, lambda x: _shuffled(x, generator)) if is_free(one) else one.clone()

    if not any(is_data(one) or is_free(one) for one in tensors_of(case.args)):
        return None
    role = CONTRACT if case.role == BENCHMARK else case.role
    return Case(f"{case.label}, another draw", map_tensors(drawn, case.args), role, case.outputs)


def other_integers(case: Case, seed: int, *, ties: bool = True) -> Iterator[Case]:
    """The case with other integers and bools between the smallest and the largest one of each tensor.

    Sorted tensors may be offsets, different integers a permutation, and bools a mask of a certain form: other
    values of these have the role BEYOND.

    Args:
        ties: whether to try many equal values in all tensors, not only where some are equal already.
    """
    generator = torch.Generator().manual_seed(seed)

    def chosen(one: torch.Tensor, free: bool) -> bool:
        is_number = one.is_floating_point() or one.is_complex()
        return not is_number and len(one.unique()) > 1 and is_free(one) == free

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
                lambda one, change=change, free=free: (
                    altered(one, change) if chosen(one, free) else one.clone()
                ),
                case.args,
            )
            yield Case(f"{case.label}, {label}", args, role, case.outputs)


def _shuffled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The same elements in another order."""
    there = torch.Generator(tensor.device).manual_seed(int(torch.randint(2**31, (), generator=generator)))
    order = torch.randperm(tensor.numel(), generator=there, device=tensor.device)
    return tensor.reshape(-1)[order].reshape(tensor.shape)


def other_numbers(case: Case) -> Iterator[Case]:
    """The case with other numbers, such as a scale or a flag, among the arguments that are no tensors.

    Whole numbers and flags may choose between variants, so other ones have the role BEYOND.
    """
    changes: tuple[tuple[str, str, type, Callable[[Any], Any]], ...] = (
        ("floats × 1.5", CONTRACT, float, lambda one: 1.5 * one if math.isfinite(one) else one),
        ("whole numbers + 1", BEYOND, int, lambda one: one + 1),
        ("flags changed", BEYOND, bool, lambda one: not one),
    )
    for label, role, kind, change in changes:
        args = _with_numbers(case.args, kind, change)
        if repr(map_tensors(lambda one: None, args)) != repr(map_tensors(lambda one: None, case.args)):
            args = map_tensors(torch.clone, args)
            yield Case(f"{case.label}, {label}", args, role, case.outputs)


def _with_numbers(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_with_numbers(one, kind, change) for one in value)
    if type(value) is dict:
        return {name: _with_numbers(one, kind, change) for name, one in value.items()}
    return change(value) if type(value) is kind else value


def other_masks(case: Case, seed: int) -> Iterator[Case]:
    """The case with more of the largest value in floating-point tensors of two or three different values, as
    in a mask of zeros and -inf, of which more is visible then.
    """
    generator = torch.Generator().manual_seed(seed)

    def opened(one: torch.Tensor) -> torch.Tensor:
        chosen = (torch.rand(one.shape, generator=generator) < 0.25).to(one.device)
        return torch.where(chosen, one.max(), one)

    if any(is_mask(one) for one in tensors_of(case.args)):
        args = map_tensors(lambda one: altered(one, opened) if is_mask(one) else one.clone(), case.args)
        yield Case(f"{case.label}, another mask", args, BEYOND, case.outputs)


def other_constants(case: Case, seed: int, keep: frozenset[int] = frozenset()) -> Iterator[Case]:
    """The case with zeros and ones in tensors that hold the same number everywhere, as a scale of ones, a
    bias of zeros or a mask that masks nothing do: in all of them, and only at the end, which a look at the
    first elements doesn't show. And with smaller integers where all are the same, as lengths that are all
    full are.

    Args:
        keep: numbers of tensors that stay, because they are outputs.
    """
    generator = torch.Generator().manual_seed(seed)

    def mixed(one: torch.Tensor) -> torch.Tensor:
        chosen = (torch.rand(one.shape, generator=generator) < 0.5).to(one.device)
        return torch.where(chosen, one, (one == 0).to(one.dtype))

    def mixed_at_the_end(one: torch.Tensor) -> torch.Tensor:
        n = one.numel() // 2
        parts = one.reshape(-1)
        return torch.cat([parts[:n], mixed(parts[n:])]).view(one.shape)

    def smaller(one: torch.Tensor) -> torch.Tensor:
        chosen = (torch.rand(one.shape, generator=generator) < 0.5).to(one.device)
        return torch.where(chosen, one, one // 2)

    tensors = tensors_of(case.args)
    which = [i for i, one in enumerate(tensors) if i not in keep and is_constant(one)]
    role = CONTRACT if case.role == BENCHMARK else case.role
    changes = (("other constants", mixed), ("other constants at the end", mixed_at_the_end))
    for label, change in changes if which else ():
        args = with_tensors(
            case.args,
            [altered(one, change) if i in which else one for i, one in enumerate(tensors)],
        )
        yield Case(f"{case.label}, {label}", args, role, case.outputs)
    equal = [i for i, one in enumerate(tensors) if i not in keep and _are_equal_integers(one)]
    if equal:
        args = with_tensors(
            case.args,
            [altered(one, smaller) if i in equal else one for i, one in enumerate(tensors)],
        )
        yield Case(f"{case.label}, smaller integers", args, BEYOND, case.outputs)


def slightly_changed(case: Case, seed: int) -> Iterator[Case]:
    """The case with one element of one of its tensors of data changed, and with two of its elements
    swapped: the first tensor, and after it each of the others.
    """
    generator = torch.Generator().manual_seed(seed)
    flat = tensors_of(case.args)
    numbers = [i for i, one in enumerate(flat) if is_data(one) or is_free(one) or has_free_rows(one)]
    for number in numbers[:_MOST_CHANGED]:
        of_elements = ("one element changed", "two elements swapped")
        for label in ("two rows swapped",) if has_free_rows(flat[number]) else of_elements:
            tensors = [one.clone() for one in tensors_of(case.args)]
            for _ in range(_DRAWS):  # a change that the tensor's form takes back is none
                changed = altered(tensors[number], lambda one, how=label: _changed(one, generator, how))
                if not torch.equal(bits_of(changed), bits_of(tensors[number])):
                    break
            tensors[number] = changed
            where = f" in argument {number}" if len(numbers) > 1 else ""
            args = with_tensors(case.args, tensors)
            yield Case(f"{case.label}, {label}{where}", args, case.role, case.outputs)


def _changed(tensor: torch.Tensor, generator: torch.Generator, label: str) -> torch.Tensor:
    """A copy in which one element has another value, or two elements or rows have changed places."""
    parts = tensor.clone(memory_format=torch.contiguous_format)
    parts = parts.reshape(-1, tensor.shape[-1]) if "rows" in label else parts.reshape(-1)
    i, j = (int(one) for one in torch.randint(len(parts), (2,), generator=generator))
    first, second = parts[i].clone(), parts[j].clone()
    if "swapped" in label:
        parts[i], parts[j] = second, first
    else:
        parts[i] = parts.max() if first < parts.double().mean() else parts.min()
    return parts.view(tensor.shape)


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


def _are_equal_integers(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds the same integer several times, and nothing else."""
    return is_integer(tensor) and tensor.numel() > 1 and len(tensor.unique()) == 1 and int(tensor.max()) > 0


def _with_ties(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose values are rounded to a few different ones."""
    low, high = tensor.float().aminmax()
    step = (high - low) / _LEVELS
    return (low + ((tensor - low) / step).round() * step).to(tensor.dtype)


def _with_numbers_at(tensor: torch.Tensor, numbers: Sequence[float], parts: Iterator[int]) -> torch.Tensor:
    """A copy with numbers such as NaN, each after a half, a third and so on of the elements."""
    changed = tensor.clone(memory_format=torch.contiguous_format)
    for number in numbers:
        changed.view(-1)[changed.numel() // next(parts)] = number
    return changed


def _with_uneven_rows(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose rows are multiplied by 1, 16, 256 and 4,096 in turn."""
    if tensor.dim() < 2:
        return tensor.clone()
    rows = torch.arange(tensor.shape[-2], device=tensor.device) % 4
    return tensor * (16.0**rows).to(tensor.dtype)[:, None]

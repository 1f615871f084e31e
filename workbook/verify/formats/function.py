"""A function of your own, compared with any function that can be imported."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from helpers import check, device
from workbook.usage import UsageError, first_line
from workbook.verify.formats.files import portable, text_of
from workbook.verify.loading import run_source
from workbook.verify.problem import BENCHMARK, CONTRACT, Candidate, Case, Problem
from workbook.verify.wide import in_float64

_DTYPES = {
    "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64,
    "int32": torch.int32, "int64": torch.int64,
}  # fmt: skip
_SHAPE = re.compile(r"\d+(x\d+)*")
_CPU_ELEMENTS = 1 << 18


def read(
    target: str, reference: str, shapes: Sequence[str], dtype: str = "float32"
) -> tuple[Problem, Candidate]:
    """Read a candidate such as "mine.py:my_softmax" and its reference.

    Args:
        target: "file.py:function".
        reference: "torch.softmax" or another name that can be imported, or "file.py:function". A parameter
            `dim` without a default gets -1.
        shapes: what is timed: each names the shapes of all inputs, such as "4096x8192", or "64x32,32x16" for
            two inputs.
        dtype: of the inputs.

    Raises:
        UsageError: a name, shape or dtype is not what it should be.
    """
    path, _, name = target.rpartition(":")
    if not path or not name.isidentifier():
        raise UsageError(f'{target}: name a file and a function in it, such as "mine.py:my_softmax".')
    if dtype not in _DTYPES:
        raise UsageError(f"--dtype {dtype}: choose one of {', '.join(_DTYPES)}.")
    if not shapes:
        raise UsageError('Name at least one shape: --shapes "4096x8192", or "64x32,32x16" for two inputs.')
    code = text_of(Path(path))
    compute = _with_dim(_reference(reference), reference)
    wanted = [_parsed(one) for one in shapes]
    kept = [one for one in wanted if device.has_gpu() or _n_elements(one) <= _CPU_ELEMENTS]
    notes = [] if len(kept) == len(wanted) else ["Shapes that need a GPU were left out or made smaller."]
    kept = kept or [_smaller(wanted[0])]
    problem = Problem(
        format="function",
        name=reference,
        reference=in_float64(compute),
        cases=lambda seed: _cases(kept, _DTYPES[dtype], seed),
        notes=tuple(notes),
    )
    file = Path(path).name
    return problem, Candidate(name=target, sources={file: code}, entry=f"{file}::{name}")


def _reference(name: str) -> Callable[..., Any]:
    path, _, function = name.rpartition(":")
    if path:
        module = run_source(portable(text_of(Path(path)), path), Path(path), "reference")
        found = getattr(module, function, None)
    else:
        module_name, _, function = name.rpartition(".")
        try:
            found = getattr(importlib.import_module(module_name), function, None) if module_name else None
        except ImportError as error:
            raise UsageError(f"--reference {name}: {first_line(error)}.") from None
    if not callable(found):
        raise UsageError(f'--reference {name}: there is no such function; an example is "torch.softmax".')
    return found


def _with_dim(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """torch.softmax and its kind need to be told the dimension; kernels usually work on rows."""
    try:
        dim = inspect.signature(function).parameters.get("dim")
        needs_dim = dim is not None and dim.default is inspect.Parameter.empty
    except (TypeError, ValueError):  # written in C
        needs_dim = name in ("torch.softmax", "torch.log_softmax", "torch.cumsum", "torch.cumprod")
    return (lambda *args: function(*args, dim=-1)) if needs_dim else function


def _parsed(shapes: str) -> tuple[tuple[int, ...], ...]:
    parts = [one.strip() for one in shapes.replace("×", "x").split(",")]
    if not all(_SHAPE.fullmatch(one) for one in parts):
        raise UsageError(f'--shapes "{shapes}": write "4096x8192", or "64x32,32x16" for two inputs.')
    return tuple(tuple(int(n) for n in one.split("x")) for one in parts)


def _n_elements(shapes: Sequence[Sequence[int]]) -> int:
    return sum(torch.Size(one).numel() for one in shapes)


def _smaller(shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    while _n_elements(shapes) > _CPU_ELEMENTS:
        shapes = tuple(tuple(max(1, n // 2) for n in one) for one in shapes)
    return shapes


def _cases(shapes: Sequence[tuple[tuple[int, ...], ...]], dtype: torch.dtype, seed: int) -> Iterator[Case]:
    """The named shapes, then shapes that often break kernels, if there is one two-dimensional input."""
    generator = torch.Generator().manual_seed(seed)
    for several in sorted(shapes, key=_n_elements):
        yield _case(several, dtype, generator, seed, BENCHMARK)
    if all(len(several) == 1 and len(several[0]) == 2 for several in shapes):
        for shape in check.shapes_around():
            if 0 not in shape:
                yield _case((shape,), dtype, generator, seed, CONTRACT)


def _case(
    shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, generator: torch.Generator, seed: int, role: str
) -> Case:  # fmt: skip
    from helpers.check.cases import one_normal

    args = tuple(one_normal(shape, generator, "cpu", dtype)[0] for shape in shapes)
    text = " and ".join(" × ".join(f"{n:,}" for n in shape) for shape in shapes)
    return Case(f"{text}, seed {seed}", args, role)

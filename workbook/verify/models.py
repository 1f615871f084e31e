"""Copies of a reference model, also in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any

import torch

from workbook.verify.arguments import map_tensors


def copied(model: torch.nn.Module) -> torch.nn.Module:
    """A copy that shares nothing with the model.

    `deepcopy` keeps functions as they are, so a lambda that a constructor stores would still call the
    model's own parts. KernelBench has such a problem (level 3, MiniGPTBlock).
    """
    copies: dict[int, Any] = {}
    new = copy.deepcopy(model, copies)
    for one in new.modules():
        for name, value in list(vars(one).items()):
            if isinstance(value, FunctionType) and value.__closure__:
                vars(one)[name] = _with_copies(value, copies)
    return new


def copied_in_float64(model: torch.nn.Module) -> torch.nn.Module:
    """A copy in float64, with the tensors that are plain attributes."""
    wide = copied(model).double()
    own = vars(torch.nn.Module())  # where the parameters are, which `double` changes
    for one in wide.modules():
        for name, value in vars(one).items():
            if name not in own and isinstance(value, torch.Tensor | list | tuple | dict):
                vars(one)[name] = map_tensors(_widened, value)
    return wide


@contextmanager
def other_constants() -> Iterator[None]:
    """Models that are constructed meanwhile have 1.25 where their parts begin with ones, and 0.125 instead of
    zeros, as the weight and the bias of a normalization.
    """
    init = torch.nn.init
    before = init.ones_, init.zeros_
    init.ones_ = lambda tensor: init.constant_(tensor, 1.25)
    init.zeros_ = lambda tensor: init.constant_(tensor, 0.125)
    try:
        yield
    finally:
        init.ones_, init.zeros_ = before


def _with_copies(function: FunctionType, copies: dict[int, Any]) -> FunctionType:
    """The function with copies of what it refers to."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(CellType(copies.get(id(cell.cell_contents), cell.cell_contents)))
        except ValueError:  # it is empty
            cells.append(cell)
    code, names = function.__code__, function.__globals__
    new = FunctionType(code, names, function.__name__, function.__defaults__, tuple(cells))
    new.__kwdefaults__ = function.__kwdefaults__
    return new


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor

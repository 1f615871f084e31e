"""KernelBench: a problem is a file with `Model`, `get_inputs` and `get_init_inputs`; a candidate defines
`ModelNew`.

Source: github.com/ScalingIntelligence/KernelBench, `src/eval.py`. Its harness sets a seed, constructs the
model, sets the seed again, constructs the candidate, and compares five results by
`torch.allclose(atol=tolerance, rtol=tolerance)`, where the tolerance is 1e-4 for float32 and 1e-2 for float16
and bfloat16.
"""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from helpers import device
from workbook.usage import UsageError, first_line
from workbook.verify import models
from workbook.verify.arguments import map_tensors, n_bytes, tensors_of
from workbook.verify.formats.files import portable, text_of
from workbook.verify.formats.observing import observed
from workbook.verify.loading import need, run_source
from workbook.verify.memory import addresses
from workbook.verify.problem import (
    BEYOND,
    Candidate,
    Case,
    FullSize,
    OtherParameters,
    Problem,
    Tolerance,
)
from workbook.verify.wide import in_float64, wants_float64

SEED = 42  # KernelBench's
_TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
_CPU_BYTES = 4 << 20  # of inputs and parameters; more takes an interpreter too long
_SENT_BYTES = 256 << 20  # more takes too long to be sent to the candidate's process and back
_COPIES = 6  # of inputs and results that have to fit into the GPU: the float64 reference's are twice as large
_MAX_SIZES = 6  # modules with another size
_REMEMBERS = 4.0  # added to a gate, of which the sigmoid is taken: 0.98 of a state stays in each step
_SMALLEST = 16  # sizes up to this are not reduced


def read(problem: Path, candidate: Path) -> tuple[Problem, Candidate]:
    """Read a problem and a candidate.

    Sizes of the problem that are too large for a CPU, or on a GPU to be sent to the candidate, are divided by
    powers of two. On a GPU, the candidate is timed at the benchmark's own sizes nevertheless.

    Raises:
        UsageError: a file is missing or not what the format describes.
    """
    source, code = portable(text_of(problem), str(problem)), text_of(candidate)
    if "ModelNew" not in code:
        raise UsageError(f"{candidate}: it defines no ModelNew, the class that KernelBench calls.")
    whole = source
    module, divisor, source = _fitting(source, problem, _SENT_BYTES if device.has_gpu() else _CPU_BYTES)
    init, keywords = _init_of(module, problem)
    model = _model(module, problem, init, keywords)
    full = _full_size(whole, problem, candidate, code) if divisor > 1 and device.has_gpu() else None
    why = "for this machine" if full is None else "for all checks; only the timing uses them"
    note = f"The benchmark's sizes are too large {why}. They were divided by up to {divisor}."
    reference = in_float64(_reference(model))
    others = _other_sizes(source, problem, init)
    found = Problem(
        format="kernelbench",
        name=problem.stem,
        reference=reference,
        cases=lambda seed: [
            *_cases(module, problem, seed),
            *_beyond(others, problem, seed, reference),
        ],
        tolerance=Tolerance("torch.allclose with rtol = atol = 1e-4 (1e-2 for 16 bits)", _accepts),
        may_change=_changed(model, module, problem),
        reseeded=partial(_reseeded, module, problem, init, keywords, model),
        with_parameters=partial(_other_parameters, model) if model.state_dict() else None,
        with_larger_parameters=partial(_larger_parameters, model),
        with_constants=partial(_other_constants, module, problem, init, keywords, model),
        own_seed=SEED,
        own_cases=lambda: _cases(module, problem, SEED),
        keeps_state=_keeps_state(model, module, problem),
        returns_state=_returns_state(model, module, problem),
        is_reduced=divisor > 1,
        full_size=full,
        notes=(note,) if divisor > 1 else (),
    )
    return found, _candidate(candidate, code, init, keywords, model)


def _candidate(
    path: Path, code: str, init: list[Any], keywords: dict[str, Any], model: torch.nn.Module
) -> Candidate:
    return Candidate(
        name=path.name, sources={path.name: code}, entry=f"{path.name}::ModelNew", kind="model",
        init=tuple(init), init_keywords=keywords, state=model.state_dict(), seed=SEED,
    )  # fmt: skip


def _full_size(source: str, path: Path, candidate: Path, code: str) -> FullSize:
    """The problem at its own sizes, or at the largest ones whose reference fits into the GPU in float64."""
    module, _, source = _fitting(source, path, device.gpu_spec().memory_bytes // _COPIES)
    init, keywords = _init_of(module, path)
    model = _model(module, path, init, keywords)
    with torch.device("meta"):
        label = _label(module.get_inputs())
    suspect = _candidate(candidate, code, init, keywords, model)
    return FullSize(label, source, in_float64(_reference(model)), suspect)


def _fitting(source: str, path: Path, most: int) -> tuple[ModuleType, int, str]:
    """The problem's module, divided until it needs at most `most` bytes; the divisor; the source."""
    divisor, refused = 1, None
    while divisor <= 1 << 16:
        text = _divided(source, divisor) if divisor > 1 else source
        module = run_source(text, path, "problem")
        try:
            if _size(module, path) <= most:
                return module, divisor, text
        except (RuntimeError, ValueError, TypeError, ArithmeticError, LookupError, AssertionError) as error:
            refused = error
        divisor *= 2
    reason = f" ({first_line(refused)})" if refused else ""
    raise UsageError(f"{path}: its sizes are too large for this machine, and smaller ones don't fit{reason}.")


def _size(module: ModuleType, path: Path) -> int:
    """The bytes of inputs and parameters, without allocating them."""
    init, keywords = _init_of(module, path)
    (model_class, get_inputs) = need(module, path, "Model", "get_inputs")
    with torch.device("meta"):
        model = model_class(*init, **keywords)
        args = get_inputs()
        value = ()
        with contextlib.suppress(NotImplementedError):  # an operator that can't tell its result's shape
            value = model(*args)
    return n_bytes(list(args)) + n_bytes(list(model.state_dict().values())) + n_bytes([value])


def _divided(source: str, divisor: int) -> str:
    """The source with the module's integer sizes divided, those that stay at least `_SMALLEST`."""
    for at in reversed(_sizes(source)):
        if at.value > _SMALLEST:
            source = _with_size(source, at, max(at.value // divisor, _SMALLEST))
    return source


def _sizes(source: str) -> list[ast.Constant]:
    """The integers that are assigned to names, or to several names in one line, at the module's top."""
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            found += [one for one in values if isinstance(one, ast.Constant) and type(one.value) is int]
    return found


def _with_size(source: str, at: ast.Constant, value: int) -> str:
    lines = source.splitlines(keepends=True)
    line = lines[at.lineno - 1].encode()
    changed = line[: at.col_offset] + str(value).encode() + line[at.end_col_offset :]
    lines[at.lineno - 1] = changed.decode()
    return "".join(lines)


def _other_sizes(source: str, path: Path, init: list[Any]) -> list[tuple[str, ModuleType]]:
    """The problem's module with one size changed, where a model of the same size can compute that."""
    found = []
    for at in _sizes(source):
        for value in (at.value + 1, at.value // 2 + 3, 1):
            if value == at.value:
                continue
            with contextlib.suppress(Exception):  # the problem can't have this size
                module = run_source(_with_size(source, at, value), path, "problem")
                if repr(_init_of(module, path)[0]) == repr(init):
                    found.append((f"{value:,} instead of {at.value:,}", module))
    return found[:_MAX_SIZES]


def _init_of(module: ModuleType, path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of the constructor; a few problems return [args, kwargs]."""
    found = list(module.get_init_inputs()) if hasattr(module, "get_init_inputs") else []
    if len(found) == 2 and isinstance(found[0], list) and isinstance(found[1], dict):
        return found[0], found[1]
    return found, {}


def _model(
    module: ModuleType, path: Path, init: list[Any], keywords: dict[str, Any], seed: int = SEED
) -> torch.nn.Module:
    (model_class,) = need(module, path, "Model")
    torch.manual_seed(seed)
    try:
        model = model_class(*init, **keywords)
    except Exception as error:
        says = f"{type(error).__name__}: {first_line(error)}"
        raise UsageError(f"{path}: Model(*get_init_inputs()) fails ({says}).") from None
    for one in model.modules():  # `weight_norm` stores a computed weight, which can't be copied
        for name, value in list(vars(one).items()):
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                vars(one)[name] = value.detach()
    return model.cuda() if device.has_gpu() else model


def _reference(model: torch.nn.Module) -> Callable[..., Any]:
    """The model as a function that computes in float64 if `wants_float64`, and changes no buffer."""
    called = _called(model)
    return lambda *args: called(*args)[0]


def _called(model: torch.nn.Module) -> Callable[..., tuple[Any, dict[str, torch.Tensor]]]:
    """The same, with what the call would have written into the model's floating-point buffers, by name."""
    wide = models.copied_in_float64(model)

    def called(*args: Any) -> tuple[Any, dict[str, torch.Tensor]]:
        chosen = wide if wants_float64(args) else model
        buffers = {name: one.clone() for name, one in chosen.named_buffers()}
        with torch.no_grad():
            value = torch.func.functional_call(chosen, buffers, args)
        return value, {name: one for name, one in buffers.items() if one.is_floating_point()}

    return called


def _changed(model: torch.nn.Module, module: ModuleType, path: Path) -> frozenset[int]:
    """The arguments that the model itself changes, as an operation in place does."""
    return observed(_reference(model), _first_args(module, path), f"{path}: Model")[1]


def _first_args(module: ModuleType, path: Path) -> tuple[Any, ...]:
    """The arguments of the benchmark's first case, where models compute."""
    return _placed(next(_cases(module, path, SEED)))


def _placed(case: Case) -> tuple[Any, ...]:
    return map_tensors(lambda one: one.cuda(), case.args) if device.has_gpu() else case.args


def _keeps_state(model: torch.nn.Module, module: ModuleType, path: Path) -> bool:
    """Whether the model returns something else when it is called again, but not when a copy is called."""
    args = _first_args(module, path)

    def called(one: torch.nn.Module) -> list[torch.Tensor]:
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(SEED)
            return [found.clone() for found in tensors_of([one(*map_tensors(torch.clone, args))])]

    first, other = models.copied(model), models.copied(model)
    results = called(first), called(other), called(first)
    return _close(results[0], results[1]) and not _close(results[0], results[2])


def _returns_state(model: torch.nn.Module, module: ModuleType, path: Path) -> bool:
    """Whether a result is in the memory of the model's buffers or parameters."""
    with torch.random.fork_rng(), torch.no_grad():
        copied = models.copied(model)
        results = tensors_of([copied(*_first_args(module, path))])
    return bool(addresses(results) & addresses(copied.state_dict().values()))


def _close(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Whether results are equal except for roundings, which may differ from call to call on a GPU."""
    return len(some) == len(others) and all(
        torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-5, equal_nan=True)
        for a, b in zip(some, others, strict=True)
    )


def _reseeded(
    module: ModuleType,
    path: Path,
    init: list[Any],
    keywords: dict[str, Any],
    model: torch.nn.Module,
    seed: int,
) -> OtherParameters | None:
    """A new model that is made with another seed; None if its parameters are the same."""
    other = _model(module, path, init, keywords, seed)
    return None if _have_equal_parameters(other, model) else _parametrized(other)


def _parametrized(model: torch.nn.Module) -> OtherParameters:
    called, n = in_float64(_called(model)), sum(one.numel() for one in model.parameters())
    return OtherParameters(
        model.state_dict(), lambda *args: called(*args)[0], lambda *args: called(*args)[1], n
    )


def _other_parameters(
    model: torch.nn.Module, seed: int, alike: bool, only_constants: bool
) -> OtherParameters | None:
    """Parameters of about the same size in another order; constant ones (1 and 0, usually) get larger.

    Args:
        alike: whether equal parameters stay equal.
        only_constants: whether the others stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)
    other = models.copied(model)
    made: list[tuple[torch.Tensor, torch.Tensor]] = []  # what each was, and what it is now
    for one in _learned(other):
        before = one.detach().clone()
        same = [now for then, now in made if alike and torch.equal(then, before)]
        if same:
            one.data.copy_(same[0])
        elif one.numel() and bool((one == one.reshape(-1)[0]).all()):
            one.data += 0.25 * torch.rand(one.shape, generator=generator).to(one.device, one.dtype)
        elif not only_constants:
            order = torch.randperm(one.numel(), generator=generator).to(one.device)
            factors = (0.75 + 0.5 * torch.rand(one.shape, generator=generator)).to(one.device, one.dtype)
            one.data.copy_(one.data.reshape(-1)[order].view(one.shape) * factors)
        made.append((before, one.detach()))
    return None if _have_equal_parameters(other, model) else _parametrized(other)


def _learned(model: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters, and the statistics that normalizations keep, without integers."""
    names = ("running_mean", "running_var")
    statistics = [one for name, one in model.named_buffers() if name.endswith(names)]
    return [one for one in (*model.parameters(), *statistics) if one.is_floating_point()]


def _larger_parameters(model: torch.nn.Module) -> OtherParameters | None:
    """Parameters as large as those of a trained model may be, so that nothing fades away that is small in a
    new one. Recurrent layers with gates remember what they would forget.
    """
    other = models.copied(model)
    recurrent = [one for one in other.modules() if isinstance(one, torch.nn.LSTM | torch.nn.GRU) and one.bias]
    gated = {id(parameter) for one in recurrent for parameter in one.parameters()}
    for one in _learned(other):
        one.data *= 1 if id(one) in gated else 3
    for layer in recurrent:
        for name, one in layer.named_parameters():
            if name.startswith("bias_ih"):  # the second part: LSTM's forget gate, GRU's update gate
                one.data[layer.hidden_size : 2 * layer.hidden_size] += _REMEMBERS
    return None if _have_equal_parameters(other, model) else _parametrized(other)


def _other_constants(
    module: ModuleType, path: Path, init: list[Any], keywords: dict[str, Any], model: torch.nn.Module
) -> OtherParameters | None:
    with models.other_constants():
        other = _model(module, path, init, keywords)
    return None if _have_equal_parameters(other, model) else _parametrized(other)


def _have_equal_parameters(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    before = b.state_dict()
    return all(torch.equal(one, before[name]) for name, one in a.state_dict().items())


def _cases(module: ModuleType, path: Path, seed: int) -> Iterator[Case]:
    (get_inputs,) = need(module, path, "get_inputs")
    torch.manual_seed(seed)
    try:
        args = tuple(get_inputs())
    except Exception as error:
        says = f"{type(error).__name__}: {first_line(error)}"
        raise UsageError(f"{path}: get_inputs() fails ({says}).") from None
    yield Case(f"{_label(args)}, seed {seed}", args)


def _label(args: Sequence[Any]) -> str:
    shapes = [" × ".join(f"{n:,}" for n in one.shape) or "one number" for one in tensors_of(list(args))]
    return " and ".join(dict.fromkeys(shapes)) or "no tensors"


def _beyond(
    others: list[tuple[str, ModuleType]], path: Path, seed: int, reference: Callable[..., Any]
) -> Iterator[Case]:
    """Cases of other sizes, which KernelBench never tries."""
    for label, module in others:
        try:
            (case,) = _cases(module, path, seed)
            reference(*_placed(case))
        except Exception:
            continue  # this size belongs to the model
        yield replace(case, label=f"{case.label}, {label}", role=BEYOND)


def _accepts(results: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...], case: Case) -> bool:
    """What KernelBench's harness would say."""
    tolerance = max((_TOLERANCES.get(one.dtype, 1e-4) for one in expected), default=math.nan)
    return len(results) == len(expected) and all(
        got.shape == own.shape and torch.allclose(got, own, rtol=tolerance, atol=tolerance)
        for got, own in zip(results, expected, strict=True)
    )

"""Read GPU MODE: a task and a submission.

Read in gpu-mode/reference-kernels: task.yml and reference.py of problems/pmpp, pmpp_v2, helion and corepack
(commits 786d3c4, bc69f89, 3c4d9c6, 159d7f0), eval.py (dc880ee) and utils.py (09b0316), and in
gpu-mode/kernelbot src/libkernelbot/task.py (1aa9275). A submission defines `custom_kernel(data)`, where
`data` is what `generate_input` of the task's reference.py returns: a tensor, or a tuple of tensors and
numbers, often with a tensor for the result. The harness passes a copy of `data`, and then calls
`check_implementation(data, output)` with what was returned.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from helpers import device
from helpers.check.poison import fill_with_poison
from workbook.usage import UsageError, first_line
from workbook.verify.arguments import map_tensors, n_bytes, tensors_of, with_tensors
from workbook.verify.formats.files import fits_cpu, text_of
from workbook.verify.formats.observing import observed, same
from workbook.verify.formats.tasks import Task, load
from workbook.verify.formats.values import seed_of, seeded
from workbook.verify.problem import BENCHMARK, Candidate, Case, Problem, Tolerance
from workbook.verify.wide import in_float64

_PLAIN = (bool, int, float, str, type(None))
_HIDDEN = ("reference", "eval")  # modules that a candidate doesn't get
_MAX_CASES = 12
_SEEDS = 100_000  # as large as the tasks' own: one makes numbers of about this size from them
_N_NEEDED = 2  # cases that are tried without a GPU even if they take long


def read(task: Path, submission: Path) -> tuple[Problem, Candidate]:
    """The problem of a task, and the candidate of a submission.

    The cases are the task's tests and benchmarks with other seeds. Without a GPU, the large ones are left
    out.

    Args:
        task: the task's folder.
        submission: a Python file.

    Raises:
        UsageError: a file is missing or malformed, or has something that can't be verified.
    """
    if submission.suffix != ".py":
        raise UsageError(f"{submission.name} isn't a Python file; hand in CUDA C++ with load_inline.")
    loaded = load(task)
    text = text_of(submission)
    inputs = _Inputs(loaded)
    chosen = inputs.chosen()
    data = inputs.made(chosen[0], 0)
    reference = _reference(loaded)
    example, may_change, unread = _may_change(loaded, reference, data)
    problem = Problem(
        format="gpumode",
        name=loaded.name,
        reference=reference if example is None else _with_own_data(reference),
        timed=reference,
        cases=functools.partial(_cases, inputs, chosen),
        own_cases=functools.partial(_own_cases, inputs, chosen),
        tolerance=_tolerance(loaded, example),
        may_change=may_change,
        unread=unread,
        dtypes=_dtypes(example, [tensors_of(data)[i] for i in unread]),
        notes=(*loaded.notes, *inputs.notes, *_notes(text, submission.name)),
    )
    kept = {name: one for name, one in loaded.texts.items() if name.removesuffix(".py") not in _HIDDEN}
    candidate = Candidate(
        name=submission.name,
        sources={**kept, loaded.submission: text},
        entry=f"{loaded.submission}::custom_kernel",
        given=tuple(kept),
        results=tuple(example) if isinstance(example, dict) else (),
    )
    return problem, candidate


class _Inputs:
    """What `generate_input` makes of the task's arguments.

    Attributes:
        notes: sentences about arguments that are left out.
    """

    def __init__(self, task: Task) -> None:
        self._task, self.notes = task, []
        self._takes_seed = "seed" in inspect.signature(task.reference.generate_input).parameters

    def chosen(self) -> list[Mapping[str, Any]]:
        """The arguments that are tried, the smallest first."""
        unique = {str(_without_seed(one)): one for one in self._task.arguments}
        ordered = sorted(unique.values(), key=_size)
        if not device.has_gpu():
            n = 0
            while n < len(ordered) and fits_cpu(n_bytes(self.made(ordered[n], 0)), is_needed=n < _N_NEEDED):
                n += 1
            if left_out := [_named(one) for one in ordered[max(n, 1) :]]:
                self.notes.append(f"Without a GPU, these cases are too large: {'; '.join(left_out)}.")
            ordered = ordered[: max(n, 1)]
        if len(ordered) > _MAX_CASES:
            self.notes.append(f"Of {len(ordered)} cases, {_MAX_CASES} of different sizes are tried.")
            step = (len(ordered) - 1) / (_MAX_CASES - 1)
            ordered = [ordered[round(i * step)] for i in range(_MAX_CASES)]
        return ordered

    def made(self, arguments: Mapping[str, Any], seed: int | None) -> Any:
        """The data for arguments; their seed is replaced, unless `seed` is None.

        Raises:
            UsageError: `generate_input` fails, or returns something that can't be handed over.
        """
        own = arguments["seed"] if seed is None else seed_of(seed, arguments) % _SEEDS
        given = {**_without_seed(arguments), **({"seed": own} if self._takes_seed else {})}
        try:
            with self._task.modules.importable(), seeded(own):
                data = self._task.reference.generate_input(**given)
        except Exception as error:
            says = f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(
                f"generate_input({_named(given)}) of {self._task.name} fails: {says}."
            ) from error
        if odd := next(_odd(data), None):
            raise UsageError(
                f"generate_input of {self._task.name} returns a {odd}; tensors, numbers and strings in "
                "tuples, lists and dicts can be handed to a candidate."
            )
        return data


def _cases(inputs: _Inputs, chosen: Sequence[Mapping[str, Any]], seed: int) -> Iterator[Case]:
    for arguments in chosen:
        label = ", ".join(one for one in (_named(_without_seed(arguments)), f"seed {seed}") if one)
        yield Case(label, (inputs.made(arguments, seed),), BENCHMARK)


def _own_cases(inputs: _Inputs, chosen: Sequence[Mapping[str, Any]]) -> Iterator[Case]:
    """The cases with the seeds of task.yml, which everybody knows."""
    for arguments in chosen:
        if isinstance(arguments.get("seed"), int):
            label = f"{_named(_without_seed(arguments))}, the task's seed {arguments['seed']}"
            yield Case(label, (inputs.made(arguments, None),), BENCHMARK)


def _reference(task: Task) -> Callable[[Any], Any]:
    run = in_float64(task.reference.ref_kernel)

    def reference(data: Any) -> Any:
        with task.modules.importable(), torch.no_grad():
            return run(data)

    return reference


def _with_own_data(reference: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The reference on a copy of its data; its result is a tensor or a tuple of tensors."""

    def wrapped(data: Any) -> Any:
        value = reference(map_tensors(torch.clone, data))
        return value if isinstance(value, torch.Tensor) else tuple(tensors_of(value))

    return wrapped


def _may_change(
    task: Task, reference: Callable[[Any], Any], data: Any
) -> tuple[Any, frozenset[int], frozenset[int]]:
    """What the reference returns for data, which of the data's tensors a candidate may change, and which of
    these are for results.

    A tensor for a result has as many elements as a result, and its contents don't matter to the reference. A
    candidate may also change what the reference changes.

    Raises:
        UsageError: the reference fails, or has no result.
    """
    what = f"ref_kernel of {task.name}"
    example, changed = observed(reference, [data], what)
    results, before = tensors_of(example), tensors_of(data)
    if not results and not changed:
        raise UsageError(f"{what} returns no tensor and changes none of its data.")
    unread = set()
    for i, one in enumerate(before):
        if not any(_has_room(one, result) for result in results):
            continue
        others = [fill_with_poison(x.clone()) if j == i else x for j, x in enumerate(before)]
        try:
            value, _ = observed(reference, [with_tensors(data, others)], what)
        except UsageError:  # its contents matter
            continue
        again = tensors_of(value)
        if len(again) == len(results) and all(map(same, again, results)):
            unread.add(i)
    return example, changed | unread, frozenset(unread)


def _has_room(tensor: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether a tensor may be for a result: both are numbers of one kind, and as many."""
    kinds = [one.dtype if not one.is_floating_point() else "float" for one in (tensor, result)]
    return tensor.numel() == result.numel() and kinds[0] == kinds[1]


def _dtypes(example: Any, rooms: Sequence[torch.Tensor]) -> dict[int, frozenset[torch.dtype]]:
    """Number of a result -> the dtypes of the tensors that may be for it."""
    return {
        i: frozenset(room.dtype for room in rooms if _has_room(room, one))
        for i, one in enumerate(tensors_of(example))
    }


def _tolerance(task: Task, example: Any) -> Tolerance | None:
    n_results = len(tensors_of(example))
    if not n_results:
        return None

    def accepts(results: tuple[Any, ...], expected: tuple[Any, ...], case: Case) -> bool:
        if len(results) != n_results:
            return False
        data = map_tensors(torch.clone, case.args[0])
        output = with_tensors(example, [one.clone() for one in results])
        with task.modules.importable(), torch.no_grad():
            verdict = task.reference.check_implementation(data, output)
        if isinstance(verdict, str):  # older tasks return what is wrong, or ""
            return not verdict
        return bool(verdict[0] if isinstance(verdict, tuple) else verdict)

    return Tolerance(_comparison(task.texts["reference.py"]), accepts)


def _comparison(source: str) -> str:
    """How reference.py makes its `check_implementation`."""
    for node in ast.parse(source).body:
        targets = [getattr(one, "id", "") for one in getattr(node, "targets", ())]
        if "check_implementation" in targets and isinstance(node.value, ast.Call):
            return f"check_implementation = {ast.unparse(node.value)}"
    return "the task's check_implementation"


def _notes(source: str, name: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for module in _HIDDEN:
        if module in imported:
            yield f"{name} imports {module}.py, which a candidate doesn't get in a verification."


def _odd(data: Any) -> Iterator[str]:
    """The types in data that can't be handed over."""
    if type(data) in (tuple, list):
        for one in data:
            yield from _odd(one)
    elif type(data) is dict:
        for one in data.values():
            yield from _odd(one)
    elif not isinstance(data, (torch.Tensor, *_PLAIN)):
        yield type(data).__name__


def _without_seed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "seed"}


def _size(arguments: Mapping[str, Any]) -> int:
    size = 1
    for value in _without_seed(arguments).values():
        size *= max(1, abs(value)) if isinstance(value, int) else 1
    return size


def _named(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in arguments.items())

"""Read FlashInfer-Trace: a definition, its workloads, and a solution.

Read in flashinfer-ai/flashinfer-bench: docs/flashinfer_trace/definition.md (commit 0d4284a),
docs/flashinfer-trace/workload.mdx (ce064cd) and solution.mdx (15618a6), flashinfer_bench/data/definition.py
(30545a8) and bench/utils.py (00a1ec8). SOL-ExecBench's dialect is read in NVIDIA/SOL-ExecBench:
docs/definition.md, solution.md and workload.md (266784c) and src/sol_execbench/core/data/solution.py
(5b0f590). It adds axes that are expressions, inputs that a function of the reference makes, a tolerance per
workload, and "languages" instead of "language".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workbook.usage import UsageError
from workbook.verify.arguments import map_tensors
from workbook.verify.formats import solutions
from workbook.verify.formats.axes import Axes, axes_of
from workbook.verify.formats.files import Modules, field_of, object_of, text_of
from workbook.verify.formats.observing import observed
from workbook.verify.formats.tolerances import Rule, flashinfer_rule, sol_rule
from workbook.verify.formats.values import DEVICE, DTYPES
from workbook.verify.formats.workloads import Spec, Workload, Workloads
from workbook.verify.problem import BENCHMARK, CONTRACT, Candidate, Case, Problem, Tolerance
from workbook.verify.wide import in_float64

_READ = {
    "name", "op_type", "type", "tags", "description", "axes", "inputs", "outputs", "reference", "constraints",
    "custom_inputs_entrypoint",
}  # fmt: skip
_MAX_CONTRACT_CASES = 12


@dataclass(frozen=True)
class _Definition:
    """What a definition's file says."""

    name: str
    axes: Axes
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    module: ModuleType
    make_inputs: Callable[..., Any] | None
    record: Mapping[str, Any]


def read(definition: Path, workload: Path, solution: Path) -> tuple[Problem, Candidate]:
    """The problem of a definition and its workloads, and the candidate of a solution.

    The cases are the workloads with other random values, and, for the definition's variable axes, sizes
    around the smallest workload's. Without a GPU, large variable axes are reduced.

    Args:
        definition: a JSON file.
        workload: a file with one JSON object per line.
        solution: a JSON file.

    Raises:
        UsageError: a file is missing or malformed, or has something that can't be verified.
    """
    about = _definition(definition)
    record = object_of(text_of(solution), solution.name)
    rows = _rows(workload, about.name)
    spec = record.get("spec")
    is_sol = (
        "custom_inputs_entrypoint" in about.record
        or bool(about.axes.expressions)
        or (isinstance(spec, dict) and "languages" in spec)
        or any("tolerance" in row or "correctness" in row for row in rows.values())
    )
    names = tuple(one.name for one in about.outputs)
    candidate, notes = solutions.candidate_of(record, solution.name, about.name, names)
    reference = _reference(about)
    found = Workloads(about.axes, about.inputs, about.make_inputs, reference, workload, about.name)
    chosen = found.chosen({number: found.read(row, number) for number, row in rows.items()})
    rules = {
        one.number: sol_rule(rows[one.number], f"line {one.number} of {workload.name}")
        if is_sol
        else flashinfer_rule(about.record)
        for one in chosen
    }
    changed: frozenset[int] = frozenset()
    if chosen:
        what = f"The reference in {definition.name}"
        _, changed = observed(reference, found.arguments(chosen[0], 0), what)
    outputs = about.outputs if candidate.kind == "destination" else ()
    problem = Problem(
        format="flashinfer",
        name=about.name,
        reference=_with_own_arguments(reference) if changed else reference,
        timed=reference,
        cases=functools.partial(_cases, found, chosen, found.around(chosen)[:_MAX_CONTRACT_CASES], outputs),
        tolerance=_tolerance(rules, "SOL-ExecBench" if is_sol else "FlashInfer-Bench"),
        may_change=changed,
        notes=(*_notes(about), *found.notes, *notes),
    )
    return problem, candidate


def _definition(path: Path) -> _Definition:
    record = object_of(text_of(path), path.name)
    name = field_of(record, "name", str, path.name)
    axes = axes_of(record, path.name)
    inputs, outputs = (_specs(record, group, axes, path.name) for group in ("inputs", "outputs"))
    if not outputs:
        raise UsageError(f"{path.name} has no outputs.")
    text = field_of(record, "reference", str, path.name)
    modules = Modules({"reference": text}, {"reference": f"the reference in {path.name}"})
    module = modules.load("reference")
    if not callable(getattr(module, "run", None)):
        raise UsageError(f"The reference in {path.name} defines no function run.")
    entry = record.get("custom_inputs_entrypoint")
    make_inputs = getattr(module, entry, None) if entry else None
    if entry and make_inputs is None:
        raise UsageError(
            f"The reference in {path.name} defines no function {entry}, its custom_inputs_entrypoint."
        )
    return _Definition(name, axes, inputs, outputs, module, make_inputs, record)


def _specs(record: Mapping[str, Any], group: str, axes: Axes, where: str) -> tuple[Spec, ...]:
    known = {*axes.constants, *axes.variables, *axes.expressions}
    specs = []
    for name, about in field_of(record, group, dict, where).items():
        what = f'"{name}" in the {group} of {where}'
        if not isinstance(about, dict) or "shape" not in about:
            raise UsageError(f"{what} has no shape; give a list of axes, or null for a number.")
        shape = about["shape"]
        if shape is not None and not (isinstance(shape, list) and set(shape) <= known):
            raise UsageError(f"{what} has the shape {shape!r}; it must be a list of the definition's axes.")
        dtype = field_of(about, "dtype", str, what)
        if dtype not in DTYPES:
            raise UsageError(f"{what} has the dtype {dtype}, which can't be verified.")
        specs.append(Spec(name, None if shape is None else tuple(shape), DTYPES[dtype]))
    return tuple(specs)


def _rows(path: Path, definition: str) -> dict[int, dict[str, Any]]:
    """Line number -> workload; a line may also be a trace that holds a workload."""
    rows, seen = {}, set()
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if not line.strip():
            continue
        row = object_of(line, f"line {number} of {path.name}")
        if row.get("definition", definition) != definition:
            continue
        row = row.get("workload", row)
        if not isinstance(row, dict):
            raise UsageError(f'"workload" in line {number} of {path.name} must be an object.')
        if row.get("uuid") is None or row["uuid"] not in seen:
            seen.add(row.get("uuid"))
            rows[number] = row
    if not rows:
        raise UsageError(f"{path.name} has no workload of {definition}.")
    return rows


def _reference(about: _Definition) -> Callable[..., Any]:
    run = in_float64(about.module.run)

    def reference(*args: Any) -> Any:
        with torch.no_grad():
            value = run(*args)
        if isinstance(value, dict):
            value = tuple(value[one.name] for one in about.outputs)
        several = tuple(value) if isinstance(value, tuple | list) else (value,)
        if len(several) != len(about.outputs):
            raise ValueError(f"the reference returned {len(several)} results instead of {len(about.outputs)}")
        tensors = tuple(
            one if isinstance(one, torch.Tensor) else torch.tensor(one, dtype=spec.dtype, device=DEVICE)
            for one, spec in zip(several, about.outputs, strict=True)
        )
        return tensors[0] if len(tensors) == 1 else tensors

    return reference


def _with_own_arguments(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a reference that changes its arguments: it gets copies."""

    def wrapped(*args: Any) -> Any:
        return reference(*map_tensors(torch.clone, args))

    return wrapped


def _cases(
    workloads: Workloads,
    chosen: Sequence[Workload],
    around: Sequence[Workload],
    outputs: Sequence[Spec],
    seed: int,
) -> Iterator[Case]:
    def made(workload: Workload, role: str) -> Case:
        known = workloads.axes.resolved(workload.sizes, "the workload")
        return Case(
            label=f"{workload.label}, seed {seed}",
            args=workloads.arguments(workload, seed),
            role=role,
            outputs=tuple((one.shape_in(known) or (), one.dtype) for one in outputs),
        )

    for workload in chosen:
        yield made(workload, BENCHMARK)
    for workload in around:
        yield made(workload, CONTRACT)


def _tolerance(rules: Mapping[int, Rule], benchmark: str) -> Tolerance | None:
    if not rules:
        return None

    def accepts(results: tuple[Any, ...], expected: tuple[Any, ...], case: Case) -> bool:
        number = int(case.label.split()[1].rstrip(":,"))
        return len(results) == len(expected) and all(
            rules[number].accepts(x, y) for x, y in zip(results, expected, strict=True)
        )

    texts = dict.fromkeys(map(str, rules.values()))
    return Tolerance(f"{benchmark}: {' or '.join(texts)}", accepts)


def _notes(about: _Definition) -> Iterator[str]:
    if others := [name for name in about.record if name not in _READ]:
        yield f"The definition also has {', '.join(others)}, which the verifier ignores."
    for text in about.axes.unknown:
        yield f'The constraint "{text}" isn\'t about axes alone; the axes that it names keep their sizes.'
    if not about.axes.variables:
        yield "The definition has no variable axis, so only the workloads' own shapes are tried."

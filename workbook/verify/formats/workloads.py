"""The workloads of a FlashInfer definition: which can be tried here, and their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from helpers import device
from workbook.usage import UsageError, first_line
from workbook.verify.formats.axes import Axes, Sizes
from workbook.verify.formats.files import field_of, fits_cpu
from workbook.verify.formats.safetensors import Unreadable, tensor_of
from workbook.verify.formats.values import DEVICE, drawn, seed_of, seeded

_MAX_WORKLOADS = 8
_MUCH = 0.05  # the share of its inputs that halving an axis must save
_MAX_PARENTS = 5  # folders above the workload's file in which stored inputs are looked for


@dataclass(frozen=True)
class Spec:
    """An input or output of a definition.

    Attributes:
        name: its name.
        shape: its axes, or None for a number.
        dtype: its dtype.
    """

    name: str
    shape: tuple[str, ...] | None
    dtype: torch.dtype

    def shape_in(self, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
        """Its shape for the sizes of all axes."""
        return None if self.shape is None else tuple(sizes[axis] for axis in self.shape)


@dataclass(frozen=True)
class Workload:
    """Sizes, and where each input comes from.

    Attributes:
        number: its line in the file.
        sizes: the variables' sizes.
        inputs: input -> descriptor, with a "type".
        is_reduced: whether the sizes are smaller than in the file.
    """

    number: int
    sizes: Sizes
    inputs: Mapping[str, Mapping[str, Any]]
    is_reduced: bool = False

    @property
    def label(self) -> str:
        """What reports call it."""
        sizes = ", ".join(f"{name} {size:,}" for name, size in self.sizes.items())
        return f"workload {self.number}: {sizes}" if sizes else f"workload {self.number}"

    def contents(self) -> tuple[Any, ...]:
        """What distinguishes its arguments from those of other workloads."""
        numbers = tuple((name, one.get("value")) for name, one in self.inputs.items())
        is_random = self.types() <= {"random", "scalar"}
        return tuple(self.sizes.items()), numbers, 0 if is_random else self.number

    def types(self) -> set[str]:
        """The types of its inputs."""
        return {str(one.get("type")) for one in self.inputs.values()}


class Workloads:
    """The workloads of one file.

    Attributes:
        axes: the definition's axes.
        notes: sentences about workloads that are left out or reduced.
    """

    def __init__(
        self,
        axes: Axes,
        inputs: Sequence[Spec],
        make_inputs: Callable[..., Any] | None,
        reference: Callable[..., Any],
        path: Path,
        definition: str,
    ) -> None:
        """Use `read` for each line, and then `chosen`.

        Args:
            axes, inputs: the definition's.
            make_inputs: its function for inputs of the type "custom", or None.
            reference: its reference, which may refuse sizes that the definition's constraints admit.
            path: the file.
            definition: the definition's name.
        """
        self.axes, self.notes = axes, []
        self._specs, self._make_inputs, self._reference = inputs, make_inputs, reference
        self._path, self._definition = path, definition

    def read(self, row: Mapping[str, Any], number: int) -> Workload:
        """The workload of a line.

        Raises:
            UsageError: it is malformed.
        """
        where = f"line {number} of {self._path.name}"
        sizes = field_of(row, "axes", dict, where)
        inputs = field_of(row, "inputs", dict, where)
        for name, one in inputs.items():
            if not isinstance(one, dict) or not isinstance(one.get("type"), str):
                raise UsageError(f'Input "{name}" in {where} is {one!r}; it needs a "type".')
        if unknown := inputs.keys() - {one.name for one in self._specs}:
            raise UsageError(f"{where} has inputs that the definition lacks: {', '.join(sorted(unknown))}.")
        self.axes.resolved(sizes, where)
        workload = Workload(number, {name: sizes[name] for name in self.axes.variables}, inputs)
        if not self.axes.admits(workload.sizes):
            raise UsageError(f"The sizes in {where} don't satisfy the definition's constraints.")
        return workload

    def chosen(self, workloads: Mapping[int, Workload]) -> list[Workload]:
        """The workloads that are tried, the smallest first; `notes` says what happened to the others.

        Raises:
            UsageError: the inputs of none of them can be had.
        """
        missing = {number: self._missing(one) for number, one in workloads.items()}
        if all(missing.values()):
            raise UsageError(f"No workload of {self._path.name} can be tried: {next(iter(missing.values()))}")
        self.notes += [f"Workload {n} is left out: {why}" for n, why in missing.items() if why]
        here = {n: self._fitted(one) for n, one in workloads.items() if not missing[n]}
        self._note_sizes(here)
        fitting = {one.contents(): one for one in reversed(here.values()) if one}
        ordered = sorted(fitting.values(), key=lambda one: (self._n_bytes(one.sizes), one.number))
        if len(ordered) > _MAX_WORKLOADS:
            self.notes.append(f"Of {len(ordered)} workloads, {_MAX_WORKLOADS} of different sizes are tried.")
            step = (len(ordered) - 1) / (_MAX_WORKLOADS - 1)
            ordered = [ordered[round(i * step)] for i in range(_MAX_WORKLOADS)]
        return ordered

    def around(self, chosen: Sequence[Workload]) -> list[Workload]:
        """Workloads of other sizes, as the definition admits them.

        They are made from the smallest one whose inputs can be made for other sizes.
        """
        for base in chosen:
            if "safetensors" in base.types():
                continue
            others = [replace(base, sizes=sizes) for _, sizes in self.axes.around(base.sizes)]
            return [one for one in others if self._fits(one.sizes) and not self._is_refused(one)]
        return []

    def arguments(self, workload: Workload, seed: int) -> tuple[Any, ...]:
        """The inputs in the definition's order, with random values that depend on the seed.

        Raises:
            UsageError: a stored input can't be read, or the definition's function fails.
        """
        known = self.axes.resolved(workload.sizes, "the workload")
        made = self._custom(workload, known, seed) if "custom" in workload.types() else {}
        args = []
        for spec in self._specs:
            about = workload.inputs.get(spec.name, {"type": "random"})
            shape = spec.shape_in(known)
            if about["type"] == "custom":
                args.append(made[spec.name])
            elif about["type"] == "scalar":
                args.append(about["value"])
            elif about["type"] == "safetensors":
                args.append(self._stored(spec, about, known).to(DEVICE))
            else:
                value = drawn(shape or (), spec.dtype, seed_of(seed, workload.label, spec.name))
                args.append(value.item() if shape is None else value)
        return tuple(args)

    def _missing(self, workload: Workload) -> str:
        """A sentence about an input that can't be had, or ""."""
        known = self.axes.resolved(workload.sizes, "the workload")
        for spec in self._specs:
            about = workload.inputs.get(spec.name, {"type": "random"})
            kind = about["type"]
            if kind == "safetensors":
                try:
                    self._stored(spec, about, known)
                except UsageError as error:
                    return str(error)
            elif kind == "custom" and self._make_inputs is None:
                return f"its input {spec.name} is custom, but the definition has no custom_inputs_entrypoint."
            elif kind == "scalar" and not isinstance(about.get("value"), int | float):
                return f"its input {spec.name} has no number as its value."
            elif kind not in ("random", "scalar", "custom", "safetensors"):
                return f'its input {spec.name} has the type "{kind}", which the verifier can\'t make.'
        return self._unmade(workload) if self._fits(workload.sizes) else ""

    def _unmade(self, workload: Workload) -> str:
        """A sentence about custom inputs that the definition's function doesn't make, or ""."""
        if "custom" not in workload.types():
            return ""
        try:
            self._custom(workload, self.axes.resolved(workload.sizes, "the workload"), 0)
        except UsageError as error:
            return str(error)
        return ""

    def _is_refused(self, workload: Workload) -> bool:
        """Whether inputs of these sizes can't be made, or the reference fails on them."""
        try:
            self._reference(*self.arguments(workload, 0))
        except Exception:  # whatever a definition's code raises
            return True
        return False

    def _custom(self, workload: Workload, known: Sizes, seed: int) -> Mapping[str, Any]:
        numbers = {k: one["value"] for k, one in workload.inputs.items() if one["type"] == "scalar"}
        try:
            with seeded(seed_of(seed, workload.label)):
                made = self._make_inputs({**known, **numbers}, torch.device(DEVICE))
        except Exception as error:
            says = f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(f"the definition's function for custom inputs failed: {says}.") from error
        for spec in self._specs:
            if workload.inputs.get(spec.name, {}).get("type") != "custom":
                continue
            value, shape = made.get(spec.name) if isinstance(made, dict) else None, spec.shape_in(known)
            right = isinstance(value, int | float) if shape is None else isinstance(value, torch.Tensor)
            if not right or (shape is not None and tuple(value.shape) != shape):
                raise UsageError(f"the definition's function makes no input {spec.name} of shape {shape}.")
        return made

    def _stored(self, spec: Spec, about: Mapping[str, Any], known: Sizes) -> torch.Tensor:
        given, key = Path(str(about.get("path", ""))), str(about.get("tensor_key", ""))
        folders = [self._path.resolve().parent, *self._path.resolve().parents[1:_MAX_PARENTS]]
        path = next((folder / given for folder in folders if (folder / given).is_file()), None)
        if path is None:
            raise UsageError(f"its input {spec.name} is stored in {given}, which isn't here.")
        try:
            tensor = tensor_of(path, key)
        except Unreadable as error:
            raise UsageError(f"its input {spec.name} is stored in {given}, which {error}.") from None
        if tuple(tensor.shape) != spec.shape_in(known) or tensor.dtype != spec.dtype:
            raise UsageError(f"its input {spec.name} in {given} has another shape or dtype than it should.")
        return tensor

    def _n_bytes(self, sizes: Sizes) -> int:
        known = self.axes.resolved(sizes, "the workload")
        shapes = ((one.shape_in(known), one.dtype) for one in self._specs)
        return sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in shapes if shape is not None)

    def _fits(self, sizes: Sizes) -> bool:
        return device.has_gpu() or fits_cpu(self._n_bytes(sizes), is_needed=True)

    def _fitted(self, workload: Workload) -> Workload | None:
        """The workload with sizes that this machine can try, or None."""
        sizes = workload.sizes
        can_change = not device.has_gpu() and "safetensors" not in workload.types()
        while can_change and not fits_cpu(self._n_bytes(sizes), is_needed=False):
            smaller = self._halved(sizes)
            # At sizes that are too large here the reference would run for minutes.
            is_tried = smaller is not None and self._fits(smaller)
            if smaller is None or (is_tried and self._is_refused(replace(workload, sizes=smaller))):
                break
            sizes = smaller
        if not self._fits(sizes):
            return None
        return replace(workload, sizes=sizes, is_reduced=sizes != workload.sizes)

    def _note_sizes(self, here: Mapping[int, Workload | None]) -> None:
        """Note which workloads are too large for a machine without a GPU."""
        reduced = [str(number) for number, one in here.items() if one and one.is_reduced]
        too_large = [str(number) for number, one in here.items() if one is None]
        if reduced:
            self.notes.append(
                f"Without a GPU, smaller sizes are tried for these workloads: {', '.join(reduced)}."
            )
        if too_large:
            self.notes.append(f"Without a GPU, these workloads are too large: {', '.join(too_large)}.")

    def _halved(self, sizes: Sizes) -> Sizes | None:
        """The sizes with the largest axis that can be halved at about half of its size.

        None if that doesn't make the inputs much smaller.
        """
        enough = (1 - _MUCH) * self._n_bytes(sizes)
        for name in sorted(sizes, key=lambda one: -sizes[one]):
            for size in range(sizes[name] // 2, max(0, sizes[name] // 2 - 64), -1):
                one = self.axes.with_size(sizes, name, size)
                if one and self._n_bytes(one) < enough:
                    return one
        return None

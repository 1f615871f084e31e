"""What is verified: a problem with its reference and inputs, and a candidate, in any of the formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_KERNEL = re.compile(r"^\s*(?:import|from)\s+triton\b|__global__", re.M)
# How a case relates to what the benchmark itself tries.
BENCHMARK = "benchmark"  # its shapes and its distribution of values, with a fresh seed
CONTRACT = "contract"  # something else that the problem's description permits: a wrong result counts
BEYOND = "beyond"  # outside the description: a wrong result is a limit of the candidate, not a failure


@dataclass(frozen=True)
class Case:
    """One call's arguments.

    Attributes:
        label: a short description, such as "4 × 393,216, seed 7".
        args: positional arguments: tensors, plain values (numbers, bools, strings, None), and lists, tuples
            or dicts of them.
        role: BENCHMARK, CONTRACT or BEYOND.
        outputs: for a candidate in destination-passing style, what the outputs are: shape and dtype of each.
    """

    label: str
    args: tuple[Any, ...]
    role: str = BENCHMARK
    outputs: tuple[tuple[tuple[int, ...], Any], ...] = ()


@dataclass(frozen=True)
class Tolerance:
    """How the benchmark itself compares results.

    Attributes:
        text: how it is called in reports, such as "torch.allclose(rtol=1e-4, atol=1e-4)".
        accepts: `(results, expected, case) -> bool`, where both are tuples of tensors and `expected` is the
            reference's result in the inputs' dtype.
    """

    text: str
    accepts: Callable[[tuple[Any, ...], tuple[Any, ...], Case], bool]


@dataclass(frozen=True)
class FullSize:
    """A problem at the benchmark's own sizes, if these are too large to send inputs and results.

    Attributes:
        label: the inputs' shapes.
        source: Python code that defines `get_inputs()`.
        reference: as in `Problem`, for these sizes.
        candidate: the candidate with the arguments and parameters for these sizes.
    """

    label: str
    source: str
    reference: Callable[..., Any]
    candidate: Candidate


@dataclass(frozen=True)
class OtherParameters:
    """A reference model with other parameters than a new one has.

    Attributes:
        state: its state_dict.
        reference: as in `Problem`, with these parameters.
        buffers: what its floating-point buffers hold after one call, `(*args) -> name -> tensor`.
        n_parameters: how many numbers its parameters are, without its buffers.
    """

    state: Mapping[str, Any]
    reference: Callable[..., Any]
    buffers: Callable[..., Mapping[str, Any]]
    n_parameters: int


@dataclass(frozen=True)
class Problem:
    """What a candidate must compute.

    Attributes:
        format: "kernelbench", "flashinfer", "gpumode" or "function".
        name: the problem's name.
        reference: the computation in plain PyTorch, `(*case.args) -> tensor or tuple of tensors`. It is also
            called with float64 copies of the floating-point arguments, and computes in float64 then.
        timed: the reference without the copies that it makes of arguments, which would count as its time;
            None if it makes none.
        cases: `seed -> cases`, the smallest BENCHMARK case first; the same seed gives the same cases.
        tolerance: the benchmark's own comparison, or None if it has none.
        precision: as in `check.assert_matches`: "tf32" if the problem permits TF32, "ieee" if it doesn't, or
            None.
        may_change: numbers of the argument tensors, in the order of `arguments.tensors_of`, that the contract
            lets the candidate change. If the reference returns None, its results are what these hold
            afterwards.
        unread: those of them whose contents don't matter to the reference, because they are for results.
        dtypes: number of a result -> other dtypes that it may have, those of such tensors.
        reseeded: for models with random parameters: `seed -> a new model, made with another seed`.
        with_parameters: for models with parameters: `(seed, alike, only_constants) -> the model with other
            parameters`, or None if none would change. If `alike`, those that are equal in a new model stay
            equal. If `only_constants`, random ones stay what they are.
        with_larger_parameters: the model with parameters three times as large, or None if it has none.
        with_constants: the model with other constants, by `models.other_constants`, or None if it has none.
        own_seed: the seed with which the benchmark always makes its model, if there is one.
        own_cases: the cases with the inputs that the benchmark itself always makes, if it does.
        keeps_state: whether a result of the reference depends on earlier calls.
        returns_state: whether a result of the reference is in the memory of its model.
        is_reduced: whether the benchmark's sizes are larger than those of the cases.
        full_size: what is timed instead of the cases, if these have been made smaller.
        notes: sentences about what the files contain and we ignore, or how we read them.
    """

    format: str
    name: str
    reference: Callable[..., Any]
    cases: Callable[[int], Iterable[Case]]
    tolerance: Tolerance | None = None
    precision: str | None = None
    may_change: frozenset[int] = frozenset()
    unread: frozenset[int] = frozenset()
    dtypes: Mapping[int, frozenset[Any]] = field(default_factory=dict)
    timed: Callable[..., Any] | None = None
    reseeded: Callable[[int], OtherParameters] | None = None
    with_parameters: Callable[[int, bool, bool], OtherParameters | None] | None = None
    with_larger_parameters: Callable[[], OtherParameters | None] | None = None
    with_constants: Callable[[], OtherParameters | None] | None = None
    own_seed: int | None = None
    own_cases: Callable[[], Iterable[Case]] = tuple
    keeps_state: bool = False
    returns_state: bool = False
    is_reduced: bool = False
    full_size: FullSize | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """The code under suspicion. It is only ever run in a process of its own.

    Attributes:
        name: what reports call it, such as "candidate.py".
        sources: file name -> text; the files are written into one folder, from which Python can import.
        entry: "file.py::name", where `name` is the function or class to call. For C++ or CUDA sources the
            file is the first one with that suffix.
        kind: "function": call it with the arguments. "model": call it with `init` first, then the instance
            with the arguments. "destination": call it with the arguments followed by output tensors.
        init, init_keywords: the arguments of a model's constructor.
        state: the reference model's state_dict; empty if there is none. A candidate that isn't right when it
            is constructed with the same seed gets it, if the names and shapes match.
        seed: what `torch.manual_seed` gets before a model is constructed.
        options: build options, such as {"extra_cuda_cflags": [...]}.
        given: those of its files that come from the benchmark, such as GPU MODE's `utils.py`.
        results: the names of the results, if the format lets a candidate return them as a dict; it may then
            also return numbers instead of tensors without dimensions.
    """

    name: str
    sources: Mapping[str, str]
    entry: str
    kind: str = "function"
    init: tuple[Any, ...] = ()
    init_keywords: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    results: tuple[str, ...] = ()

    @property
    def has_kernels(self) -> bool:
        """Whether a source imports Triton or defines a CUDA kernel."""
        return any(_KERNEL.search(text) for text in self.sources.values())

"""Turns any function with launch parameters into a `Space`, for `explore(my_kernel, …)`.

The function takes x and its launch parameters and returns a new tensor. It may launch whatever it likes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.widgets import compiled
from helpers.widgets.space import N_ROWS, Candidate, Refused, Space, require_position

N_COLS = (256, 1024, 4096, 8192)
DTYPES = ("float32", "bfloat16")
_SIZES = ("n_cols", "dtype")
_KEPT = "__workbook_axes__"
_TOOLS = ("JITFunction", "InterpretedFunction", "Autotuner", "Heuristics", "LoadedKernel")


def explorable(**axes: Iterable[Any]) -> Callable[[Callable], Callable]:
    """Stores the sliders with a function, so that `explore(square, against=torch.square)` is enough::

        @widgets.explorable(BLOCK_SIZE=[256, 1024, 4096], num_warps=[1, 4, 8])
        def square(x, BLOCK_SIZE, num_warps):
            ...

    Args:
        **axes: each launch parameter with its values; also `n_cols` and `dtype`, if you want other values
            than the default ones.
    """

    def keep(function: Callable) -> Callable:
        setattr(function, _KEPT, axes)
        return function

    return keep


@dataclass(frozen=True)
class Asked:
    """The arguments of `explore` other than the function and its sliders."""

    against: Any = None
    reference: Callable | None = None
    make_inputs: Callable | None = None
    n_rows: int | None = None
    n_elements: int | None = None
    n_bytes: float | Callable = 2
    n_flops: Callable | None = None
    tolerance: tuple[float, float] | None = None


def own_space(function: Callable, asked: Asked, keywords: Mapping[str, Any]) -> Own:
    """The space of a function, and the sliders' first positions.

    Args:
        function: `function(x, **launch parameters)` returns a new tensor.
        asked: the other arguments.
        keywords: a list for each slider; a value that isn't a list is a slider's first position.

    Raises:
        ValueError: something is missing, unknown or empty; the message says what to pass instead.
    """
    name = _named(function)
    kept = getattr(function, _KEPT, {})
    lists = {axis: value for axis, value in keywords.items() if _is_list(value)}
    start = {axis: value for axis, value in keywords.items() if not _is_list(value)}
    axes = _axes(function, name, {**kept, **lists}, start, several_inputs=asked.make_inputs is not None)
    rivals = _rivals(asked.against, taken=name)
    reference = _reference(asked.reference, rivals)
    launch = [axis for axis in axes if axis not in _SIZES]
    if asked.n_rows is not None and asked.n_elements is not None:
        raise ValueError("Pass n_rows or n_elements, not both: n_cols and one of them determine the other.")
    if asked.n_flops is not None and not callable(asked.n_flops):
        raise ValueError(
            f"n_flops is {asked.n_flops!r}; pass a function of the inputs that returns how many operations "
            "they take."
        )
    if asked.n_flops is not None and asked.n_bytes != Asked.n_bytes:
        raise ValueError("Pass n_bytes or n_flops, not both: bars show GB/s or TFLOP/s.")
    called = Called(name, function, rivals, reference, asked, tuple(launch))
    space = Space(
        name=name,
        x=launch[1] if len(launch) > 1 else "n_cols",
        y=launch[0],
        axes=axes,
        mapped=(name,),
        rivals=tuple(rivals),
        start={axis: _first(axis, values) for axis, values in axes.items()},
        candidates=called.candidate,
        sources=lambda: [function],
        operation=name,
        n_elements=asked.n_elements,
        n_rows=asked.n_rows or (N_ROWS if asked.n_flops is None else None),
        n_bytes=asked.n_bytes,
        n_flops=asked.n_flops,
        launching=called.launching,
    )
    for axis, value in start.items():
        position = _dtype(value) if axis == "dtype" else value
        require_position(axis, position, axes[axis])
        start[axis] = position
    return Own(space, start, called)


@dataclass(frozen=True)
class Own:
    """The space of a function, the first positions that the caller chose, and how the function is called."""

    space: Space
    start: Mapping[str, Any]
    called: Called

    def require_result(self) -> None:
        """Raise ValueError if the function has been called and didn't return a tensor."""
        import torch

        for kind in self.called.returned - {torch.Tensor, torch.nn.Parameter}:
            what = "nothing" if kind is type(None) else f"a {kind.__name__}"
            raise ValueError(
                f"{self.space.name} returned {what}: it must return the new tensor that its kernel fills."
            )


@dataclass(frozen=True)
class Called:
    """The function, what it is compared with, and how both are called at a point."""

    name: str
    function: Callable
    rivals: Mapping[str, Callable]
    reference: Callable
    asked: Asked
    parameters: tuple[str, ...]
    returned: set[type] = field(default_factory=set)

    def candidate(self, kernel: str, point: Mapping[str, Any]) -> Candidate:
        """The function, or what it is compared with, at a point."""
        function = self.rivals.get(kernel)
        if function is None:
            given = {name: point[name] for name in self.parameters}
            run = functools.partial(self._at, given)
        else:
            # Not wrapped: inside another function, the check would make PyTorch run compiled code eagerly.
            run = function
            if hasattr(function, "_torchdynamo_orig_callable"):
                _many_shapes()
                compiled.refuse_eager(point["dtype"])
        facts = functools.partial(compiled.run_facts, run, loop=self.asked.n_flops is not None)
        return Candidate(run, self.reference, facts, self.asked.make_inputs, self.asked.tolerance)

    def launching(self) -> tuple[str, dict[str, str]]:
        """Python code that creates `candidates` in another process, and a file with the notebook's functions.

        Raises:
            ValueError: a function can't be sent to another process; the message says what to do.
        """
        from helpers.ncu.magic import COMPANION, bring

        namespace: dict[str, Any] = {}
        function = _written(self.function, namespace)
        rivals = ", ".join(f"{name!r}: {_written(one, namespace)}" for name, one in self.rivals.items())
        make_inputs = self.asked.make_inputs and _written(self.asked.make_inputs, namespace)
        code = (
            "import torch\nfrom helpers.widgets.own import Asked, Called\n\n"
            f"candidates = Called(\n    {self.name!r}, {function}, {{{rivals}}}, {function}, "
            f"Asked(make_inputs={make_inputs}),"
            f" {self.parameters!r}\n).candidate\n"
        )
        brought = bring(code, namespace)
        first = (
            f"from {COMPANION.removesuffix('.py')} import {', '.join(brought.names)}\n"
            if brought.names
            else ""
        )
        return first + code, {COMPANION: brought.text}

    def _at(self, given: Mapping[str, Any], *inputs: Any) -> Any:
        from helpers import ptx

        try:
            result = self.function(*inputs, **given)
        except Exception as error:
            if type(error).__name__ == "CompilationError":
                raise Refused(ptx.error_summary(error)) from error
            raise
        self.returned.add(type(result))
        return result


def _written(function: Any, namespace: dict[str, Any]) -> str:
    """An expression for a function in another process; the names that it needs are added to the namespace.

    A compiled function is compiled there with torch.compile's defaults.
    """
    original = getattr(function, "_torchdynamo_orig_callable", None)
    if original is not None:
        return f"torch.compile({_written(original, namespace)})"
    label, name = _label(function), getattr(function, "__name__", "")
    if label.startswith(("torch.", "F.")):
        return label.replace("F.", "torch.nn.functional.", 1) if label.startswith("F.") else label
    around = getattr(function, "__globals__", {})
    if around.get(name) is not function:
        raise ValueError(
            f"Nsight Compute launches {label} in another process, so it has to be defined at the top level "
            "of the notebook: write it with `def` outside of any other function."
        )
    namespace |= around
    return name


def _many_shapes() -> None:
    """Let torch.compile compile for every shape of the sliders; past its limit, it silently runs eagerly."""
    import torch

    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def _named(function: Any) -> str:
    """A function's name. Raises ValueError for anything that `explore` can't call."""
    kind = type(function).__name__
    name = getattr(function, "__name__", None) or getattr(function, "name", None)
    if kind in _TOOLS:
        a_kernel = "loaded CUDA kernel" if kind == "LoadedKernel" else "Triton kernel"
        raise ValueError(
            f"{name or 'This'} is a {a_kernel}: pass the function that launches it, which takes x and "
            "the launch parameters and returns a new tensor: "
            "`def square(x, BLOCK_SIZE, num_warps): ... return y`."
        )
    if not callable(function):
        raise ValueError(f"explore() takes a function, a name or a Space, and {function!r} is none of them.")
    return "yours" if name in (None, "<lambda>") else name


def _axes(
    function: Callable,
    name: str,
    lists: Mapping[str, Iterable],
    start: Mapping[str, Any],
    several_inputs: bool,
) -> dict[str, tuple]:
    """The sliders with their values, launch parameters first."""
    axes = {axis: tuple(dict.fromkeys(values)) for axis, values in lists.items()}
    for axis, values in axes.items():
        if not values:
            raise ValueError(f"{axis} has no values; pass a list of at least one.")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):  # the signatures of torch's own functions aren't known to Python
        parameters = []
    any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = [p.name for p in parameters[1:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for axis in (*axes, *start):
        if axis not in known and axis not in _SIZES and not any_name:
            has = f"it has {', '.join(known)}" if known else "it has none besides x"
            raise ValueError(f"{name} has no launch parameter {axis!r}; {has}.")
        if axis not in axes and axis not in _SIZES:
            raise ValueError(
                f"{axis}={start[axis]!r} is one value; a slider needs a list: {axis}=[{start[axis]!r}, …]."
            )
    for p in parameters[1:]:
        if p.name in known and p.default is p.empty and p.name not in axes and not several_inputs:
            raise ValueError(
                f"{name} needs {p.name}. If it is a launch parameter, pass its slider's values as a list: "
                f"{p.name}=[…]. If it is another tensor, pass make_inputs=…, a function that returns all "
                "input tensors."
            )
    launch = {axis: values for axis, values in axes.items() if axis not in _SIZES}
    if not launch:
        raise ValueError(
            f"{name} has no launch parameter with a slider: pass a list for one, such as num_warps=[1, 4, 8]."
        )
    n_cols, dtypes = axes.get("n_cols", N_COLS), axes.get("dtype", DTYPES)
    for n in n_cols:
        if type(n) is not int or n < 1:
            raise ValueError(f"n_cols has the value {n!r}; columns are whole numbers above 0.")
    return {**launch, "n_cols": n_cols, "dtype": tuple(dict.fromkeys(map(_dtype, dtypes)))}


def _dtype(given: Any) -> str:
    """A dtype's name: "bfloat16" from it or from torch.bfloat16."""
    import torch

    name = str(given).removeprefix("torch.")
    if not isinstance(getattr(torch, name, None), torch.dtype):
        raise ValueError(
            f"dtype has the value {given!r}; write torch's names, such as 'float32' or 'bfloat16'."
        )
    return name


def _first(axis: str, values: Sequence[Any]) -> Any:
    """A slider's first position: at most 4,096 columns, the first dtype, the middle of any other list."""
    if axis == "dtype":
        return values[0]
    if axis == "n_cols":
        return max((n for n in values if n <= N_COLS[2]), default=min(values))
    return values[len(values) // 2]


def _rivals(against: Any, taken: str) -> dict[str, Callable]:
    """What the function is compared with, by name."""
    if against is None:
        return {}
    if isinstance(against, Mapping):
        named = list(against.items())
    else:
        named = [(_label(one), one) for one in (against if _is_list(against) else [against])]
    rivals: dict[str, Callable] = {}
    for name, function in named:
        if not callable(function):
            raise ValueError(f"against contains {function!r}, which is not a function of x.")
        again = 2
        unique = name
        while unique in rivals or unique == taken:
            unique, again = f"{name} ({again})", again + 1
        rivals[unique] = function
    return rivals


def _label(function: Any) -> str:
    """A function's name in the figure, such as torch.square or torch.compile(square)."""
    import torch

    original = getattr(function, "_torchdynamo_orig_callable", None)
    if original is not None:
        return f"torch.compile({_label(original).removeprefix('torch.')})"
    name = getattr(function, "__name__", None) or type(function).__name__
    for module, prefix in ((torch, "torch"), (torch.nn.functional, "F")):
        if getattr(module, name, None) is function:
            return f"{prefix}.{name}"
    return "rival" if name == "<lambda>" else name


def _reference(given: Callable | None, rivals: Mapping[str, Callable]) -> Callable:
    """What the function must compute."""
    if given is not None:
        if not callable(given):
            raise ValueError(f"reference is {given!r}; pass a function of x, such as torch.square.")
        return given
    if len(rivals) != 1:
        why = f"against has {len(rivals)} functions" if rivals else "against is empty"
        raise ValueError(
            f"reference is missing, and {why}: pass the correct result, such as reference=torch.square."
        )
    (only,) = rivals.values()
    return getattr(only, "_torchdynamo_orig_callable", None) or only

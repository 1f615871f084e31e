"""Records which kernels a call launches, and compiles them for this GPU or another."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.ptx.artifacts import CompileError, Stages
from helpers.ptx.compile import cuda_stages, from_compiled, interpreted, parse_target, stages_as_launched

_POINTER_TYPES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "bool": "i1",
    **{f"{'u' * unsigned}int{n}": f"{'iu'[unsigned]}{n}" for n in (8, 16, 32, 64) for unsigned in (0, 1)},
}


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: a `@triton.jit` function or a `helpers.cuda.LoadedKernel`.
        grid: the number of blocks (programs) along x, y and z.
        block: threads per block along x, y and z; None for Triton, where `num_warps` decides.
        shared_bytes: dynamic shared memory requested by a CUDA launch.
        arguments: a Triton kernel's arguments by name, including constexprs.
        options: Triton's options, such as `num_warps`.
        compiled: the compiled kernel that ran; None if it wasn't compiled for this machine.
    """

    kernel: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int] | None = None
    shared_bytes: int = 0
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    compiled: Any = field(default=None, repr=False)

    @property
    def n_blocks(self) -> int:
        """The total number of blocks (programs)."""
        return math.prod(self.grid)

    def stages(self, target: str | int) -> Stages:
        """Returns the kernel as it ran or, if it wasn't compiled, as it would be compiled for `target`.

        Raises:
            CompileError: it doesn't compile, or the type of an argument can't be determined from outside.
            helpers.cuda.BuildError: the CUDA source doesn't compile.
        """
        if self.compiled is not None:
            return from_compiled(self.kernel, self.compiled)
        if self.block is not None:
            kernel = self.kernel
            return cuda_stages(kernel.source, target=target, flags=kernel.flags, kernel=kernel.name)
        return stages_as_launched(self.kernel, self._request(parse_target(target)))

    def threads(self, stages: Stages) -> int:
        """Threads per block."""
        return 32 * stages.num_warps if self.block is None else math.prod(self.block)

    def _request(self, capability: int) -> dict[str, Any]:
        """How Triton specializes this launch (`specialize_impl` in triton/runtime/jit.py), for
        `isolated.compile_here`.
        """
        names = list(self.arguments)
        signature: dict[str, Any] = {}
        specialization = _Specialization({}, [])
        plain = _unspecialized(self.kernel, names)
        constexprs = _constexprs(self.kernel)
        for i, (name, value) in enumerate(self.arguments.items()):
            if name in constexprs:
                signature[name], specialization.constants[(i,)] = "constexpr", getattr(value, "value", value)
            else:
                signature[name] = specialization.type_of(value, (i,), specialize=name not in plain, what=name)
        return {
            "signature": signature,
            "constexprs": specialization.constants,
            "divisible": specialization.divisible,
            "capability": capability,
            "options": _options(self.options),
        }


@dataclass(frozen=True)
class _Specialization:
    """What the compiler may know of a launch's arguments, by their paths."""

    constants: dict[tuple[int, ...], Any]
    divisible: list[tuple[int, ...]]

    def type_of(self, value: Any, path: tuple[int, ...], *, specialize: bool, what: str) -> Any:
        """The type of an argument; records what the compiler may assume about its value."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        if value is None or (specialize and type(value) is int and value == 1):
            self.constants[path] = value
            return "constexpr"
        if isinstance(value, bool):
            return "u1"
        if isinstance(value, int):
            if specialize and value % 16 == 0:
                self.divisible.append(path)
            return "i32" if -(2**31) <= value < 2**31 else "u64" if value >= 2**63 else "i64"
        if isinstance(value, float):
            return "fp32"
        if isinstance(value, tuple):
            parts = enumerate(value)
            return tuple(
                self.type_of(v, (*path, i), specialize=specialize, what=f"{what}[{i}]") for i, v in parts
            )
        if isinstance(value, TensorDescriptor):
            element = self.type_of(value.base, path, specialize=False, what=what).removeprefix("*")
            return f"tensordesc<{element}{list(value.block_shape)}>"
        pointer_type = _POINTER_TYPES.get(str(getattr(value, "dtype", "")).removeprefix("torch."))
        if pointer_type is None or not hasattr(value, "data_ptr"):
            raise CompileError(
                f"{what} is a {type(value).__name__}, and for such an argument nothing compiles here."
            )
        if specialize and value.data_ptr() % 16 == 0:
            self.divisible.append(path)
        return f"*{pointer_type}"


def _constexprs(kernel: Any) -> set[str]:
    """The names of a Triton kernel's constexpr arguments."""
    hints = {**kernel.fn.__annotations__}
    return {name for name, hint in hints.items() if "constexpr" in str(getattr(hint, "__name__", hint))}


def _unspecialized(kernel: Any, names: Sequence[str]) -> set[str]:
    """The arguments that `@triton.jit(do_not_specialize=…)` names, by name or number."""
    given = getattr(kernel, "do_not_specialize", None) or getattr(kernel, "kwargs", {}).get(
        "do_not_specialize"
    )
    return {names[one] if isinstance(one, int) else one for one in given or ()}


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Triton's compile options of a launch, with those that a launch of this process would have by itself."""
    import triton
    from triton.backends.nvidia.compiler import CUDAOptions

    known = {f.name for f in dataclasses.fields(CUDAOptions)} - {"arch", "backend_name"}
    fusion = {"enable_fp_fusion": triton.knobs.language.default_fp_fusion}
    return {"num_warps": 4, **fusion, **{name: value for name, value in given.items() if name in known}}


@contextlib.contextmanager
def launches(*, run: bool = True) -> Iterator[list[Launch]]:
    """Records every launch of a Triton kernel or `helpers.cuda.LoadedKernel` while it is active.

    On CPU tensors a Triton kernel runs in Triton's interpreter, even if it was defined for the compiler. A
    kernel that calls other `@triton.jit` functions, such as `tl.sum`, needs TRITON_INTERPRET=1 for that.

    Args:
        run: False prevents the kernels from running; their outputs stay unchanged.
    """
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    from helpers import device
    from helpers.cuda import kernel as cuda_kernel

    recorded: list[Launch] = []
    run_compiled, run_interpreted = JITFunction.run, InterpretedFunction.run
    on_gpu = device.has_gpu()

    def record_launch(kernel: Any, args: tuple, grid: Any, given: dict, compiled: Any = None) -> None:
        names = kernel.arg_names
        named = {**dict(zip(names, args, strict=False)), **{n: v for n, v in given.items() if n in names}}
        defaults = _defaults(kernel)
        arguments = {n: named.get(n, defaults.get(n)) for n in names}
        options = {n: v for n, v in given.items() if n not in names}
        size = grid(arguments) if callable(grid) else grid
        recorded.append(Launch(kernel, (*size, *(1,) * (3 - len(size))), arguments=arguments, options=options,
                           compiled=compiled))  # fmt: skip

    def compiled(self, *args, grid, warmup=False, **given):
        if warmup or (run and on_gpu):
            compiled_kernel = run_compiled(self, *args, grid=grid, warmup=warmup, **given)
            if not warmup:
                record_launch(self, args, grid, given, compiled_kernel)
            return compiled_kernel
        record_launch(self, args, grid, given)
        if run:
            run_interpreted(interpreted(self), *args, grid=grid, warmup=False, **given)
        return None

    def in_interpreter(self, *args, grid, warmup=False, **given):
        if not warmup:
            record_launch(self, args, grid, given)
        if run:
            run_interpreted(self, *args, grid=grid, warmup=warmup, **given)

    def loaded(kernel: Any, grid: tuple, block: tuple, shared_bytes: int) -> bool:
        recorded.append(Launch(kernel, grid, block, shared_bytes))
        return run

    JITFunction.run, InterpretedFunction.run = compiled, in_interpreter
    try:
        with cuda_kernel.watched(loaded):
            yield recorded
    finally:
        JITFunction.run, InterpretedFunction.run = run_compiled, run_interpreted


def _defaults(kernel: Any) -> dict[str, Any]:
    parameters = inspect.signature(kernel.fn).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}

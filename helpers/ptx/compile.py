"""Compile Triton kernels and CUDA C++ for a target, with all intermediate stages.

In a process with `TRITON_INTERPRET=1`, kernels are `InterpretedFunction`s, which Triton cannot compile. In
that case `stages` compiles in a second Python process without that variable, from the kernel's source and the
globals that it uses (see `helpers.ptx.isolated`).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from helpers.ptx import isolated
from helpers.ptx.artifacts import CompileError, Stages, facts, plain_name
from helpers.ptx.read import entries

if TYPE_CHECKING:
    import pandas as pd

TARGETS = (75, 80, 86, 87, 89, 90, 100, 103, 120, 121)
_TYPES = re.compile(r"(\*?(fp16|bf16|fp32|fp64|fp8\w+|i1|[iu](8|16|32|64))|tensordesc<\w+\[\d+(, ?\d+)*\]>)$")


def parse_target(target: str | int) -> int:
    """Returns the compute capability of a target: 90 for "sm_90", "90" or 90.

    Raises:
        ValueError: this release does not compile for the target.
    """
    match = re.fullmatch(r"(?:sm_)?(\d+)[af]?", str(target))
    if match is None or int(match[1]) not in TARGETS:
        known = ", ".join(f"sm_{n}" for n in TARGETS)
        raise ValueError(f"There is no target {target!r} here; choose from {known}.")
    return int(match[1])


_cache: dict[Any, Stages] = {}


def ASTSource(
    fn: Any, signature: dict[str, str], constexprs: dict[str, Any] | None = None, attrs: dict | None = None
) -> Any:
    """Returns Triton's `triton.compiler.ASTSource`, also for a kernel that was defined for the interpreter.

    If this process uses the interpreter, the kernel must not call other `@triton.jit` functions, including
    those of Triton's library such as `tl.max`, because they were defined for the interpreter too. Use
    `stages` for such kernels.
    """
    import triton
    from triton.compiler import ASTSource as TritonASTSource

    kernel = triton.JITFunction(fn.fn) if type(fn).__name__ == "InterpretedFunction" else fn
    return TritonASTSource(fn=kernel, signature=signature, constexprs=constexprs, attrs=attrs)


def stages(
    kernel: Any,
    *,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any] | None = None,
    target: str | int = "sm_90",
    num_warps: int = 4,
    num_stages: int | None = None,
    divisible_by_16: Sequence[str] | None = None,
    **options: Any,
) -> Stages:
    """Compiles a Triton kernel for a target and returns all stages.

    The first compilation in a process takes one or two seconds and later ones about 0.1 s. A repeated one is
    cached and takes no time.

    Args:
        kernel: a `@triton.jit` function; it may be wrapped for autotuning or defined for the interpreter.
        signature: the type of each run-time argument, such as `{"x_ptr": "*fp32", "n": "i32"}`. A tensor
            descriptor's type contains the size of its tiles: `"tensordesc<bf16[128, 64]>"`.
        constexprs: the value of each `tl.constexpr` argument.
        target: "sm_90" or 90; see `TARGETS`.
        num_warps: warps per block: 1, 2, 4, 8, 16 or 32.
        num_stages: the depth of software pipelining, or None for Triton's default.
        divisible_by_16: the arguments that the compiler may assume to be multiples of 16 (for pointers, 16
            bytes). For a launch, Triton inspects the actual values. None means all pointers, because PyTorch
            aligns its allocations, and no integers; `()` means no arguments.
        **options: any other compile option of Triton, such as `maxnreg=32` or `enable_fp_fusion=False`. The
            default of `enable_fp_fusion`, which combines a product and a sum into one `fma`, is the same as
            for launches in this process: Triton's knob `TRITON_DEFAULT_FP_FUSION`, set by `device.prepare`.

    Returns:
        A `Stages`, whose SASS and resource usage are read on first access.

    Raises:
        ValueError: this is not a Triton kernel, a target, argument, type or option is unknown, or an argument
            is missing.
        CompileError: the kernel does not compile.

    Example:
        >>> from helpers import ptx
        >>> from helpers.kernels.square import square_rows_kernel
        >>> types = dict.fromkeys(["output_ptr", "input_ptr"], "*fp32")
        >>> types |= dict.fromkeys(["input_row_stride", "output_row_stride", "n_cols"], "i32")
        >>> sizes = {"BLOCK_SIZE": 1024}
        >>> made = ptx.stages(square_rows_kernel, signature=types, constexprs=sizes, target="sm_90")
        >>> made.num_warps, len(made.reading.loads), made.shared_bytes
        (4, 8, 0)
    """
    kernel = _unwrap(kernel)
    function, arguments = kernel.fn, list(inspect.signature(kernel.fn).parameters)
    capability = parse_target(target)
    constexprs = dict(constexprs or {})
    signature = _check_signature(function, arguments, signature, constexprs)
    if divisible_by_16 is None:
        divisible_by_16 = [name for name, kind in signature.items() if kind.startswith("*")]
    if unknown := [name for name in divisible_by_16 if name not in signature]:
        raise ValueError(
            f"divisible_by_16 names {unknown[0]!r}, which is not a run-time argument of {function.__name__}; "
            f"it has {', '.join(signature)}."
        )
    options = _check_options(num_warps, num_stages, options)
    key = (
        *(_identity(kernel), function.__code__.co_filename),
        *(tuple(sorted(d.items())) for d in (signature, constexprs, options)),
        *(capability, tuple(sorted(divisible_by_16))),
    )
    if key not in _cache:
        request = {
            "signature": {n: signature.get(n, "constexpr") for n in arguments},
            "constexprs": constexprs,
            "divisible": [(arguments.index(name),) for name in divisible_by_16],
            "capability": capability,
            "options": options,
        }
        _cache[key] = _compile_anywhere(kernel, request)
    return _cache[key]


def stages_as_launched(kernel: Any, request: Mapping[str, Any]) -> Stages:
    """Compiles a Triton kernel with the specialization that Triton would use for a launch.

    Args:
        kernel: a `@triton.jit` function; it may have been defined for the interpreter.
        request: see `isolated.compile_here`.

    Raises:
        CompileError: the kernel does not compile.
    """
    kernel = _unwrap(kernel)
    key = (_identity(kernel), kernel.fn.__code__.co_filename, repr(request))
    if key not in _cache:
        _cache[key] = _compile_anywhere(kernel, request)
    return _cache[key]


def _unwrap(kernel: Any) -> Any:
    """Returns the Triton kernel without its wrappers for autotuning or heuristics."""
    while not _is_kernel(kernel) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    if not _is_kernel(kernel):
        raise ValueError(
            f"stages() takes a @triton.jit function, and {getattr(kernel, '__name__', kernel)!r} is a "
            f"{type(kernel).__name__}; for CUDA C++ use cuda_stages()."
        )
    return kernel


def _identity(kernel: Any) -> str:
    """Returns a key that changes if the kernel's source, or a global that it uses, changes."""
    if type(kernel).__name__ == "JITFunction":
        return kernel.cache_key
    return repr(isolated.describe(kernel.fn, {}))


def _is_kernel(kernel: Any) -> bool:
    return type(kernel).__name__ in ("JITFunction", "InterpretedFunction")


def _check_signature(function, arguments, signature, constexprs) -> dict[str, str]:
    name = function.__name__
    for argument in [*signature, *constexprs]:
        if argument not in arguments:
            raise ValueError(f"{name} has no argument {argument!r}; it has {', '.join(arguments)}.")
    for argument, kind in signature.items():
        if argument in constexprs:
            raise ValueError(
                f"{argument!r} of {name} is both in signature and in constexprs; remove it from one of them."
            )
        if not _TYPES.match(str(kind)):
            raise ValueError(
                f"{argument!r} of {name} has the type {kind!r}, which Triton does not know; "
                "use a type such as fp32, bf16 or i32, with a * in front for a pointer."
            )
    for argument, parameter in inspect.signature(function).parameters.items():
        if argument not in signature and argument not in constexprs:
            where = "constexprs" if "constexpr" in str(parameter.annotation) else "signature"
            raise ValueError(f"{argument!r} of {name} is missing; add it to {where}.")
    return {argument: str(signature[argument]) for argument in arguments if argument in signature}


def _check_options(num_warps: int, num_stages: int | None, options: dict[str, Any]) -> dict[str, Any]:
    import triton
    from triton.backends.nvidia.compiler import CUDAOptions

    if num_warps not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"num_warps is {num_warps!r}; a block has 1, 2, 4, 8, 16 or 32 warps.")
    known = {f.name for f in dataclasses.fields(CUDAOptions)} - {"arch", "backend_name"}
    if unknown := [name for name in options if name not in known]:
        raise ValueError(f"Triton has no compile option {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    # Set explicitly, because Triton 3.9 warns if it uses its default, which is on there and off in 3.10.
    named = {"num_warps": num_warps, "enable_fp_fusion": triton.knobs.language.default_fp_fusion}
    return {**named, **({} if num_stages is None else {"num_stages": num_stages}), **options}


def _compile_anywhere(kernel: Any, request: Mapping[str, Any]) -> Stages:
    """Compiles in this process, or in a second one if the kernel was defined for the interpreter."""
    target = f"sm_{request['capability']}"
    if type(kernel).__name__ == "InterpretedFunction":
        result = isolated.compile_in_subprocess(kernel.fn, request)
    else:
        result = isolated.compile_here(kernel, request)
    if "error" in result:
        raise CompileError(f"{kernel.fn.__name__} does not compile for {target}: {result['error']}")
    return _triton_stages(kernel.fn, target, result)


def _triton_stages(function: Any, target: str, result: dict[str, Any]) -> Stages:
    lines, first = inspect.getsourcelines(function)
    asm, metadata = result["asm"], result["metadata"]
    return Stages(
        kernel=metadata["name"],
        language="triton",
        target=target,
        num_warps=metadata["num_warps"],
        source="".join(lines).rstrip() + "\n",
        first_line=first,
        ttir=asm["ttir"],
        ttgir=asm["ttgir"],
        llir=asm["llir"],
        ptx=asm["ptx"],
        cubin=asm["cubin"],
        metadata=MappingProxyType(metadata),
    )


def from_compiled(kernel: Any, compiled: Any) -> Stages:
    """Returns the stages of a kernel that a launch compiled on this GPU: `compiled = kernel[grid](...)`.

    Args:
        kernel: the `@triton.jit` function.
        compiled: the return value of the launch.
    """
    result = isolated.plain(compiled)
    return _triton_stages(_unwrap(kernel).fn, f"sm_{result['capability']}", result)


def cuda_stages(
    source: str, *, target: str | int = "sm_90", flags: Sequence[str] = (), kernel: str | None = None
) -> Stages:
    """Compiles CUDA C++ for a target with NVRTC, which needs neither nvcc nor a GPU.

    Args:
        source: CUDA C++ with a `__global__` function; NVRTC supports neither host code nor host headers.
        target: see `stages`.
        flags: NVRTC options, such as "--use_fast_math". Unless they contain `-G`, `-lineinfo` is added, which
            provides the line numbers for matching source and PTX.
        kernel: the name of the kernel, mangled or not, if the source has several.

    Raises:
        ValueError: the target is unknown, or the source has no kernel, no kernel of this name, or several
            kernels while `kernel` is None.
        helpers.cuda.BuildError: the source does not compile.

    Example:
        >>> from helpers import ptx
        >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
        >>> made = ptx.cuda_stages(text, target="sm_90")
        >>> made.name, "FMUL" in made.sass or "FADD" in made.sass
        ('twice', True)
    """
    from helpers import cuda

    capability = parse_target(target)
    key = ("cuda", source, capability, tuple(flags), kernel)
    if key not in _cache:
        debug = any(flag in ("-G", "--device-debug") for flag in flags)
        options = {"target": f"sm_{capability}", "flags": (*flags, *(() if debug else ("-lineinfo",)))}
        text = cuda.compile_ptx(source, **options)
        _cache[key] = Stages(
            kernel=_choose(entries(text), kernel),
            language="cuda",
            target=f"sm_{capability}",
            num_warps=None,
            source=source,
            first_line=1,
            ttir=None,
            ttgir=None,
            llir=None,
            ptx=text,
            cubin=cuda.compile_cubin(source, **options),
            metadata=MappingProxyType({"flags": tuple(flags)}),
        )
    return _cache[key]


def _choose(names: list[str], kernel: str | None) -> str:
    if not names:
        raise ValueError(
            "This CUDA source has no kernel: mark a function __global__ (a template must be instantiated)."
        )
    if kernel is None:
        if len(names) > 1:
            raise ValueError(
                f"This CUDA source has {len(names)} kernels ({', '.join(names)}): name one with kernel=..."
            )
        return names[0]
    mangled = [name for name in names if kernel in (name, plain_name(name))]
    if not mangled:
        raise ValueError(f"This CUDA source has no kernel {kernel!r}; it has {', '.join(names)}.")
    return mangled[0]


def interpreted(kernel: Any) -> Any:
    """Returns a version of a Triton kernel that runs in Triton's interpreter on CPU tensors.

    Call it as `interpreted(kernel)[grid](*args, ...)`. `TRITON_INTERPRET=1` has to be set before Triton is
    imported and affects the whole process, whereas this function leaves `kernel` itself compilable. A kernel
    that calls other `@triton.jit` functions needs the environment variable.
    """
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction(_unwrap(kernel).fn)


def summary(*stages: Stages, labels: Sequence[str] | None = None) -> pd.DataFrame:
    """Returns one row per kernel with its memory accesses, registers and instruction counts.

    Columns: `loads` and `stores` (global memory instructions per thread in the PTX text, so one in a loop
    counts once), `load_bytes` and `store_bytes` (of the widest one), `predicated` (PTX instructions with a
    guard), `ptx_instructions` and `sass_instructions` (without padding), `registers_declared` (virtual
    registers in PTX), `registers` (allocated by the assembler, per thread), `shared_bytes` (per block),
    `local_bytes` (local memory per thread, whatever uses it), and `threads` (the block size declared in PTX).

    Args:
        *stages: results of `stages` or `cuda_stages`.
        labels: the index of the table, one label per row; by default the kernels' names.

    Raises:
        ValueError: there are no stages, or the number of labels differs from the number of stages.

    Example:
        >>> from helpers import ptx
        >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
        >>> table = ptx.summary(ptx.cuda_stages(text, target="sm_90"))
        >>> table[["loads", "stores", "shared_bytes"]].values.tolist()
        [[1, 1, 0]]
    """
    import pandas as pd

    if not stages:
        raise ValueError(
            "summary() needs at least one Stages; pass the result of stages(...) or cuda_stages(...)."
        )
    if labels is not None and len(labels) != len(stages):
        raise ValueError(
            f"summary() got {len(stages)} kernels and {len(labels)} labels; pass one label per kernel."
        )
    rows = [
        {
            **facts(s),
            "registers": s.n_registers,
            "sass_instructions": len(s.sass_reading.instructions),
            "shared_bytes": s.shared_bytes,
            "local_bytes": s.local_bytes,
        }
        for s in stages
    ]
    table = pd.DataFrame(rows, index=pd.Index(labels, name="variant") if labels is not None else None)
    return table.astype({"num_warps": "Int64"})

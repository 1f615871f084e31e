"""Compile a Triton kernel or CUDA C++ for a target, and keep every stage of it.

A process with `TRITON_INTERPRET=1` holds `InterpretedFunction`s, which Triton cannot compile; `stages` then compiles in a
second Python without that switch, from the kernel's source and the globals that it names (`helpers.ptx.isolated`).
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
_TYPES = re.compile(r"\*?(fp16|bf16|fp32|fp64|fp8\w+|i1|[iu](8|16|32|64))$")


def parse_target(target: str | int) -> int:
    """The compute capability in `target`: 90 from "sm_90", "90" or 90.

    Raises:
        ValueError: not a target that this release compiles for.
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
    """Triton's `triton.compiler.ASTSource`, also of a kernel that was made for the interpreter.

    In a process of the interpreter the kernel must call no other `@triton.jit` function, one of Triton's library such as
    `tl.max` included: those were made for the interpreter too. `stages` compiles such kernels.
    """
    import triton
    from triton.compiler import ASTSource as TritonsSource

    kernel = triton.JITFunction(fn.fn) if type(fn).__name__ == "InterpretedFunction" else fn
    return TritonsSource(fn=kernel, signature=signature, constexprs=constexprs, attrs=attrs)


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
    """Compile a Triton kernel for a target, and keep every stage.

    The first compile of a process takes a second or two, later ones about 0.1 s, a repeated one nothing.

    Args:
        kernel: a `@triton.jit` function, also one that is wrapped for autotuning or made for the interpreter.
        signature: the type of each run-time argument, such as {"x_ptr": "*fp32", "n": "i32"}.
        constexprs: the value of each `tl.constexpr` argument.
        target: "sm_90" or 90; see `TARGETS`.
        num_warps: warps a block: 1, 2, 4, 8, 16 or 32.
        num_stages: depth of software pipelining; Triton's own default where None.
        divisible_by_16: the arguments that the compiler may take for multiples of 16 (pointers: of 16 bytes). Triton
            looks at the values of a launch for this. None means the pointers, as torch allocates them, and no
            integer; `()` means none at all.
        **options: any other compile option of Triton, such as `maxnreg=32` or `enable_fp_fusion=False`. Without that one
            a product and a sum become one `fma` where a launch of this process would make them one: by Triton's knob
            `TRITON_DEFAULT_FP_FUSION`, which `device.prepare` sets.

    Returns:
        A `Stages`; SASS and resources are read when first asked for.

    Raises:
        ValueError: not a Triton kernel; an unknown target, argument, type or option; an argument left out.
        CompileError: the kernel does not compile.

    Example:
        >>> from helpers import ptx
        >>> from helpers.kernels.square import square_rows_kernel
        >>> types = {"output_ptr": "*fp32", "input_ptr": "*fp32", "input_row_stride": "i32", "output_row_stride": "i32", "n_cols": "i32"}
        >>> made = ptx.stages(square_rows_kernel, signature=types, constexprs={"BLOCK_SIZE": 1024}, target="sm_90")
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
            f"divisible_by_16 names {unknown[0]!r}, which is no run-time argument of {function.__name__}; "
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
    """Compile a Triton kernel for a launch as Triton itself would have specialised it.

    Args:
        kernel: a `@triton.jit` function, also one that was made for the interpreter.
        request: what `isolated.compile_here` takes.

    Raises:
        CompileError: the kernel does not compile.
    """
    kernel = _unwrap(kernel)
    key = (_identity(kernel), kernel.fn.__code__.co_filename, repr(request))
    if key not in _cache:
        _cache[key] = _compile_anywhere(kernel, request)
    return _cache[key]


def _unwrap(kernel: Any) -> Any:
    """The Triton kernel itself, without what wraps it for autotuning or heuristics."""
    while not _is_kernel(kernel) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    if not _is_kernel(kernel):
        raise ValueError(
            f"stages() takes a @triton.jit function, and {getattr(kernel, '__name__', kernel)!r} is a "
            f"{type(kernel).__name__}; for CUDA C++ use cuda_stages()."
        )
    return kernel


def _identity(kernel: Any) -> str:
    """What changes when the kernel's source, or a global that it names, does."""
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
            raise ValueError(f"{argument!r} of {name} is both in signature and in constexprs; keep one.")
        if not _TYPES.match(str(kind)):
            raise ValueError(
                f"{argument!r} of {name} has the type {kind!r}, which Triton does not know; "
                "write fp32, bf16, i32 and so on, with a * in front for a pointer."
            )
    for argument, parameter in inspect.signature(function).parameters.items():
        if argument not in signature and argument not in constexprs:
            where = "constexprs" if "constexpr" in str(parameter.annotation) else "signature"
            raise ValueError(f"{argument!r} of {name} is missing; give it in {where}.")
    return {argument: str(signature[argument]) for argument in arguments if argument in signature}


def _check_options(num_warps: int, num_stages: int | None, options: dict[str, Any]) -> dict[str, Any]:
    import triton
    from triton.backends.nvidia.compiler import CUDAOptions

    if num_warps not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"num_warps is {num_warps!r}; a block has 1, 2, 4, 8, 16 or 32 warps.")
    known = {f.name for f in dataclasses.fields(CUDAOptions)} - {"arch", "backend_name"}
    if unknown := [name for name in options if name not in known]:
        raise ValueError(f"Triton has no compile option {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    # Named, since Triton 3.9 warns where it has to choose: its default is on there, and off in 3.10.
    named = {"num_warps": num_warps, "enable_fp_fusion": triton.knobs.language.default_fp_fusion}
    return {**named, **({} if num_stages is None else {"num_stages": num_stages}), **options}


def _compile_anywhere(kernel: Any, request: Mapping[str, Any]) -> Stages:
    """Compile in this process, or, for a kernel made for the interpreter, in one without the interpreter."""
    target = f"sm_{request['capability']}"
    if type(kernel).__name__ == "InterpretedFunction":
        made = isolated.compile_elsewhere(kernel.fn, request)
    else:
        made = isolated.compile_here(kernel, request)
    if "error" in made:
        raise CompileError(f"{kernel.fn.__name__} does not compile for {target}: {made['error']}")
    return _triton_stages(kernel.fn, target, made)


def _triton_stages(function: Any, target: str, made: dict[str, Any]) -> Stages:
    lines, first = inspect.getsourcelines(function)
    asm, metadata = made["asm"], made["metadata"]
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
    """The stages of a kernel as a launch compiled it on this GPU: `compiled = kernel[grid](...)`.

    Args:
        kernel: the `@triton.jit` function.
        compiled: what its launch returned.
    """
    made = isolated.plain(compiled)
    return _triton_stages(_unwrap(kernel).fn, f"sm_{made['capability']}", made)


def cuda_stages(
    source: str, *, target: str | int = "sm_90", flags: Sequence[str] = (), kernel: str | None = None
) -> Stages:
    """Compile CUDA C++ with NVRTC for a target, without nvcc and without a GPU.

    Args:
        source: CUDA C++ with a `__global__` function; NVRTC knows no host code and no host headers.
        target: as for `stages`.
        flags: NVRTC options, such as "--use_fast_math". `-lineinfo` is added for the colours, except under `-G`.
        kernel: which kernel, where the source has several: its name, mangled or not.

    Raises:
        ValueError: an unknown target, no kernel, or several and none named.
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
            "This CUDA source has no kernel: mark a function __global__ (a template needs an instance)."
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
    """The same Triton kernel, run by Triton's interpreter on CPU tensors: `interpreted(k)[grid](*args, ...)`.

    Unlike `TRITON_INTERPRET=1`, which has to be set before Triton is imported and then rules the whole process, this
    leaves `kernel` itself compilable. A kernel that calls other `@triton.jit` functions needs the switch.
    """
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction(_unwrap(kernel).fn)


def summary(*stages: Stages, labels: Sequence[str] | None = None) -> pd.DataFrame:
    """A row for each kernel: what it asks of memory, registers and instructions.

    Columns: `loads`, `stores` (a thread, from global memory, counted in the text: one in a loop counts once),
    `load_bytes`, `store_bytes` (the widest one), `predicated` (PTX instructions under a guard), `ptx_instructions` and
    `sass_instructions` (padding apart), `registers_declared` (virtual, in PTX) and `registers` (allocated by the
    assembler, a thread), `shared_bytes` (a block), `local_bytes` (local memory of a thread, whatever uses it), `threads` (what PTX says of a block).

    Args:
        *stages: from `stages` or `cuda_stages`.
        labels: index of the table, one a row; the kernels' names where None.

    Raises:
        ValueError: no stages, or not as many labels as stages.

    Example:
        >>> from helpers import ptx
        >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
        >>> ptx.summary(ptx.cuda_stages(text, target="sm_90"))[["loads", "stores", "shared_bytes"]].values.tolist()
        [[1, 1, 0]]
    """
    import pandas as pd

    if not stages:
        raise ValueError(
            "summary() needs at least one Stages; pass what stages(...) or cuda_stages(...) returned."
        )
    if labels is not None and len(labels) != len(stages):
        raise ValueError(
            f"summary() got {len(stages)} kernels and {len(labels)} labels; give one label for each."
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

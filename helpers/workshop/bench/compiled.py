"""What a compiler made of the Triton kernels that a call launches: kept with a bench record, and compiled again later."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from helpers import ptx, records

_OPTIONS = ("num_warps", "num_stages", "maxnreg")
_PLAIN = (bool, int, float, str, type(None))


def described(call: Callable[[], Any]) -> list[dict[str, Any]]:
    """`describe` of each Triton kernel that one call launches on this GPU; none where the tools cannot read them."""
    try:
        return [describe(kernel) for kernel in launched(call)]
    except ptx.CompileError:
        return []


def launched(call: Callable[[], Any]) -> list[Any]:
    """Triton's compiled kernels that one call launches on this GPU, each once, in order.

    Triton tells a hook the handle of each function that it launches; the kernel with that handle is looked for among all
    that are loaded.
    """
    import triton
    from triton.compiler import CompiledKernel

    handles: list[int] = []

    def hook(metadata: Any) -> None:
        handles.append(metadata.get()["function"])

    chain = triton.knobs.runtime.launch_enter_hook
    chain.add(hook)
    try:
        call()
    finally:
        chain.remove(hook)
    loaded = {k.function: k for k in gc.get_objects() if type(k) is CompiledKernel}
    return [loaded[handle] for handle in dict.fromkeys(handles) if handle in loaded]


def describe(compiled: Any) -> dict[str, Any]:
    """A compiled kernel as plain values: its text's hash, its launch's specialisation, and what the compiler made of it.

    Args:
        compiled: a `triton.compiler.CompiledKernel`.

    Returns:
        `kernel`, `sha256`, `target`, `counts`, and `request`, the arguments of `ptx.stages` that repeat it; None where an
        argument of the kernel is no plain value.
    """
    source, metadata = compiled.src, compiled.metadata._asdict()
    names = source.fn.arg_names
    name, sha = records.fingerprint(source.fn)
    request: dict[str, Any] | None = None
    if all(len(path) == 1 and isinstance(value, _PLAIN) for path, value in source.constants.items()):
        constexprs = {names[path[0]]: value for path, value in source.constants.items()}
        request = {
            "signature": {
                n: t for n, t in source.signature.items() if t != "constexpr" and n not in constexprs
            },
            "constexprs": constexprs,
            "divisible_by_16": [
                names[path[0]]
                for path, attrs in source.attrs.items()
                if ["tt.divisibility", 16] in map(list, attrs)
            ],
            **{option: metadata[option] for option in _OPTIONS if metadata.get(option) is not None},
        }
    stages = ptx.from_compiled(source.fn, compiled)
    return {
        "kernel": name,
        "sha256": sha,
        "target": stages.target,
        "request": request,
        "counts": counts(stages),
    }


def counts(stages: ptx.Stages) -> dict[str, int]:
    """Registers and bytes of a kernel, and how many of each kind its instructions are: LDG, STG, FFMA …, padding apart."""
    kinds = Counter(i.opcode.partition(".")[0] for i in stages.sass_reading.instructions)
    return {
        "registers": stages.n_registers,
        "spill_bytes": stages.spill_bytes,
        "shared_bytes": stages.shared_bytes,
        "instructions": sum(kinds.values()),
        **dict(sorted(kinds.items())),
    }


def compile_again(kernel: Any, described: Mapping[str, Any]) -> dict[str, int] | None:
    """`counts` of a kernel's text for a described launch by the compiler that is here; None where it cannot be repeated."""
    if described["request"] is None:
        return None
    try:
        return counts(ptx.stages(kernel, target=described["target"], **described["request"]))
    except (ValueError, ptx.CompileError):
        return None


def differences(columns: Mapping[str, Mapping[str, int] | None]) -> list[str]:
    """Lines of a table of what differs between columns of counts; empty where nothing does."""
    there = {name: found for name, found in columns.items() if found}
    rows = [r for r in dict.fromkeys(k for found in there.values() for k in found)]
    differ = [r for r in rows if len({found.get(r, 0) for found in there.values()}) > 1]
    if not differ:
        return []
    widths = [max(len(name), 8) for name in there]
    head = " ".join(f"{name:>{w}}" for name, w in zip(there, widths, strict=True))
    lines = [f"{'':<14} {head}"]
    for row in differ:
        cells = " ".join(f"{f.get(row, 0):>{w},}" for f, w in zip(there.values(), widths, strict=True))
        lines.append(f"{row:<14} {cells}")
    return lines

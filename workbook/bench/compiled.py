"""The registers, memory and instructions of the Triton kernels that a call launches."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from helpers import ptx, records


def describe_kernels(call: Callable[[], Any]) -> list[dict[str, Any]]:
    """Describe each Triton kernel that one call launches on this GPU.

    Returns:
        For each kernel its name (`kernel`), the hash of its source (`sha256`) and its `counts`. The list is
        empty if the CUDA tools cannot read the compiled code.
    """
    try:
        return [describe(kernel) for kernel in launched_kernels(call)]
    except ptx.CompileError:
        return []


def launched_kernels(call: Callable[[], Any]) -> list[Any]:
    """Find the compiled Triton kernels that one call launches on this GPU, each once, in order.

    Triton calls a hook with the handle of each function that it launches. The kernels with these handles are
    then found among all compiled kernels in memory.
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
    """Describe a `triton.compiler.CompiledKernel`: its name, the hash of its source, and its counts."""
    function = compiled.src.fn
    name, sha = records.fingerprint(function)
    return {"kernel": name, "sha256": sha, "counts": counts(ptx.from_compiled(function, compiled))}


def counts(stages: ptx.Stages) -> dict[str, int]:
    """Count a kernel's registers, bytes of memory, and instructions of each kind (LDG, STG, FFMA, …)."""
    kinds = Counter(i.opcode.partition(".")[0] for i in stages.sass_reading.instructions)
    return {
        "registers": stages.n_registers,
        "spill_bytes": stages.spill_bytes,
        "shared_bytes": stages.shared_bytes,
        "instructions": sum(kinds.values()),
        **dict(sorted(kinds.items())),
    }


def differences(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """List the counts that changed: "registers 16 -> 40, MUFU 0 -> 8"; "" if none did."""
    return ", ".join(
        f"{name} {before.get(name, 0):,} -> {now.get(name, 0):,}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name, 0) != now.get(name, 0)
    )

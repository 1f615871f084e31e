"""Facts about the compiled code of a kernel, for the row of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from helpers import device
from helpers.widgets.space import LOOP_FACTS, Refused

if TYPE_CHECKING:
    import torch

    from helpers import ptx


# The facts of kernels that ran here, by Triton's hash. A sweep runs the same kernel at several sizes, and the
# disassembler takes longer than the measurement.
_of_compiled: dict[tuple[str | None, bool], dict[str, Any]] = {}


def triton_facts(kernel: Any, launch: Callable, like: torch.Tensor) -> dict[str, int]:
    """Facts about the Triton kernel that `launch(y)` launches, where y is like `like`."""
    import torch

    from helpers import ptx

    compiled = launch(torch.empty(like.shape, dtype=like.dtype, device=like.device))
    return _facts(ptx.from_compiled(kernel, compiled), 32 * compiled.metadata.num_warps)


def run_facts(run: Callable, *inputs: torch.Tensor, loop: bool) -> dict[str, Any]:
    """Facts about what `run(*inputs)` launches on this GPU; empty if its code can't be read.

    Args:
        run: called once.
        *inputs: its inputs.
        loop: add `LOOP_FACTS`.
    """
    from helpers import ptx

    with ptx.launches() as seen:
        run(*inputs)
    try:
        return launch_facts(seen, device.gpu_spec().target, loop=loop)
    except ptx.CompileError:  # the kernel ran; only the tools that read its code failed
        return {}


def cuda_facts(text: str, threads: int) -> dict[str, int]:
    """Facts about the only kernel of a CUDA text, compiled by NVRTC for this GPU."""
    from helpers import ptx

    return _facts(ptx.cuda_stages(text, target=device.gpu_spec().target), threads)


def launch_facts(launches: Sequence[ptx.Launch], target: str, *, loop: bool = False) -> dict[str, Any]:
    """Facts about the largest launch of a call, with its `blocks`; empty if the call launched nothing.

    Args:
        launches: what the call launched.
        target: the GPU to compile for, if the call didn't.
        loop: add `LOOP_FACTS`, which takes a disassembler.

    Raises:
        helpers.ptx.CompileError, helpers.cuda.BuildError: the kernel doesn't compile.
    """
    if not launches:
        return {}
    largest = max(launches, key=lambda launch: launch.n_blocks)
    ran = getattr(largest.compiled, "hash", None)
    made = _of_compiled.get((ran, loop))
    if made is None:
        stages = largest.stages(target)
        made = _facts(stages, largest.threads(stages)) | (_loop_facts(stages) if loop else {})
        if ran is not None:
            _of_compiled[ran, loop] = made
    return {**made, "shared_bytes": made["shared_bytes"] + largest.shared_bytes, "blocks": largest.n_blocks}


def _facts(stages: ptx.Stages, threads: int) -> dict[str, int]:
    loads = stages.reading.loads
    return {
        "threads": threads,
        "registers": stages.n_registers,
        "spill_bytes": stages.spill_bytes,  # Triton's n_spills counts all local memory
        "shared_bytes": stages.shared_bytes,
        "loads": len(loads),
        "load_bytes": max((i.n_bytes for i in loads), default=0),
    }


def _loop_facts(stages: ptx.Stages) -> dict[str, Any]:
    loop = stages.product_loop
    found = (loop.n_instructions, loop.n_products, loop.opcode) if loop else (0, 0, "")
    return dict(zip(LOOP_FACTS, found, strict=True))


def refuse_eager(dtype: str) -> None:
    """Raise `Refused` if torch.compile would run a dtype, such as "bfloat16", eagerly on this GPU."""
    import torch

    if reason := device.left_to_eager(getattr(torch, dtype)):
        raise Refused(reason)

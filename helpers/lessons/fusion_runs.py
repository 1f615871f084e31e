"""What lesson 06 measures, and the tables that it makes of counters and compiled kernels.

Functions that measure need a GPU and return the rows of a record. Those that end in `_table` need none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.lessons import fusion, generated
from helpers.machine import GpuSpec

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from helpers.ncu import Report

    Function = Callable[[torch.Tensor], torch.Tensor]

STEPS = ("1 max", "2 subtract", "3 exp", "4 sum", "5 divide")
PADDED = tuple((dtype, n) for dtype in ("float32", "bfloat16") for n in (8192, 8320))  # in fusion/padding
_INNER = (64, 512, 2048, 8192)  # inner sizes of the products next to a GELU
_WALL_CALLS, _WALL_RUNS = 300, 7


# ------------------------------------------------------------------------------------------ five and one


def time_five_and_one(
    five: Function, one: Function, shape: tuple[int, int], n_bytes: Sequence[int]
) -> list[dict[str, Any]]:
    """Times a softmax as five operations, PyTorch's, and in one kernel, then each operation alone and a copy.

    Args:
        five: The softmax in five operations.
        one: The softmax in one kernel.
        shape: Rows and columns.
        n_bytes: The bytes that each of the five operations moves.
    """
    import torch

    from helpers import timing

    whole = {"all five": five, "torch.softmax": fusion.torch_softmax, "softmax_rows": one}
    rows = [fusion.time_softmax(name, f, shape) for name, f in whole.items()]
    x = torch.randn(shape, device="cuda")
    largest, powers = x.amax(dim=1, keepdim=True), torch.rand_like(x)
    total, target = powers.sum(dim=1, keepdim=True), torch.empty_like(x)
    alone = [
        lambda: x.max(dim=1, keepdim=True),
        lambda: x - largest,
        lambda: x.exp(),
        lambda: powers.sum(dim=1, keepdim=True),
        lambda: powers / total,
        lambda: target.copy_(x),
    ]
    for name, f, n in zip([*STEPS, "copy"], alone, [*n_bytes, 2 * x.nbytes], strict=True):
        rows.append(fusion.row_of(name, timing.time_gpu(f, budget_s=0.05), shape, int(n)))
    return rows


def dram_table(report: Report, counted: pd.DataFrame, counted_fused: pd.DataFrame) -> pd.DataFrame:
    """Compares the bytes that were counted with those that DRAM delivered and took.

    Args:
        report: The launches of the five operations, torch.softmax and the softmax in one kernel.
        counted: The traffic of the five operations, from `traffic.count_traffic`.
        counted_fused: The traffic of one fused operation.

    Returns:
        A DataFrame with a row per launch: `launch`, `NVTX ranges`, and in GB `read, counted`, `read, DRAM`,
        `written, counted` and `written, DRAM`, then `µs`.
    """
    import pandas as pd

    from helpers import ncu

    seen = ncu.summary(report)
    must = pd.concat([counted, counted_fused, counted_fused], ignore_index=True)
    table = pd.DataFrame({"launch": [*STEPS, "torch.softmax", "softmax_rows"]})
    table["NVTX ranges"] = [" / ".join(launch.nvtx) for launch in report]
    table["read, counted"], table["read, DRAM"] = must.read_bytes / 1e9, seen.dram_read_bytes / 1e9
    table["written, counted"], table["written, DRAM"] = must.written_bytes / 1e9, seen.dram_write_bytes / 1e9
    table["µs"] = seen.duration_us
    return table


# ---------------------------------------------------------------------------------- registers, padding, waves


def compile_for(kernel: Any, num_warps: int, block_size: int, target: str = "sm_90") -> Any:
    """Compiles a row kernel for a GPU that doesn't have to be there, and returns its stages."""
    from helpers import ptx

    integers = dict.fromkeys(["input_row_stride", "output_row_stride", "n_cols"], "i32")
    signature = {"output_ptr": "*fp32", "input_ptr": "*fp32", **integers}
    options = {"num_warps": num_warps, "target": target, "divisible_by_16": tuple(signature)}
    return ptx.stages(kernel, signature=signature, constexprs={"BLOCK_SIZE": block_size}, **options)


def register_table(kernel: Any, num_warps: int, blocks: Sequence[int]) -> pd.DataFrame:
    """Compiles a row kernel for several widths.

    Returns:
        A DataFrame with a row per width: `columns`, `elements per thread`, `registers per thread` and
        `bytes spilled per thread`.
    """
    import pandas as pd

    rows = []
    for block in blocks:
        stages = compile_for(kernel, num_warps, block)
        row = {"columns": block, "elements per thread": block // (32 * num_warps)}
        row |= {"registers per thread": stages.n_registers, "bytes spilled per thread": stages.spill_bytes}
        rows.append(row)
    return pd.DataFrame(rows)


def programs_per_sm(kernel: Any, num_warps: int, block_size: int, gpu: Mapping[str, Any]) -> int:
    """How many programs of a row kernel an SM can hold.

    Args:
        kernel: The row kernel.
        num_warps: Warps per program.
        block_size: The width of the block.
        gpu: The facts about the GPU, as in a record's provenance. The GPU doesn't have to be there.
    """
    spec = GpuSpec.from_dict(dict(gpu))
    stages = compile_for(kernel, num_warps, block_size, spec.target)
    threads = spec.warp_size * num_warps
    registers = -(-stages.n_registers // 8) * 8  # allocated in steps of 8
    by_registers = spec.registers_per_sm // (registers * threads)
    return min(spec.max_threads_per_sm // threads, spec.max_blocks_per_sm, by_registers)


def padding_table(report: Report) -> pd.DataFrame:
    """What the launches of the record fusion/padding did: 16,384 rows of each of `PADDED`.

    Returns:
        A DataFrame with a row per launch: `launch`, `GB/s`, `instructions per element`,
        `issue slots busy (%)`, `registers per thread` and `rows per SM`.
    """
    import pandas as pd

    from helpers import ncu

    rows = []
    for launch, (dtype, n) in zip(report, PADDED, strict=True):
        n_elements, counters = 16384 * n, launch.metrics
        n_bytes = 2 * n_elements * (4 if dtype == "float32" else 2)
        row = {"launch": f"{dtype}, {n:,} columns", "GB/s": n_bytes / launch.duration_us / 1e3}
        row["instructions per element"] = 32 * counters["smsp__inst_executed.sum"] / n_elements
        row["issue slots busy (%)"] = counters["smsp__issue_active.avg.pct_of_peak_sustained_active"]
        row["registers per thread"] = counters["launch__registers_per_thread"]
        rows.append(row | {"rows per SM": ncu.occupancy(launch).attrs["blocks_per_sm"]})
    return pd.DataFrame(rows)


def wave_table(shapes: Sequence[tuple[int, int]], n_sms: int, per_sm: int) -> pd.DataFrame:
    """How well one program per row fills a GPU.

    Args:
        shapes: Rows and columns.
        n_sms: The GPU's number of SMs.
        per_sm: How many programs an SM can hold.

    Returns:
        A DataFrame with a row per shape: `rows`, `columns`, `SMs with work (%)` and `waves`.
    """
    import pandas as pd

    table = pd.DataFrame(shapes, columns=["rows", "columns"])
    table["SMs with work (%)"] = 100 * table["rows"].clip(upper=n_sms) / n_sms
    table["waves"] = table["rows"] / (n_sms * per_sm)
    return table


# ------------------------------------------------------------------------------------------- torch.compile


def _gelu_forms(gelu: Function) -> dict[str, Function]:
    import torch

    from helpers.kernels.elementwise import gelu_forward

    compiled = torch.compile(gelu, dynamic=False)
    return {"eager": gelu, "torch.compile": compiled, "F.gelu": torch_gelu, "ours": gelu_forward}


def torch_gelu(x: torch.Tensor) -> torch.Tensor:
    """Returns PyTorch's GELU in its tanh form."""
    import torch.nn.functional as F

    return F.gelu(x, approximate="tanh")


def time_compiled(softmax: Function, gelu: Function) -> list[dict[str, Any]]:
    """Times a softmax of many and of few rows, and a GELU, eager and compiled, and notes what each launched.

    Args:
        softmax: A softmax of several operations.
        gelu: A GELU of several operations.
    """
    import torch

    from helpers import check

    torch._dynamo.reset()
    softmaxes = {"eager": softmax, "torch.compile": torch.compile(softmax, dynamic=False)}
    cases = [("softmax", (16384, 4096), softmaxes), ("softmax", (64, 262144), softmaxes)]
    rows = []
    for what, (m, n), forms in [*cases, ("GELU", (8192, 8192), _gelu_forms(gelu))]:
        x = torch.randn(m, n, device="cuda")
        for form, f in forms.items():
            if what == "softmax":
                fusion.check_softmax(f, shapes=[(m, n)], name=form)
            else:
                check.assert_matches(f, torch_gelu, shapes=[(m, n)], name=form)
            rows.append(fusion.launched_by(f"{what} {m} × {n}", form, f, x))
    return rows


def compiled_kernel(name: str, f: Function, shape: tuple[int, int]) -> str:
    """The Triton kernel that torch.compile generates for `f` of a float32 matrix, or generated when it was
    recorded.

    Args:
        name: The name of `f` in the record fusion/compiled.
        f: The function.
        shape: Rows and columns.
    """
    from helpers import records

    def write(path: Path) -> None:
        path.write_text(generated.by_compile(f, shape))

    path = records.measured_file("fusion/compiled", write, ".py", params={"spelling": name})
    return "\n".join(generated.kernel_texts(path.read_text()))


def body_of(kernel: str) -> str:
    """The lines of a generated kernel that loop, load, compute or store, without its index arithmetic."""
    index = ("x0 =", "xmask", "xindex", "xoffset", "xnumel", "r0_", "rnumel", "RBLOCK", "rbase", "roffset")
    lines = [line for line in kernel.splitlines() if line.strip()]
    return "\n".join(line for line in lines if not line.strip().startswith((*index, "rindex")))


# ------------------------------------------------------------------------------- where fusing doesn't pay


def time_next_to_a_product() -> list[dict[str, Any]]:
    """Times a float16 product with an output of 8,192 × 8,192 and growing inner size, and a GELU of it."""
    import torch

    from helpers import timing
    from helpers.kernels.elementwise import gelu_forward

    rows = []
    for k in _INNER:
        x, w = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((8192, k), (k, 8192)))
        product = x @ w
        torch.testing.assert_close(gelu_forward(product), torch_gelu(product), rtol=4e-3, atol=4e-3)
        multiply = timing.time_gpu(lambda x=x, w=w: torch.mm(x, w), budget_s=0.1).median_us
        activate = timing.time_gpu(lambda product=product: gelu_forward(product), budget_s=0.05).median_us
        share = 100 * activate / (multiply + activate)
        rows.append({"k": k, "product_us": multiply, "gelu_us": activate, "share_percent": share})
    return rows


def time_tiny(forms: Mapping[str, Function], shape: tuple[int, int] = (8, 256)) -> list[dict[str, Any]]:
    """Times softmaxes of a tiny matrix, on the GPU and by the wall clock.

    Args:
        forms: The softmaxes by name.
        shape: Rows and columns.
    """
    import torch

    torch._dynamo.reset()
    x = torch.randn(shape, device="cuda")
    return [
        fusion.time_softmax(name, f, shape) | {"wall_us": _wall_us(lambda f=f: f(x))}
        for name, f in forms.items()
    ]


def _wall_us(f: Callable[[], Any]) -> float:
    """µs per call by the wall clock, over many calls: the median of several runs."""
    import torch

    runs = []
    for _ in range(_WALL_RUNS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(_WALL_CALLS):
            f()
        torch.cuda.synchronize()
        runs.append(1e6 * (time.perf_counter() - start) / _WALL_CALLS)
    return sorted(runs)[_WALL_RUNS // 2]

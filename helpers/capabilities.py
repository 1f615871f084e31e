"""What each kind of cell in lessons 11 and 12 does on a GPU, or without one: run, compile only, or replay.

`KINDS` is the table, and `decide` the only function that reads it. `records.measured` asks it before it
measures, so a cell replays its record on a GPU that lacks what the cell needs. docs/guide/capabilities.md
shows the table, and tests/test_capabilities.py compiles kernels to verify it.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers import device

RUN, COMPILE, REPLAY = "run", "compile only", "replay"
TENSOR_CORES, FP8, TMA = (8, 0), (8, 9), (9, 0)  # the first capabilities for which Triton emits them


@dataclass(frozen=True)
class Gpu:
    """What a decision depends on.

    Attributes:
        capability: the compute capability, such as (9, 0).
        shared_bytes: the most shared memory that a block may use.
    """

    capability: tuple[int, int]
    shared_bytes: int


# The columns of the table, with the shared memory per block (CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability").
GPUS: dict[str, Gpu | None] = {
    "no GPU": None,
    "sm_75": Gpu((7, 5), 64 << 10),
    "sm_80": Gpu((8, 0), 163 << 10),
    "sm_86": Gpu((8, 6), 99 << 10),
    "sm_89": Gpu((8, 9), 99 << 10),
    "sm_90": Gpu((9, 0), 227 << 10),
    "sm_100": Gpu((10, 0), 227 << 10),
    "sm_120": Gpu((12, 0), 99 << 10),
}


@dataclass(frozen=True)
class Kind:
    """A kind of cell.

    Attributes:
        what: what its cells do, for readers.
        records: the records of its cells.
        without_gpu: what happens without a GPU.
        on_gpu: what happens on a GPU that has what the kind needs.
        since: the first compute capability that has it.
        otherwise: what happens on other GPUs.
        lacking: what GPUs before `since` lack, the end of "sm_75 …".
        shared_bytes: the shared memory of the largest block, from a compute capability on.
        note: what else a reader should know.
    """

    what: str
    records: tuple[str, ...] = ()
    without_gpu: str = REPLAY
    on_gpu: str = RUN
    since: tuple[int, int] = (0, 0)
    otherwise: str = REPLAY
    lacking: str = ""
    shared_bytes: tuple[tuple[tuple[int, int], int], ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Decision:
    """What a cell does here, and why, as a sentence; `why` is empty if nothing is lacking but a GPU."""

    action: str
    why: str = ""


_NO_TENSOR_CORES = "gets no tensor cores from Triton, so large products would take minutes"
_NO_TMA = "has no TMA"
_NO_FP8 = "has no float8_e4m3fn in Triton"
# Tiles of 128 × 256 × 64 in three and four stages, and of 256 × 256 × 64 in three. Before sm_90, Triton keeps
# one step fewer in shared memory.
_THREE_STAGES = ((TENSOR_CORES, 98_304), (TMA, 148_480), ((10, 0), 148_496), ((12, 0), 99_328))
_FOUR_STAGES = ((TENSOR_CORES, 147_456), (TMA, 197_632), ((10, 0), 197_648), ((12, 0), 148_480))

KINDS: dict[str, Kind] = {
    "cuda product": Kind("time CUDA C++ and cuBLAS products", ("matmul/cuda", "matmul/contents")),
    "counters": Kind(
        "count the traffic of CUDA C++ kernels with Nsight Compute",
        ("matmul/traffic",),
        note="Without permission to read the counters, the report is replayed.",
    ),
    "code": Kind("read PTX or SASS for a named target", without_gpu=COMPILE, on_gpu=COMPILE),
    "small product": Kind(
        "check `tl.dot` of small float16 matrices",
        without_gpu=RUN,
        note="Without a GPU, in Triton's interpreter. On sm_75, with `fma`.",
    ),
    "small bf16 product": Kind(
        "check `ops.matmul` of small bfloat16 matrices",
        without_gpu=RUN,
        note="Without a GPU, in float32, because Triton's interpreter misreads bfloat16 in `tl.dot`. On "
        "sm_75, with `fma`.",
    ),
    "small fp8 product": Kind(
        "check `tl.dot` of small float8_e4m3fn matrices",
        without_gpu=RUN,
        since=FP8,
        otherwise=COMPILE,
        lacking=_NO_FP8,
        note="Compiled for a newer target.",
    ),
    "small descriptors": Kind(
        "check loads through tensor descriptors",
        without_gpu=RUN,
        note="Before sm_90, Triton compiles them to ordinary loads.",
    ),
    "order of programs": Kind(
        "time tiles of 128 × 256 in three stages",
        ("matmul/order",),
        since=TENSOR_CORES,
        lacking=_NO_TENSOR_CORES,
        shared_bytes=_THREE_STAGES,
    ),
    "tiles and stages": Kind(
        "time tiles up to 256 × 256, four stages, and the curve",
        ("matmul/tiles", "matmul/stages", "matmul/curve"),
        since=TENSOR_CORES,
        lacking=_NO_TENSOR_CORES,
        shared_bytes=_FOUR_STAGES,
    ),
    "sliders over tiles": Kind(
        "measure positions of the sliders over tiles",
        ("matmul/tile-sweep",),
        since=TENSOR_CORES,
        lacking=_NO_TENSOR_CORES,
        note="A position that doesn't fit into shared memory is refused.",
    ),
    "epilogue": Kind(
        "time bias and GELU after a product",
        ("matmul/epilogue",),
        since=TENSOR_CORES,
        lacking=_NO_TENSOR_CORES,
    ),
    "tf32": Kind(
        "measure errors of TF32 products",
        ("matmul/precision",),
        since=TENSOR_CORES,
        lacking="multiplies float32 numbers without rounding them to TF32",
        note="Neither the interpreter nor sm_75 rounds to TF32.",
    ),
    "fp8 speed": Kind("time float8_e4m3fn products", ("matmul/fp8",), since=FP8, lacking=_NO_FP8),
    "descriptors speed": Kind(
        "time products that load through TMA", ("matmul/descriptors",), since=TMA, lacking=_NO_TMA
    ),
    "attention memory": Kind("measure the memory of attention", ("attention/memory",)),
    "attention forward": Kind(
        "time attention, forward",
        ("attention/forward", "attention/causal"),
        since=TENSOR_CORES,
        lacking=_NO_TENSOR_CORES,
    ),
    "sliders over attention": Kind(
        "measure positions of the sliders over attention",
        ("attention/launch-sweep",),
        since=TMA,
        lacking=_NO_TMA,
        note="A position that doesn't fit into shared memory is refused.",
    ),
    "attention units": Kind(
        "count how busy attention's units are", ("attention/busy-units",), since=TMA, lacking=_NO_TMA
    ),
    "attention decode": Kind(
        "time attention of one new token", ("attention/decode",), since=TENSOR_CORES, lacking=_NO_TENSOR_CORES
    ),
}


def gpu_here() -> Gpu | None:
    """Returns this machine's GPU, as torch reports it; None without one."""
    if not device.has_gpu():
        return None
    import torch

    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Gpu((found.major, found.minor), found.shared_memory_per_block_optin)


def kind_of(name: str) -> Kind | None:
    """Returns the kind with this name, or that of the cells with this record; None if the table has none."""
    return KINDS.get(name) or next((kind for kind in KINDS.values() if name in kind.records), None)


def decide(name: str) -> Decision:
    """Decides what a cell does on this machine.

    Args:
        name: a kind, such as "tf32", or a record, such as "matmul/tiles". What the table doesn't name runs on
            every GPU, and is replayed without one.
    """
    kind = kind_of(name)
    if kind is None:
        return Decision(RUN if device.has_gpu() else REPLAY)
    return decide_for(kind, gpu_here())


def decide_for(kind: Kind, gpu: Gpu | None) -> Decision:
    """Decides what cells of a kind do on a GPU, or without one (None)."""
    if gpu is None:
        return Decision(kind.without_gpu)
    target = f"sm_{gpu.capability[0]}{gpu.capability[1]}"
    if gpu.capability < kind.since:
        return Decision(kind.otherwise, f"{target} {kind.lacking}.")
    needed = max((need for need in kind.shared_bytes if need[0] <= gpu.capability), default=((0, 0), 0))[1]
    if needed > gpu.shared_bytes:
        why = f"A block needs {needed:,} bytes of shared memory, and here it can have {gpu.shared_bytes:,}."
        return Decision(kind.otherwise, why)
    return Decision(kind.on_gpu)


def as_markdown() -> str:
    """Returns the table as Markdown, a row per kind and a column per entry of `GPUS`."""
    columns = ["cells that", *GPUS, "note"]
    rows = [columns, ["---"] * len(columns)]
    for kind in KINDS.values():
        rows.append([kind.what, *(decide_for(kind, gpu).action for gpu in GPUS.values()), kind.note])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"

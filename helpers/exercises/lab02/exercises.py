"""The exercises of lab 02, load_inline."""

from __future__ import annotations

import random
from collections.abc import Iterator

from helpers.exercises import inputs
from helpers.exercises.factories import answer_exercise
from helpers.exercises.guarded_run import is_wrong, unwritten
from helpers.exercises.lab02 import adapters, launchers, run_reports, wrapper
from helpers.exercises.lab02.slow_kernel import SLOW_KERNEL
from helpers.exercises.mistakes import Seen, always, not_numbers
from helpers.exercises.model import Case, Exercise
from helpers.exercises.plans import CasePlan, SpeedPlan

LAB = "02_load_inline"


# ------------------------------------------------------------------------------------------ cover a matrix
def _cover_cases(rng: random.Random, device: str) -> Iterator[Case]:
    def case(height: int, width: int, block_x: int, block_y: int) -> Case:
        across, down = -(-width // block_x), -(-height // block_y)
        idle = across * block_x * down * block_y - height * width
        label = f"a {height:,} × {width:,} matrix (rows × columns) in blocks of {block_x} × {block_y} (x × y)"
        return Case(label, (height, width, block_x, block_y), expected=(across, down, idle))

    yield case(3, 7, 4, 2)
    yield case(64, 64, 16, 16)
    yield case(65, 64, 16, 16)
    yield case(64, 65, 32, 8)
    yield case(1, 1, 256, 1)
    for _ in range(20):
        block_x = rng.choice((1, 4, 8, 16, 32, 64, 256))
        block_y = rng.choice([y for y in (1, 2, 4, 8, 16, 32) if block_x * y <= 1024])
        yield case(rng.randrange(1, 20_000), rng.randrange(1, 20_000), block_x, block_y)


def _about_cover(height: int, width: int, block_x: int, block_y: int) -> dict[str, tuple[int, int]]:
    return {
        "sizes_swapped": (-(-height // block_x), -(-width // block_y)),
        "down": (width // block_x, height // block_y),
    }


COVER = answer_exercise(
    "cover-a-matrix",
    LAB,
    "Cover a matrix with blocks",
    "cover",
    _cover_cases,
    minutes=5,
    facts=_about_cover,
    mistakes={
        "no-tuple": not_numbers(3),
        "idle": lambda s: s.at == 2,
        "x-for-rows": lambda s: tuple(s.got[:2]) in (s.want[1::-1], s.sizes_swapped),
        "rounded-down": lambda s: tuple(s.got[:2]) == s.down,
        "one-too-many": lambda s: s.got[0] == s.down[0] + 1 or s.got[1] == s.down[1] + 1,
        "blocks": always,
    },
)


# ------------------------------------------------------------------------------------------ fix the guard
def _special(rng: random.Random, height: int, width: int):
    """Normal values, with a few NaN, infinities and zeros."""
    import torch

    x = inputs.values(rng, (height, width))
    values = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0])
    x.view(-1)[torch.tensor(rng.sample(range(x.numel()), 5))] = values
    return x


def _difference(x):
    import torch

    out = torch.zeros_like(x)
    out[:, :-1] = x[:, 1:] - x[:, :-1]
    return out


def _guard_cases(rng: random.Random, device: str) -> Iterator[Case]:
    import torch

    blocks = [(16, 16), (32, 8), (8, 4), (64, 1), (1, 32)]
    shapes = [(30, 50), (16, 16), (17, 16), (16, 17), (1, 1), (1, 37), (37, 1), (32, 64)]
    shapes += [(rng.randrange(1, 80), rng.randrange(1, 120)) for _ in range(8)]
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for i, (height, width) in enumerate(shapes):
        block_x, block_y = blocks[i] if i < 2 else rng.choice(blocks)
        x = torch.randn(height, width, generator=generator)
        if i == len(shapes) - 1 and x.numel() > 4:
            x = _special(rng, height, width)
        label = f"a {height} × {width} matrix in blocks of {block_x} × {block_y}"
        yield Case(
            label,
            ([x.to(device)], (height, width), [height, width, block_x, block_y]),
            expected=_difference(x).to(device),
            call="run",
        )
    yield Case("a traced run on a 5 × 7 matrix", (5, 7, 4, 4), expected=1, call="writers")


_judge_guard = run_reports.make_judge(
    "fix-the-guard",
    "DIFFERENCE_CUDA",
    first={"many-writers": lambda s: s.writers is not None and s.writers != s.want},
    faults={
        **run_reports.outside(
            {
                "neighbour": lambda s: s.row < s.height and s.col < s.width,
                "missing-guard": always,
            }
        ),
        **run_reports.BARRIERS,
    },
    values={
        "guard-too-strict": unwritten,
        "neighbour/value": lambda s: s.bad[:, -1].any() and not s.bad[:, :-1].any(),
        "sign": lambda s: not is_wrong(-s.out, s.expected).any(),
        "missing-guard/values": always,
    },
)


GUARD = Exercise(
    id="fix-the-guard",
    lab=LAB,
    title="Fix the missing guard",
    name="DIFFERENCE_CUDA",
    minutes=12,
    cases=_guard_cases,
    judge=_judge_guard,
    adapters={"run": launchers.run, "writers": launchers.writers},
    text=launchers.as_text,
    prepare=launchers.kernel("difference"),
    on_gpu=True,
)

REFUSE = Exercise(
    id="refuse-wrong-tensors",
    lab=LAB,
    title="A wrapper that refuses wrong tensors",
    name="difference",
    minutes=15,
    cases=wrapper.cases,
    judge=wrapper.judge,
    adapters={"wrapped": adapters.wrapped},
    served={"wrapped": wrapper.serve},
    on_gpu=True,
)


# ------------------------------------------------------------------------------------------ rows, not columns
def _rows_cases(rng: random.Random, device: str) -> Iterator[Case]:
    import torch

    shapes = [(3, 5), (1, 1), (1, 300), (300, 1), (16, 16), (33, 31)]
    shapes += [(rng.randrange(1, 60), rng.randrange(1, 90)) for _ in range(6)]
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for height, width in shapes:
        x = torch.randn(height, width, generator=generator)
        if (height, width) == shapes[-1] and x.numel() > 4:
            x = _special(rng, height, width)
        factor = torch.randn(height, generator=generator)
        yield Case(
            f"a {height} × {width} matrix",
            ([x.to(device), factor.to(device)], (height, width), [height, width]),
            expected=(x.double() * factor.double()[:, None]).to(device),
            call="run",
        )
    # `expected` is the smallest allowed percentage of the sectors' bytes; rows of 100 columns start inside a
    # sector.
    for height, width, least in [(64, 256, 75), (rng.randrange(40, 70), 100, 60)]:
        yield Case(
            f"a traced run on a {height} × {width} matrix", (height, width), expected=least, call="count"
        )


def _factor_of_columns(s: Seen) -> bool:
    """Each column was multiplied by its own factor, as far as there are factors."""
    x, factor = (tensor.cpu().double() for tensor in s.case.args[0])
    n = min(x.shape)
    return x.shape[1] > 1 and not is_wrong(s.out.double()[:, :n], x[:, :n] * factor[None, :n]).any()


_judge_rows = run_reports.make_judge(
    "rows-not-columns",
    "SCALE_ROWS_CUDA",
    first={"strided": lambda s: s.case.call == "count" and run_reports.strided(s)},
    faults={
        **run_reports.outside(
            {
                "missing-guard": lambda s: s.element >= s.height * s.width,
                "wrong-index": always,
            }
        ),
        **run_reports.BARRIERS,
    },
    values={"unwritten": unwritten, "transposed": _factor_of_columns, "mapping": always},
)


def _factors(x, rng: random.Random) -> tuple:
    return (inputs.values(rng, (x.shape[0],), device=x.device),)


ROWS = Exercise(
    id="rows-not-columns",
    lab=LAB,
    title="Rows, not columns",
    name="SCALE_ROWS_CUDA",
    minutes=12,
    cases=_rows_cases,
    judge=_judge_rows,
    adapters={"run": launchers.run, "count": launchers.count},
    text=launchers.as_text,
    prepare=launchers.kernel("scale_rows"),
    speed=SpeedPlan(
        cases=CasePlan(ndim=2, more_args=_factors),
        reference=lambda x, factor: x * factor[:, None],
        shape=(8192, 8192),
        bytes_per_element=8,
    ),
    on_gpu=True,
)


# ------------------------------------------------------------------------------------------ transpose in
# tiles
def _tile_cases(rng: random.Random, device: str) -> Iterator[Case]:
    import torch

    shapes = [(32, 32), (64, 96), (33, 31), (1, 1), (1, 70), (70, 1), (31, 65)]
    shapes += [(rng.randrange(1, 130), rng.randrange(1, 130)) for _ in range(6)]
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for height, width in shapes:
        x = torch.randn(height, width, generator=generator)
        if (height, width) == shapes[-1] and x.numel() > 4:
            x = _special(rng, height, width)
        yield Case(
            f"a {height} × {width} matrix",
            ([x.to(device)], (width, height), [height, width]),
            expected=x.t().contiguous().to(device),
            call="run",
        )
    for height, width in [(64, 96), (96, rng.choice((32, 64, 128)))]:
        yield Case(f"a traced run on a {height} × {width} matrix", (height, width), expected=75, call="count")


def _in_text(tile: str):
    """The condition that a run failed and its text has a bad tile, unless the run shows something more
    specific.
    """

    def condition(s: Seen) -> bool:
        failed = s.outside or s.bad is not None or (s.trouble and s.cause != "barrier")
        return failed and s.tile == tile and not (tile == "eight-rows" and run_reports.unsynchronized(s))

    return condition


def _is_input(s: Seen) -> bool:
    x = s.case.args[0][0].cpu()
    return x.shape[0] == x.shape[1] and not is_wrong(s.out, x).any()


def _is_reshaped_input(s: Seen) -> bool:
    return s.out.numel() and not is_wrong(s.out.reshape(-1), s.case.args[0][0].cpu().reshape(-1)).any()


_judge_tiles = run_reports.make_judge(
    "transpose-in-tiles",
    "TRANSPOSE_CUDA",
    first={
        "strided": lambda s: s.case.call == "count" and run_reports.strided(s),
        **{tile: _in_text(tile) for tile in ("not-shared", "tile-too-small", "eight-rows")},
    },
    faults={**run_reports.TILES, **run_reports.BARRIERS},
    values={
        "unwritten": unwritten,
        "not-turned": _is_input,
        "not-turned/shape": _is_reshaped_input,
        "tiles-in-place": lambda s: min(s.height, s.width) > 32,
        "mapping": always,
    },
)


TILES = Exercise(
    id="transpose-in-tiles",
    lab=LAB,
    title="Transpose in tiles",
    name="TRANSPOSE_CUDA",
    minutes=25,
    cases=_tile_cases,
    judge=_judge_tiles,
    adapters={"run": launchers.run, "count": launchers.count},
    text=launchers.as_text,
    prepare=launchers.kernel("transpose"),
    speed=SpeedPlan(
        cases=CasePlan(ndim=2), reference=lambda x: x.t(), shape=(8192, 8192), bytes_per_element=8
    ),
    on_gpu=True,
)

EXERCISES = (COVER, GUARD, REFUSE, ROWS, TILES, SLOW_KERNEL)

"""The exercises of lab 02, load_inline."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

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


# ------------------------------------------------------------------------------------------ kernels
def _matrices(rng: random.Random, shapes: list[tuple], n_random: int, *most: int) -> Iterator[tuple]:
    """Matrices of these and of random shapes up to `most`, each with the generator of their values. The last
    one has a few NaN, infinities and zeros.
    """
    import torch

    shapes += [(rng.randrange(1, most[0]), rng.randrange(1, most[1])) for _ in range(n_random)]
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for i, shape in enumerate(shapes, 1):
        x = torch.randn(shape, generator=generator)
        if i == len(shapes) and x.numel() > 4:
            x = inputs.values(rng, shape)
            special = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0])
            x.view(-1)[torch.tensor(rng.sample(range(x.numel()), 5))] = special
        yield x, generator


def _traced(height: int, width: int, *numbers: int, expected: int, call: str = "count") -> Case:
    """`expected` of "count" is the smallest allowed percentage of the sectors' bytes."""
    label = f"a traced run on a {height} × {width} matrix"
    return Case(label, (height, width, *numbers), expected=expected, call=call)


def _kernel_exercise(
    id: str, title: str, kernel: str, minutes: int, cases: Callable, speed: SpeedPlan | None = None, **table
) -> Exercise:
    name = f"{kernel.upper()}_CUDA"
    return Exercise(
        id=id,
        lab=LAB,
        title=title,
        name=name,
        minutes=minutes,
        cases=cases,
        judge=run_reports.make_judge(id, name, **table),
        adapters={"run": launchers.run, "count": launchers.count, "writers": launchers.writers},
        text=launchers.as_text,
        prepare=launchers.kernel(kernel),
        speed=speed,
        on_gpu=True,
    )


def _too_strided(s: Seen) -> str:
    return run_reports.strided(s) if s.case.call == "count" else ""


def _guard_cases(rng: random.Random, device: str) -> Iterator[Case]:
    blocks = [(16, 16), (32, 8), (8, 4), (64, 1), (1, 32)]
    shapes = [(30, 50), (16, 16), (17, 16), (16, 17), (1, 1), (1, 37), (37, 1), (32, 64)]
    for i, (x, _) in enumerate(_matrices(rng, shapes, 8, 80, 120)):
        block = blocks[i] if i < 2 else rng.choice(blocks)
        yield run_reports.run_case([x.to(device)], wrapper.reference(x), block)
    yield _traced(5, 7, 4, 4, expected=1, call="writers")


GUARD = _kernel_exercise(
    "fix-the-guard",
    "Fix the missing guard",
    "difference",
    12,
    _guard_cases,
    first={"many-writers": lambda s: s.writers is not None and s.writers != s.want},
    faults={
        **run_reports.outside(
            {"neighbour": lambda s: s.row < s.height and s.col < s.width, "missing-guard": always}
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
    for x, generator in _matrices(rng, shapes, 6, 60, 90):
        factor = torch.randn(x.shape[0], generator=generator)
        yield run_reports.run_case([x.to(device), factor.to(device)], x.double() * factor.double()[:, None])
    yield _traced(64, 256, expected=75)
    yield _traced(rng.randrange(40, 70), 100, expected=60)  # rows of 100 columns start inside a sector


def _factor_of_columns(s: Seen) -> bool:
    """Each column was multiplied by its own factor, as far as there are factors."""
    x, factor = (tensor.cpu().double() for tensor in s.case.args[0])
    n = min(x.shape)
    return x.shape[1] > 1 and not is_wrong(s.out.double()[:, :n], x[:, :n] * factor[None, :n]).any()


def _factors(x, rng: random.Random) -> tuple:
    return (inputs.values(rng, (x.shape[0],), device=x.device),)


ROWS = _kernel_exercise(
    "rows-not-columns",
    "Read and write along rows",
    "scale_rows",
    12,
    _rows_cases,
    SpeedPlan(
        cases=CasePlan(ndim=2, more_args=_factors),
        reference=lambda x, factor: x * factor[:, None],
        shape=(8192, 8192),
        bytes_per_element=8,
    ),
    first={"strided": _too_strided},
    faults={
        **run_reports.outside(
            {"missing-guard": lambda s: s.element >= s.height * s.width, "wrong-index": always}
        ),
        **run_reports.BARRIERS,
    },
    values={"unwritten": unwritten, "transposed": _factor_of_columns, "mapping": always},
)


# ----------------------------------------------------------------------------------------- transpose in tiles
def _tile_cases(rng: random.Random, device: str) -> Iterator[Case]:
    shapes = [(32, 32), (64, 96), (33, 31), (1, 1), (1, 70), (70, 1), (31, 65)]
    for x, _ in _matrices(rng, shapes, 6, 130, 130):
        yield run_reports.run_case([x.to(device)], x.t().contiguous())
    yield _traced(64, 96, expected=75)
    yield _traced(96, rng.choice((32, 64, 128)), expected=75)


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


TILES = _kernel_exercise(
    "transpose-in-tiles",
    "Transpose in tiles",
    "transpose",
    25,
    _tile_cases,
    SpeedPlan(cases=CasePlan(ndim=2), reference=lambda x: x.t(), shape=(8192, 8192), bytes_per_element=8),
    first={
        "strided": _too_strided,
        **{tile: _in_text(tile) for tile in ("not-shared", "tile-too-small", "eight-rows")},
    },
    faults=run_reports.TILES,
    values={
        "unwritten": unwritten,
        "not-turned": _is_input,
        "not-turned/shape": _is_reshaped_input,
        "tiles-in-place": lambda s: min(s.height, s.width) > 32,
        "mapping": always,
    },
)

EXERCISES = (COVER, GUARD, REFUSE, ROWS, TILES, SLOW_KERNEL)

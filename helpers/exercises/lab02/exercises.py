"""The exercises of lab 02, load_inline: a grid, a guard, a wrapper's checks, rows and columns, a transpose in tiles."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from helpers.exercises import inputs
from helpers.exercises.lab02 import beside, launchers, runs, traps, wrapper
from helpers.exercises.lab02.slow_kernel import SLOW_KERNEL
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from helpers.exercises.plans import CasePlan, SpeedPlan
from helpers.exercises.verdicts import is_number, raised, wrong

LAB = "02_load_inline"


# --------------------------------------------------------------------------------------------- cover a matrix
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


def _judge_cover(case: Case, outcome: Outcome) -> Verdict | None:
    if fell := raised("cover-a-matrix", "cover", case, outcome):
        return fell
    got, want = outcome.value, case.expected
    numbers = isinstance(got, (tuple, list)) and len(got) == 3
    if not numbers or not all(is_number(v) for v in got):
        sentence = f"on {case.label} it returned {got!r}, not three numbers"
        return wrong("cover-a-matrix", case, sentence, "no-tuple", "Return (across, down, idle).")
    if tuple(got) == want:
        return None
    height, width, block_x, block_y = case.args
    sentence = f"on {case.label} it returned {tuple(got)}, but it is {want}"
    if (got[0], got[1]) == want[:2]:
        mistake, hint = "idle", "Idle threads: all threads of all blocks, less one for each element."
    elif (got[0], got[1]) == (want[1], want[0]) or (got[0], got[1]) == (
        -(-height // block_x),
        -(-width // block_y),
    ):
        mistake, hint = "x-for-rows", "x counts columns, so `across` comes from width and block_x."
    elif got[0] == width // block_x and got[1] == height // block_y:
        mistake, hint = "rounded-down", "The rest at the edge needs a block too: round up."
    elif got[0] == width // block_x + 1 or got[1] == height // block_y + 1:
        mistake, hint = (
            "one-too-many",
            "Where blocks fit exactly no further one is needed: (n + size - 1) // size.",
        )
    else:
        mistake, hint = (
            "blocks",
            "As many blocks in each direction as it takes to cover it, each direction by itself.",
        )
    return wrong("cover-a-matrix", case, sentence, mistake, hint)


COVER = Exercise(
    id="cover-a-matrix",
    lab=LAB,
    title="Cover a matrix with blocks",
    name="cover",
    minutes=5,
    cases=_cover_cases,
    judge=_judge_cover,
)


# ------------------------------------------------------------------------------------------- mend the guard
def _special(rng: random.Random, height: int, width: int):
    """Normal values with NaN, infinities and zeros among them."""
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


def _judge_guard(case: Case, outcome: Outcome) -> Verdict | None:
    if fell := runs.fell("mend-the-guard", "DIFFERENCE_CUDA", case, outcome):
        return fell
    value = outcome.value
    height, width, block_x, block_y = case.args if case.call == "writers" else case.args[2]
    if value.get("cause") == "out of bounds" and value["block"]:
        row = value["block"][1] * block_y + value["thread"][1]
        col = value["block"][0] * block_x + value["thread"][0]
        first, *rest = value["trouble"].split("\n")
        sentence = f"on {case.label}: {first.rstrip('.')} (the thread's row is {row}, its column {col})"
        if row < height and col < width:
            mistake, hint = (
                "neighbour",
                "The last column has no right neighbour: its result is 0, without a read.",
            )
        else:
            mistake, hint = "missing-guard", "The grid is rounded up: send threads outside the matrix home."
        return wrong("mend-the-guard", case, sentence, mistake, hint, "\n".join(rest))
    if found := runs.troubled("mend-the-guard", case, value):
        return found
    if case.call != "writers":
        return runs.wrong_values("mend-the-guard", case, value, _why_difference)
    if value["writers"] == case.expected:
        return None
    sentence = f"right, but on {case.label} {value['writers']} threads write the same element"
    hint = "Each thread has one element, that of its row and column, and writes no other."
    return wrong("mend-the-guard", case, sentence, "many-writers", hint)


def _why_difference(out, case: Case) -> tuple[str, str]:
    wrong = runs.is_wrong(out, case.expected)
    if out[wrong].isnan().all():
        return (
            "guard-too-strict",
            "NaN: no thread wrote there. Your guard sends threads home that have work to do.",
        )
    if bool(wrong[:, -1].any()) and not bool(wrong[:, :-1].any()):
        return (
            "neighbour",
            "The last column has no right neighbour: what lies behind it is the next row. It gets 0.",
        )
    if not runs.is_wrong(-out, case.expected).any():
        return "sign", "Right neighbour minus the element itself."
    return "missing-guard", "Did threads beyond the last column write into the next row?"


MEND = Exercise(
    id="mend-the-guard",
    lab=LAB,
    title="Mend the missing guard",
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
    adapters={"wrapped": beside.wrapped},
    served={"wrapped": wrapper.serve},
    on_gpu=True,
)


# -------------------------------------------------------------------------------------------- rows, not columns
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
    # The least share of the sectors' bytes to be used, in per cent; rows of 100 columns begin inside a sector.
    for height, width, least in [(64, 256, 75), (rng.randrange(40, 70), 100, 60)]:
        yield Case(
            f"a traced run on a {height} × {width} matrix", (height, width), expected=least, call="count"
        )


def _judge_rows(case: Case, outcome: Outcome) -> Verdict | None:
    id = "rows-not-columns"
    if fell := runs.fell(id, "SCALE_ROWS_CUDA", case, outcome):
        return fell
    if case.call == "count":
        return _judge_use(
            id,
            case,
            outcome.value,
            "Write down what threads 0 and 1 of a warp get. Which of row and column should they share, and which not?",
        )
    return runs.troubled(id, case, outcome.value) or runs.wrong_values(id, case, outcome.value, _why_rows)


def _judge_use(id: str, case: Case, value: dict, hint: str) -> Verdict | None:
    if found := runs.troubled(id, case, value):
        return found
    for argument in ("input", "output"):
        sectors, used = value[argument]
        if not used >= case.expected:
            sentence = (
                f"right, but in {case.label} a warp's request for `{argument}` touches {sectors:.3g} sector{'' if sectors == 1 else 's'} "
                f"and uses {used:.3g} % of their bytes (at least {case.expected} % is asked for)"
            )
            return wrong(id, case, sentence, "strided", hint)
    return None


def _why_rows(out, case: Case) -> tuple[str, str]:
    x, factor = (t.cpu() for t in case.args[0])
    n = min(x.shape)
    wrong = runs.is_wrong(out.double(), case.expected)
    if out[wrong].isnan().all():
        return "unwritten", "NaN: no thread wrote there. Does your mapping reach every row and column once?"
    across = x.double()[:, :n] * factor.double()[None, :n]
    if x.shape[1] > 1 and not runs.is_wrong(out.double()[:, :n], across)[: x.shape[0]].any():
        return "transposed", "The factor belongs to the row, not to the column."
    return "mapping", "index = row * width + col; the factor is factor[row]."


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


# ------------------------------------------------------------------------------------------ transpose in tiles
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


def _judge_tiles(case: Case, outcome: Outcome) -> Verdict | None:
    id = "transpose-in-tiles"
    if fell := runs.fell(id, "TRANSPOSE_CUDA", case, outcome):
        return fell
    if case.call == "count":
        hint = (
            "Neighbouring threads read along a row of the input and write along a row of the output: "
            "the turn happens between the two, in shared memory."
        )
        return _judge_use(id, case, outcome.value, hint)
    found = runs.troubled(id, case, outcome.value) or runs.wrong_values(id, case, outcome.value, _why_tiles)
    trap = outcome.value.get("tile", "")
    if found is None or not trap or found.mistake in ("changes-input", "launch", "barrier-in-if"):
        return found
    if trap == "eight-rows" and found.mistake == "missing-barrier":
        return found
    return replace(found, mistake=trap, hint=traps.TILE[trap])


def _why_tiles(out, case: Case) -> tuple[str, str]:
    x, wrong = case.args[0][0].cpu(), runs.is_wrong(out, case.expected)
    if out[wrong].isnan().all():
        return (
            "unwritten",
            "NaN: no thread wrote there. Guard the write with the output's sizes: it has width rows of height.",
        )
    if x.shape[0] == x.shape[1] and not runs.is_wrong(out, x).any():
        return (
            "not-turned",
            "That is the input itself: turn the tile when you read it back, tile[threadIdx.x][…].",
        )
    if case.expected.numel() and not runs.is_wrong(out.reshape(-1), x.reshape(-1)).any():
        return "not-turned", "That is the input in another shape: its elements have to change places."
    if min(x.shape) > 32:
        return (
            "tiles-in-place",
            "Each tile is turned, but it must also go to the place across: blockIdx.x and blockIdx.y change roles.",
        )
    return (
        "mapping",
        "output[col * height + row] = input[row * width + col]: which index does the write need?",
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

EXERCISES = (COVER, MEND, REFUSE, ROWS, TILES, SLOW_KERNEL)

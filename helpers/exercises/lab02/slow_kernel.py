"""Lab 02's free exercise: say what limits a slow kernel, fix it, and say by how much its accesses fall."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from helpers.exercises import writeup
from helpers.exercises.consistency import Claim, Data, Figure, Problem, WriteUpJudge
from helpers.exercises.guarded_run import is_wrong, unwritten
from helpers.exercises.lab02 import centred, run_reports
from helpers.exercises.mistakes import Seen, always
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from helpers.exercises.verdicts import raised

ID, NAME = "slow-kernel", "MENDED"
_FIXED = 4  # times fewer loads, at least
_WITHIN = 0.1  # of a claimed fall


def _cases(rng: random.Random, device: str) -> Iterator[Case]:
    import torch

    yield Case("your write-up", call="form")
    shapes = [(2, 256), (3, 5), (1, 1), (2, 1000), (5, 33), (rng.randrange(1, 9), rng.randrange(1, 700))]
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for height, width in shapes:
        x = torch.randn(height, width, generator=generator)
        right = x.double() - x.double().mean(dim=1, keepdim=True)
        args = ([x.to(device)], (height, width), [height, width])
        yield Case(f"a {height} × {width} matrix", args, expected=right.to(device), call="run")
    yield Case("your write-up", call="read")


def _is_sum(s: Seen) -> bool:
    x = s.case.args[0][0].cpu().double()
    return not is_wrong(s.out.double(), x - x.sum(dim=1, keepdim=True)).any()


_judge_run = run_reports.make_judge(
    ID,
    "the kernel in work",
    faults={
        "missing-guard": lambda s: s.cause == "out of bounds",
        "missing-barrier": lambda s: s.cause == "uninitialised",
        "missing-barrier/race": lambda s: s.cause == "race",
        "barrier-in-if": lambda s: s.cause == "barrier",
    },
    values={"unwritten": unwritten, "sum-not-mean": _is_sum, "mean": always},
)


def _judge(case: Case, outcome: Outcome) -> Verdict | None:
    if case.call == "form":
        return raised(ID, NAME, case, outcome) or _WRITTEN.unfinished(outcome.value)
    if case.call == "run" or outcome.error:
        return _judge_run(case, outcome)
    return _WRITTEN(case, outcome)


def _data(value: Mapping[str, Any]) -> Data:
    before, after = value["before"], value["after"]
    height, width = centred.SHAPE
    loads_fall = before["loads"] / after["loads"] if after["loads"] else float("inf")
    sectors_fall = before["sectors"] / after["sectors"]
    on = f"on {height} × {width}"
    problems = ()
    if loads_fall < _FIXED:
        says = (
            f"the kernel in work loads {after['loads']:,} times {on}, and the slow one {before['loads']:,} "
            "times, "
            f"which is {loads_fall:.2f} times as many"
        )
        problems = (
            Problem(
                "not-fixed",
                says,
                f"Fix it in any way you like, so that it loads at most 1 / {_FIXED} as often.",
            ),
        )
    counted = {
        "loads": "the loads of all threads",
        "requests": "the warps' requests",
        "sectors": "the sectors that they touch",
        "sectors_a_request": "the sectors per request",
        "bytes_used_percent": "the used part of the sectors' bytes",
        "loads_an_element": "the loads per element",
    }
    figures = {
        f"{name}_{when}": Figure(float(found[name]), f"{what} of the {which} kernel {on}", 0.02)
        for when, found, which in (("before", before, "slow"), ("after", after, "fixed"))
        for name, what in counted.items()
    }
    per_element, sectors, used = (
        before[name] for name in ("loads_an_element", "sectors_a_request", "bytes_used_percent")
    )
    findings = {
        "repeated-loads": Claim(
            per_element > 4,
            f"each element costs {per_element:.0f} loads, where 2 are enough",
            ("loads_an_element_before", "loads_before", "requests_before"),
        ),
        "one-address-a-warp": Claim(
            used < 50,
            f"a request touches {sectors:.2f} sectors and uses {used:.0f} % of their bytes: the lanes of a "
            "warp all request the same number",
            ("sectors_a_request_before", "bytes_used_percent_before"),
        ),
        "strided": Claim(sectors > 4.5, f"a request touches {sectors:.2f} sectors, and 32 neighbors fill 4"),
        "idle-threads": Claim(
            before["threads"] < height * width, f"{before['threads']} threads touch memory {on}"
        ),
        "bank-conflicts": Claim(False, "the slow kernel doesn't use shared memory"),
        "arithmetic": Claim(None, "the host counts accesses, but doesn't measure time"),
    }
    allows = {
        f"{name}_fall": (
            fall * (1 - _WITHIN),
            fall * (1 + _WITHIN),
            f"the host counts {before[name]:,.0f} {name} before and {after[name]:,.0f} after",
        )
        for name, fall in (("loads", loads_fall), ("sectors", sectors_fall))
    }
    changes = {
        "sum-once": Claim(
            after["loads_an_element"] <= 4,
            f"each element now costs {after['loads_an_element']:.1f} loads",
            allows=allows,
        ),
        "shared-memory": Claim(
            value["shared"],
            f"the text in work has {'' if value['shared'] else 'no '}__shared__ memory",
            allows=allows,
        ),
        "shuffle": Claim(
            value["shuffles"],
            f"the text in work has {'' if value['shuffles'] else 'no '}warp shuffles",
            allows=allows,
        ),
        "wider-loads": Claim(
            after["widest_load_bytes"] > 4,
            f"its widest load moves {after['widest_load_bytes']} bytes",
            allows=allows,
        ),
        "fewer-threads-load": Claim(
            after["loads"] < before["loads"] / _FIXED,
            f"{after['loads']:,} loads instead of {before['loads']:,}",
            allows=allows,
        ),
    }
    questions = {
        "time-on-a-gpu": Claim(None, "the host counts accesses, but doesn't measure time"),
        "cache-hits": Claim(
            None, "the host has no cache, but a GPU's L1 may serve most of the repeated loads"
        ),
        "wider-rows": Claim(None, f"only {height} × {width} was counted"),
        "which-loads-repeat": Claim(
            True, f"the loop's line makes {per_element - 1:.0f} of the {per_element:.0f} loads per element"
        ),
    }
    predicted = ("loads_fall", "sectors_fall")
    return Data("the host's counts", figures, findings, changes, questions, predicted, problems=problems)


_WRITTEN = WriteUpJudge(ID, NAME, _data)

SLOW_KERNEL = Exercise(
    id=ID,
    lab="02_load_inline",
    title="Fix a slow kernel, and say by how much",
    name=NAME,
    minutes=25,
    cases=_cases,
    judge=_judge,
    adapters={"form": centred.form, "run": centred.run, "read": centred.read},
    text=writeup.as_text,
    prepare=centred.prepare,
    on_gpu=True,
)

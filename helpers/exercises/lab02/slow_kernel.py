"""Lab 02's free exercise: say what limits a slow kernel, fix it, and predict how its accesses drop."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from helpers.exercises import writeup
from helpers.exercises.consistency import Claim, Data, Figure, Problem, WriteUpJudge
from helpers.exercises.guarded_run import is_wrong, unwritten
from helpers.exercises.lab02 import centred, run_reports
from helpers.exercises.mistakes import Seen, always, sentences
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from helpers.exercises.verdicts import raised

ID, LAB, NAME = "slow-kernel", "02_load_inline", "SLOW_KERNEL"
_FIXED = 4  # times fewer loads, at least
_WITHIN = 0.1  # of a claimed fall
_COUNTED = {
    "loads": "loads of all threads",
    "requests": "requests of all warps",
    "sectors": "sectors that the requests touch",
    "sectors_a_request": "sectors per request",
    "bytes_used_percent": "used share of the sectors' bytes",
    "loads_an_element": "loads per element",
}


def _cases(rng: random.Random, device: str) -> Iterator[Case]:
    import torch

    yield Case("your write-up", call="form")
    shapes = [(2, 256), (3, 5), (1, 1), (2, 1000), (5, 33), (rng.randrange(1, 9), rng.randrange(1, 700))]
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for shape in shapes:
        x = torch.randn(shape, generator=generator)
        right = x.double() - x.double().mean(dim=1, keepdim=True)
        yield run_reports.run_case([x.to(device)], right)
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
    shape = f"{height} × {width}"
    falls = {
        "loads": before["loads"] / after["loads"] if after["loads"] else float("inf"),
        "sectors": before["sectors"] / after["sectors"],
    }
    problems = ()
    if falls["loads"] < _FIXED:
        says = (
            f"the kernel in work makes {after['loads']:,} loads on {shape}, and the slow one makes "
            f"{before['loads']:,}, which is {falls['loads']:.2f} times as many"
        )
        hint = f"Fix it in any way you like, but let it make at most 1 / {_FIXED} of the loads."
        problems = (Problem("not-fixed", says, hint),)
    figures = {
        f"{name}_{when}": Figure(float(found[name]), f"{what}, in the {which} kernel on {shape}", 0.02)
        for when, found, which in (("before", before, "slow"), ("after", after, "fixed"))
        for name, what in _COUNTED.items()
    }
    allows = {
        f"{name}_fall": (
            fall * (1 - _WITHIN),
            fall * (1 + _WITHIN),
            f"the host counts {before[name]:,.0f} {name} before and {after[name]:,.0f} after",
        )
        for name, fall in falls.items()
    }
    known = {**before, "after": after, "shape": shape, "repeated": before["loads_an_element"] - 1}
    known |= {name: "" if value[name] else "no " for name in ("shared", "shuffles")}
    texts = {key: text.format_map(known) for key, text in sentences(LAB, "data")[ID].items()}
    findings = {
        "repeated-loads": (before["loads_an_element"] > 4, "loads_an_element", "loads", "requests"),
        "one-address-a-warp": (before["bytes_used_percent"] < 50, "sectors_a_request", "bytes_used_percent"),
        "strided": (before["sectors_a_request"] > 4.5,),
        "idle-threads": (before["threads"] < height * width,),
        "bank-conflicts": (False,),
        "arithmetic": (None,),
    }
    changes = {
        "sum-once": after["loads_an_element"] <= 4,
        "shared-memory": value["shared"],
        "shuffle": value["shuffles"],
        "wider-loads": after["widest_load_bytes"] > 4,
        "fewer-threads-load": after["loads"] < before["loads"] / _FIXED,
    }
    questions = {"time-on-a-gpu": None, "cache-hits": None, "wider-rows": None, "which-loads-repeat": True}
    return Data(
        "the host's counts",
        figures,
        {
            name: Claim(holds, texts[name], tuple(f"{figure}_before" for figure in evidence))
            for name, (holds, *evidence) in findings.items()
        },
        {name: Claim(holds, texts[name], allows=allows) for name, holds in changes.items()},
        {name: Claim(answer, texts[name]) for name, answer in questions.items()},
        predicted=tuple(allows),
        problems=problems,
    )


_WRITTEN = WriteUpJudge(ID, NAME, _data)

SLOW_KERNEL = Exercise(
    id=ID,
    lab=LAB,
    title="Fix a slow kernel, and predict by how much",
    name=NAME,
    minutes=25,
    cases=_cases,
    judge=_judge,
    adapters={"form": centred.form, "run": centred.run, "read": centred.read},
    text=writeup.as_text,
    prepare=centred.prepare,
    on_gpu=True,
)

"""Lab 02's free exercise: name what limits a slow kernel, mend it by any way, and say by how much its accesses fall."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from helpers.exercises import writeup
from helpers.exercises.consistency import Claim, Data, Figure, Problem, WriteUpJudge
from helpers.exercises.lab02 import centred, runs
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from helpers.exercises.verdicts import raised, wrong

ID, NAME = "slow-kernel", "MENDED"
_MENDED = 4  # times fewer loads: less is no mending
_WITHIN = 0.1  # of a claimed fall

_TROUBLE = {
    "out of bounds": ("missing-guard", "A block has 256 threads, and a row any number of columns: which threads have none of it?"),
    "uninitialised": ("missing-barrier", "Another thread fills that place, or none does: __syncthreads() before it is read, and every place filled."),
    "race": ("missing-barrier", "Two threads use that place without a __syncthreads() between them."),
    "barrier": ("barrier-in-if", "All threads of a block have to reach __syncthreads(): put it outside the if."),
}  # fmt: skip


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


def _judge(case: Case, outcome: Outcome) -> Verdict | None:
    if case.call == "form":
        return raised(ID, NAME, case, outcome) or _WRITTEN.unfinished(outcome.value)
    if fell := runs.fell(ID, "the kernel in work", case, outcome):
        return fell
    if case.call == "read":
        return _WRITTEN(case, outcome)
    value = outcome.value
    if "trouble" in value:
        first, *rest = value["trouble"].split("\n")
        usual = (value["cause"].replace(" ", "-"), "Look at that line: the run is made on the host.")
        mistake, hint = _TROUBLE.get(value["cause"], usual)
        return wrong(ID, case, f"on {case.label}: {first}", mistake, hint, "\n".join(rest))
    return runs.troubled(ID, case, value) or runs.wrong_values(ID, case, value, _why)


def _why(out: Any, case: Case) -> tuple[str, str]:
    x = case.args[0][0].cpu().double()
    bad = runs.is_wrong(out.double(), case.expected)
    if out[bad].isnan().all():
        return (
            "unwritten",
            "NaN: no thread wrote there. A row may have more columns than the block has threads.",
        )
    if not runs.is_wrong(out.double(), x - x.sum(dim=1, keepdim=True)).any():
        return "sum-not-mean", "That is the row less its sum: divide by width."
    return "mean", "Each element less the mean of its own row, whatever the row's width."


def _data(value: Mapping[str, Any]) -> Data:
    before, after = value["before"], value["after"]
    height, width = centred.SHAPE
    loads_fall = before["loads"] / after["loads"] if after["loads"] else float("inf")
    sectors_fall = before["sectors"] / after["sectors"]
    on = f"on {height} × {width}"
    problems = ()
    if loads_fall < _MENDED:
        says = f"the kernel in work loads {after['loads']:,} times {on}, the slow one {before['loads']:,}: that is {loads_fall:.2f} times fewer"
        problems = (Problem("not-mended", says, f"Mend it, by any way: {_MENDED} times fewer at the least."),)
    counted = {
        "loads": "loads of all threads", "requests": "the warps' requests", "sectors": "sectors that they touch",
        "sectors_a_request": "sectors a request", "bytes_used_percent": "the used part of the sectors' bytes",
        "loads_an_element": "loads an element",
    }  # fmt: skip
    figures = {
        f"{name}_{when}": Figure(float(found[name]), f"{what} of the {which} kernel {on}", 0.02)
        for when, found, which in (("before", before, "slow"), ("after", after, "mended"))
        for name, what in counted.items()
    }
    per_element, sectors, used = (before[name] for name in ("loads_an_element", "sectors_a_request", "bytes_used_percent"))  # fmt: skip
    findings = {
        "repeated-loads": Claim(per_element > 4, f"each element costs {per_element:.0f} loads, and 2 would do", ("loads_an_element_before", "loads_before", "requests_before")),
        "one-address-a-warp": Claim(used < 50, f"a request touches {sectors:.2f} sectors, and {used:.0f} % of their bytes are used: the lanes of a warp ask for one number", ("sectors_a_request_before", "bytes_used_percent_before")),
        "strided": Claim(sectors > 4.5, f"a request touches {sectors:.2f} sectors, and 32 neighbours fill 4"),
        "idle-threads": Claim(before["threads"] < height * width, f"{before['threads']} threads touch memory {on}"),
        "bank-conflicts": Claim(False, "the slow kernel has nothing in shared memory"),
        "arithmetic": Claim(None, "the host counts accesses, and no time"),
    }  # fmt: skip
    allows = {
        f"{name}_fall": (fall * (1 - _WITHIN), fall * (1 + _WITHIN), f"the host counts {before[name]:,.0f} {name} before and {after[name]:,.0f} after")
        for name, fall in (("loads", loads_fall), ("sectors", sectors_fall))
    }  # fmt: skip
    changes = {
        "sum-once": Claim(after["loads_an_element"] <= 4, f"each element costs {after['loads_an_element']:.1f} loads now", allows=allows),
        "shared-memory": Claim(value["shared"], f"the text in work has {'' if value['shared'] else 'no '}__shared__ memory", allows=allows),
        "shuffle": Claim(value["shuffles"], f"the text in work has {'' if value['shuffles'] else 'no '}warp shuffles", allows=allows),
        "wider-loads": Claim(after["widest_load_bytes"] > 4, f"its widest load moves {after['widest_load_bytes']} bytes", allows=allows),
        "fewer-threads-load": Claim(after["loads"] < before["loads"] / _MENDED, f"{after['loads']:,} loads instead of {before['loads']:,}", allows=allows),
    }  # fmt: skip
    questions = {
        "time-on-a-gpu": Claim(None, "the host counts accesses, and no time"),
        "cache-hits": Claim(None, "the host has no cache: a GPU's L1 may answer most of the repeated loads"),
        "wider-rows": Claim(None, f"the counts are of {height} × {width} alone"),
        "which-loads-repeat": Claim(True, f"the loop's line makes {per_element - 1:.0f} of the {per_element:.0f} loads an element"),
    }  # fmt: skip
    predicted = ("loads_fall", "sectors_fall")
    return Data("the host's counts", figures, findings, changes, questions, predicted, problems=problems)


_WRITTEN = WriteUpJudge(ID, NAME, _data)

SLOW_KERNEL = Exercise(
    id=ID,
    lab="02_load_inline",
    title="Mend a slow kernel, and say by how much",
    name=NAME,
    minutes=25,
    cases=_cases,
    judge=_judge,
    adapters={"form": centred.form, "run": centred.run, "read": centred.read},
    text=writeup.as_text,
    prepare=centred.prepare,
    on_gpu=True,
)

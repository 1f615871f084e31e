"""Verify one candidate: run the checks in order, and collect what they find."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from helpers import device
from workbook.sandbox import cgroup
from workbook.sandbox.process import Limits, WorkerDied
from workbook.usage import UsageError, first_line
from workbook.verify import checks, source, speed
from workbook.verify.allocator import kept_memory
from workbook.verify.arguments import alike, map_tensors
from workbook.verify.blame import needs_gpu
from workbook.verify.judging import NO_MEMORY, Judge, lacks_memory
from workbook.verify.problem import BENCHMARK, BEYOND, Candidate, Case, FullSize, Problem
from workbook.verify.suspect import TOO_LARGE, Forged, Raised, Suspect
from workbook.verify.verdict import DISHONEST, LIMIT, NOTE, WRONG, Finding, Speed, Verdict

_ORDER = (WRONG, DISHONEST, LIMIT, NOTE)
_KNOWN_S = 5.0  # for the benchmark's own inputs of other sizes than the first
_N_SEEDS = 2  # how often each of the benchmark's cases is tried, each time with other values
_REFUSALS = ("AssertionError", "ValueError", "NotImplementedError")
_DECOMPOSES = re.compile(r"\._?(linalg_(?:eig|svd|qr)\w*|svd|qr|geqrf)\.")
_OWN_FAULT = ("SyntaxError", "NameError", "IndentationError")


@dataclass(frozen=True)
class Settings:
    """How to verify.

    Attributes:
        seed: makes the inputs.
        sandboxed: whether the candidate runs in a sandbox.
        time_limit_s: seconds for one call; everything together gets ten times as much.
        memory_mb: memory of the candidate's process, MB (10^6 bytes).
        timed: whether to measure its speed, if there is a GPU.
    """

    seed: int = 0
    sandboxed: bool = True
    time_limit_s: float = 60.0
    memory_mb: float = 8000.0
    timed: bool = True


def verify(
    problem: Problem, candidate: Candidate, settings: Settings, say: Callable[[str], None] = lambda _: None
) -> Verdict:
    """Run all checks on a candidate.

    Args:
        problem: what it must compute.
        candidate: its code, which only runs in a process of its own.
        settings: limits and the seed.
        say: is called with what happens now.

    Raises:
        UsageError: the problem's reference fails.
    """
    start = time.monotonic()
    with kept_memory(), cgroup.limited(settings.memory_mb) as group:
        found = _Verification(problem, candidate, settings, say).run(group, start)
    return replace(found, seconds=time.monotonic() - start)


class _Verification:
    def __init__(
        self, problem: Problem, candidate: Candidate, settings: Settings, say: Callable[[str], None]
    ) -> None:
        self._problem, self._candidate, self._settings, self._say = problem, candidate, settings, say
        self._on_gpu = device.has_gpu()
        self._judge = Judge(problem)
        self._findings: list[Finding] = []
        self._places: dict[tuple[str, ...], set[str]] = {}  # the cases that show the same
        self._speed: list[Speed] = []
        self._blocked, self._is_beyond = "", False
        self._has_parameters = self._is_seeded = False
        self._not_judged = [] if self._on_gpu else list(_ONLY_WITH_A_GPU)

    def run(self, group: cgroup.Cgroup | None, start: float) -> Verdict:
        limits = Limits(
            self._settings.time_limit_s, 10 * self._settings.time_limit_s, self._settings.memory_mb,
            self._settings.sandboxed,
        )  # fmt: skip
        until = start + limits.total_s
        cases = self._cases()
        try:
            self._say("starting the candidate's process")
            with Suspect(self._candidate, limits, until, group, not self._on_gpu) as suspect:
                if self._on_gpu and not suspect.sees_gpu:
                    self._blocked = "the sandbox can't use the GPU; pass --unsafe if you trust the code"
                else:
                    self._examine(suspect, cases)
                full = self._problem.full_size
                if full and self._settings.timed and self._is_right() and not self._blocked:
                    self._time_full_size(
                        suspect, full, lambda: Suspect(self._candidate, limits, until, group, False)
                    )
        except WorkerDied as gone:
            self._add(self._of_death(gone))
        except Forged as error:
            says = f"Its process sent {error}, which the verifier's own code never sends."
            self._add([Finding("forged-answer", DISHONEST, says)])
        except Raised as error:  # while it was asked for something that runs none of its code
            self._fail(error, "")
        except torch.OutOfMemoryError:
            self._add([Finding("raises", NOTE, NO_MEMORY)])
        return self._verdict()

    def _time_full_size(self, suspect: Suspect, full: FullSize, again: Callable[[], Suspect]) -> None:
        """Time it at the benchmark's own sizes, in the same process, which has built it already; in another
        one if an illegal access has broken that.
        """
        self._say("timing it at the benchmark's own sizes")
        with contextlib.ExitStack() as opened:
            try:
                suspect.forget()
            except Raised:
                suspect.close()
                suspect = opened.enter_context(again())
                suspect.is_seeded = self._is_seeded
            seed, tf32 = self._settings.seed + _N_SEEDS, self._problem.precision == "tf32"
            found, self._speed = speed.measure_full_size(suspect, full, seed, tf32=tf32)
            self._add(found)

    def _examine(self, suspect: Suspect, cases: Sequence[Case]) -> None:
        self._say("importing it")
        suspect.is_seeded = self._candidate.kind == "model" and bool(self._candidate.state)
        try:
            self._has_parameters = suspect.load()
        except Raised as error:
            self._fail(error, "at import")
            return
        self._add(source.findings(self._candidate))
        self._add(checks.watched(suspect, "at import"))
        n_known = len(suspect.watched()["events"])
        if not cases:
            self._blocked = "the problem has no case that this machine can run"
            return
        first = cases[0]
        operators = self._look_at(first)
        if self._judge.is_random(first):
            self._blocked = (
                "the reference draws random numbers, so its results differ from call to call and nothing can "
                "be compared with them"
            )
            return
        if self._problem.keeps_state:
            self._blocked = (
                "the reference keeps state from call to call, so its results depend on all calls before, and "
                "single calls can't be compared"
            )
            return
        inside = [case for case in cases if case.role != BEYOND]
        beyond = [case for case in cases if case.role == BEYOND]
        if suspect.is_seeded and not self._is_right_when_seeded(suspect, first):
            suspect.is_seeded = False
            suspect.load()
        self._is_seeded = suspect.is_seeded
        self._say(f"comparing {len(inside)} cases")
        before = len(self._findings)
        self._add(checks.results(suspect, self._judge, inside))
        if self._give_up(self._findings[before:]) or self._is_open(operators):
            return
        own_cases = [case for case in cases if case.role == BENCHMARK and alike(case, first)]
        judge, seed = self._judge, self._settings.seed
        steps: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
            ("looking for late work", lambda: checks.late_results(suspect, judge, first)),
            ("changing the inputs in place", lambda: checks.stale(suspect, judge, first, own_cases, seed)),
        ]
        if self._is_right():
            steps += [
                ("trying other values", lambda: checks.values(suspect, judge, first, seed)),
                ("trying other values of other sizes",
                 lambda: checks.values_of_sizes(suspect, judge, _of_each_size(inside, first), seed)),
                ("overwriting its result", lambda: checks.memoized(suspect, judge, first)),
                ("calling it many times", lambda: checks.repeated(suspect, judge, first)),
                ("calling it without a pause", lambda: checks.alternated(suspect, judge, own_cases)),
                ("calling it with the same values", lambda: checks.again(suspect, judge, first, seed + 1)),
                ("calling it with the benchmark's own inputs", lambda: self._known(suspect, first)),
                ("listing its operators", lambda: checks.library(suspect, operators, first)),
                ("changing its parameters",
                 lambda: checks.parameters(suspect, judge, self._problem, first, seed)),
            ]  # fmt: skip
        for what, step in steps:
            self._say(what)
            self._add(step())
        if self._on_gpu and self._settings.timed and not self._problem.full_size and self._is_right():
            self._say("timing it")
            found, self._speed = speed.measure(suspect, self._judge, self._problem, self._timed())
            self._add(found)
        self._add(checks.watched(suspect, "during the calls", n_known))
        if self._is_right():  # last, because an illegal access may end its process
            self._is_beyond = True
            self._say("trying other layouts and sizes")
            self._add(checks.layouts(suspect, judge, first))
            self._add(checks.results(suspect, judge, beyond))
            if self._candidate.entry.partition("::")[0].endswith(".py"):
                self._add(checks.executed(suspect, judge, first))

    def _is_right_when_seeded(self, suspect: Suspect, first: Case) -> bool:
        """Whether a model has the reference's parameters if it is constructed with the same seed, as in
        KernelBench; those that it has computed from them may have any form.
        """
        if self._has_parameters:
            return True
        try:
            suspect.put("seeded", first.args)
            return self._judge.judge(first, suspect.call("seeded", first)) is None
        except Raised:
            return True  # with other parameters, too

    def _known(self, suspect: Suspect, first: Case) -> Iterator[Finding]:
        """See whether it recognizes inputs that the benchmark makes with seeds of its own."""
        end = time.monotonic() + _KNOWN_S
        for case in map(self._placed, self._problem.own_cases()):
            if alike(case, first) or self._judge.is_quick(case):
                yield from checks.known(suspect, self._judge, case, self._settings.seed)
            if time.monotonic() > end:
                return

    def _look_at(self, case: Case) -> set[str]:
        """Call the reference once, so that its mistakes aren't taken for the candidate's."""
        try:
            return self._judge.look_at(case)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            says = f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(f"{self._problem.name}: its reference fails on {case.label} ({says}).") from None

    def _cases(self) -> list[Case]:
        """The benchmark's cases with two seeds, then the others, where the candidate will compute."""
        seeds = [self._settings.seed + i for i in range(_N_SEEDS)]
        drawn = [list(self._problem.cases(seed)) for seed in seeds]
        own = [case for cases in zip(*drawn, strict=True) for case in cases if case.role == BENCHMARK]
        other = [case for case in drawn[0] if case.role != BENCHMARK]
        return [self._placed(case) for case in (*own, *other)]

    def _placed(self, case: Case) -> Case:
        """The case where the candidate computes. A tensor that is passed several times becomes several."""
        places: set[int] = set()

        def placed(one: torch.Tensor) -> torch.Tensor:
            moved = one.cuda() if self._on_gpu else one.cpu()
            moved = moved.clone() if moved.numel() and moved.data_ptr() in places else moved
            places.add(moved.data_ptr())
            return moved

        return replace(case, args=map_tensors(placed, case.args))

    def _timed(self) -> list[list[Case]]:
        """The benchmark's cases, grouped by shape, with values that the candidate has not seen."""
        seeds = [self._settings.seed + _N_SEEDS + i for i in range(_N_SEEDS)]
        drawn = [[case for case in self._problem.cases(seed) if case.role == BENCHMARK] for seed in seeds]
        return [[self._placed(case) for case in group] for group in zip(*drawn, strict=True)]

    def _is_right(self) -> bool:
        return not any(one.severity == WRONG for one in self._findings)

    def _add(self, findings: Iterator[Finding] | list[Finding]) -> None:
        """Add findings; of those that say the same, or differ only in the case, the first one."""
        for finding in findings:
            if finding.check == "raises" and finding.severity == NOTE:  # only a machine with a GPU could tell
                self._blocked = finding.says.partition(": ")[2].rstrip(".")
            key = _key(finding)
            same = [i for i, one in enumerate(self._findings) if _key(one) == key]
            if not same:
                self._findings.append(finding)
            if finding.check in _PER_CASE:
                self._places.setdefault(key, set()).add(_place(finding))

    def _give_up(self, findings: Sequence[Finding]) -> bool:
        """Whether it only raised errors. If this machine is to blame for them, nothing can be judged."""
        if self._blocked:
            return True
        raised = [one for one in findings if one.check == "raises" and one.severity == WRONG]
        says = raised[0].says.removeprefix("It fails: ").rstrip(".") if raised else ""
        refuses = self._problem.is_reduced and says.startswith(_REFUSALS)
        lacks_gpu = not self._on_gpu and needs_gpu(says, self._candidate)
        if TOO_LARGE in says or lacks_gpu or refuses:
            self._findings = [one for one in self._findings if one not in raised]
            why = " (the benchmark's sizes are too large here, and were divided)" if refuses else ""
            self._blocked = says + why
        return bool(raised) and len(raised) == len([one for one in findings if one.severity == WRONG])

    def _is_open(self, operators: set[str]) -> bool:
        """Whether other results than the reference's may be right, and the benchmark accepts these.

        Vectors of an eigendecomposition, for example, may have another sign.
        """
        names = sorted(found[1] for one in operators if (found := _DECOMPOSES.search(one)))
        different = [one for one in self._findings if one.check in ("wrong-result", "low-precision")]
        if not (names and different and self._judge.accepted):
            return False
        self._findings = [one for one in self._findings if one not in different]
        self._blocked = (
            f"the reference calls {names[0]}, which has several right results, and the benchmark "
            "accepts these, which are others"
        )
        return True

    def _fail(self, error: Raised, when: str) -> None:
        text = str(error)
        lacks_gpu = not self._on_gpu and needs_gpu(text, self._candidate) and error.kind not in _OWN_FAULT
        if lacks_memory(text):
            self._add([Finding("raises", NOTE, NO_MEMORY, when)])
        elif error.kind in ("ModuleNotFoundError", "too large") or lacks_gpu:
            self._blocked = text
        else:
            self._add([Finding("raises", WRONG, f"It fails: {error}.", when)])

    def _of_death(self, gone: WorkerDied) -> list[Finding]:
        if gone.mistake == "timeout" and not self._on_gpu and self._candidate.has_kernels:
            return [Finding("raises", NOTE, f"Something is not judged: the candidate {gone}.")]
        if lacks_memory(gone.log):
            return [Finding("raises", NOTE, NO_MEMORY)]
        check = "forged-answer" if gone.mistake in ("forged-answer", "unusable") else "raises"
        severity = DISHONEST if check == "forged-answer" else LIMIT if self._is_beyond else WRONG
        last = (gone.log.strip().splitlines() or [""])[-1]
        return [Finding(check, severity, f"The candidate {gone}.", last[:300])]

    def _with_others(self, finding: Finding) -> Finding:
        n = len(self._places.get(_key(finding), {""})) - 1
        also = f"\nAlso in {n} other case{'s' * (n != 1)}." if n else ""
        return replace(finding, evidence=finding.evidence + also)

    def _verdict(self) -> Verdict:
        findings = [self._with_others(one) for one in self._findings]
        findings.sort(key=lambda one: _ORDER.index(one.severity))
        tolerance = self._problem.tolerance.text if self._problem.tolerance else ""
        return Verdict(
            problem=self._problem.name,
            candidate=self._candidate.name,
            format=self._problem.format,
            findings=tuple(findings),
            cases=tuple(dict.fromkeys(self._judge.compared)),
            tolerance=tolerance,
            tolerance_accepts=self._judge.accepted,
            speed=tuple(self._speed),
            not_judged=tuple(self._not_judged),
            blocked=self._blocked,
            gpu=torch.cuda.get_device_name() if self._on_gpu else "",
            seed=self._settings.seed,
            seconds=0.0,
            sources=dict(self._candidate.sources),
            notes=self._problem.notes,
        )


# Checks that find the same thing in many cases.
_PER_CASE = (
    "wrong-result", "never-written", "low-precision", "raises", "only-some-values", "only-some-shapes",
    "only-some-layouts", "changed-input", "aliased-output",
)  # fmt: skip
_ONLY_WITH_A_GPU = (
    "its speed",
    "work on another stream",
    "CUDA graphs that don't follow their inputs",
)


def _key(finding: Finding) -> tuple[str, ...]:
    """What makes two findings the same."""
    about = "" if finding.check in _PER_CASE else finding.says
    return finding.check, finding.severity, about


def _place(finding: Finding) -> str:
    """The case in which it was found, with which its evidence begins."""
    return finding.evidence.partition("\n")[0].partition(": ")[0]


def _of_each_size(cases: Sequence[Case], first: Case) -> list[Case]:
    """One of the benchmark's cases of each size, except that of the first case."""
    found = [first]
    for case in cases:
        if case.role == BENCHMARK and not any(alike(case, one) for one in found):
            found.append(case)
    return found[1:]

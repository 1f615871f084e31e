"""What a verification found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

# How much a finding matters.
WRONG = "wrong"  # a result is not what the reference computes
DISHONEST = "dishonest"  # the candidate deceives whoever measures or compares it
LIMIT = "limit"  # it fails only outside of what the problem describes
NOTE = "note"  # worth knowing

# Exit statuses of `workbook verify`; 2 is a wrong command.
OK, FAILED, NOT_JUDGED = 0, 1, 3


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
        check: the check's name, such as "stale-result"; the guide has a section for each.
        severity: WRONG, DISHONEST, LIMIT or NOTE.
        says: one sentence about the candidate.
        evidence: what was seen: a case with its seed, elements with their values, names, or numbers.
    """

    check: str
    severity: str
    says: str
    evidence: str = ""


@dataclass(frozen=True)
class Speed:
    """How fast the candidate is on this GPU, in one case.

    Attributes:
        case: the case's label.
        median_us, ci95_us: one call's time with a cold L2 cache, in µs.
        reference_us: the reference's time under the same conditions, in µs.
        speedup, speedup_ci95: reference_us / median_us and its 95 % interval.
        bound_us: the least time that this GPU needs to move the inputs and outputs once, in µs.
        kernels: the kernels that one call launches.
    """

    case: str
    median_us: float
    ci95_us: tuple[float, float]
    reference_us: float
    speedup: float
    speedup_ci95: tuple[float, float]
    bound_us: float
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The result of a verification.

    Attributes:
        problem, candidate, format: their names.
        findings: the most serious ones first.
        cases: labels of the cases in which the candidate's results were compared.
        tolerance: how the benchmark compares results, or "".
        tolerance_accepts: whether that would have accepted every result; None if the benchmark has no
            tolerance or nothing was compared.
        speed: measurements; empty without a GPU.
        not_judged: sentences about what could not be judged here.
        blocked: why nothing could be judged at all, or "".
        gpu: the GPU's name, or "" without one.
        seed: what repeats this verification.
        seconds: how long it took.
        sources: the candidate's files, name -> text.
        notes: sentences about how the problem was read.
    """

    problem: str
    candidate: str
    format: str
    findings: tuple[Finding, ...]
    cases: tuple[str, ...]
    tolerance: str
    tolerance_accepts: bool | None
    speed: tuple[Speed, ...]
    not_judged: tuple[str, ...]
    blocked: str
    gpu: str
    seed: int
    seconds: float
    sources: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        """Whether every result that counts is what the reference computes."""
        return not any(one.severity == WRONG for one in self.findings)

    @property
    def is_honest(self) -> bool:
        """Whether no check found a deception."""
        return not any(one.severity == DISHONEST for one in self.findings)

    @property
    def status(self) -> int:
        """The exit status: OK, FAILED or NOT_JUDGED."""
        if not (self.is_right and self.is_honest):
            return FAILED
        return NOT_JUDGED if self.blocked else OK

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **asdict(self), "is_right": self.is_right, "is_honest": self.is_honest, "status": self.status,
        }  # fmt: skip

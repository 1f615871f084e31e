"""The verifier's side of a candidate's process: ask it, and check what it answers."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbook.sandbox import bubblewrap
from workbook.sandbox.cgroup import Cgroup
from workbook.sandbox.messages import plain
from workbook.sandbox.process import Limits, Process, WorkerTimeout
from workbook.verify.portable import on_cpu
from workbook.verify.problem import Candidate, Case


class Raised(Exception):
    """The candidate raised an error, or took too long.

    Attributes:
        kind: the error's type, such as "NameError"; "timeout" if it took too long.
    """

    def __init__(self, says: str, kind: str, line: int = 0) -> None:
        super().__init__(f"{says}, in line {line}" if line else says)
        self.kind = kind


class Forged(Exception):
    """The process answered with something that our side of it never sends."""


@dataclass(frozen=True)
class Answer:
    """What one call returned.

    Attributes:
        results: plain tensors on the CPU.
        is_single: whether it returned one tensor, not a tuple.
        types: the Python types of what it returned.
        aliases: for each result whether it shares an argument's memory.
        changed: the numbers of the argument tensors that it changed.
        arguments: what these hold after the call.
        is_reused: whether a result is in the same memory as one of the call before.
    """

    results: tuple[torch.Tensor, ...]
    is_single: bool
    types: tuple[str, ...]
    aliases: tuple[bool, ...]
    changed: tuple[int, ...]
    arguments: tuple[torch.Tensor, ...]
    is_reused: bool = False


class Suspect:
    """A candidate in its process; a context manager that leaves nothing running.

    Attributes:
        sees_gpu: whether the process can use a GPU.
    """

    def __init__(
        self, candidate: Candidate, limits: Limits, until: float, cgroup: Cgroup | None, interpret: bool
    ) -> None:
        """Start the process; `load` starts the candidate.

        Args:
            candidate: what will run there.
            limits, until, cgroup: as in `Process`.
            interpret: run kernels without a GPU.

        Raises:
            WorkerDied: the process did not start.
        """
        self._candidate, self._limits, self._interpret = candidate, limits, interpret
        settings = {"interpret": interpret}
        self._process = Process(
            "workbook.verify.stand", settings, [bubblewrap.HELPERS], limits, until, cgroup
        )
        self.sees_gpu = self._process.sees_gpu

    def __enter__(self) -> Suspect:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.close()

    def load(self, state: Mapping[str, Any] | None = None) -> bool:
        """Import the candidate, and construct it if it is a model; the second time, only construct it.

        Args:
            state: the parameters, if they aren't those of the reference.

        Returns:
            Whether it now has the reference's parameters.

        Raises:
            Raised: it can't be imported or constructed.
        """
        one = self._candidate
        parameters = one.state if state is None else state
        found = self._ask(
            "load", sources=self._sources(), entry=one.entry, kind=one.kind, init=list(one.init),
            init_keywords=dict(one.init_keywords), state=dict(parameters), seed=one.seed,
            options=dict(one.options), results=list(one.results),
        )  # fmt: skip
        return found.get("same_parameters") is True

    def _sources(self) -> dict[str, str]:
        """The candidate's files; without a GPU, the device that they name is the CPU."""
        found = dict(self._candidate.sources)
        for name, text in found.items() if self._interpret else ():
            with contextlib.suppress(SyntaxError):  # which the candidate's process will report
                found[name] = on_cpu(text, name) if name.endswith(".py") else text
        return found

    def put(self, slot: str, args: Sequence[Any]) -> None:
        """Store arguments, so that it can be called with the same tensors several times."""
        self._ask("put", slot=slot, args=tuple(args))

    def write(self, slot: str, args: Sequence[Any]) -> None:
        """Change the contents of the tensors in a slot, in place."""
        self._ask("write", slot=slot, args=tuple(args))

    def call(self, slot: str, case: Case, *, poison: bool = False) -> Answer:
        """Call it once.

        Raises:
            Raised: it raised an error or took too long.
            Forged: the answer isn't one.
        """
        raw = self._ask("call", slot=slot, outputs=list(case.outputs), poison=poison)
        try:
            return Answer(
                results=_tensors(raw["results"]),
                is_single=raw["is_single"] is True,
                types=tuple(str(one)[:80] for one in raw["types"]),
                aliases=tuple(one is True for one in raw["aliases"]),
                changed=tuple(int(one) for one in raw["changed"]),
                arguments=_tensors(raw["arguments"]),
                is_reused=raw["reused"] is True,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Forged(f"an answer without results ({error})") from None

    def overwrite(self) -> bool:
        """Overwrite the last results with NaN; False if they hold no floating-point numbers."""
        return self._ask("overwrite").get("overwritten") is True

    def settle(self) -> tuple[bool, tuple[torch.Tensor, ...]]:
        """Wait a moment: whether the last results have changed since the call, and what they are now."""
        raw = self._ask("settle")
        return raw.get("changed") is not False, _tensors(raw.get("results", ()))

    def repeat(self, slot: str, case: Case, n: int) -> dict[str, Any]:
        """Call it `n` times: `n_distinct` results that differ from the first, and what has `grown`.

        `grown` counts "tensors", "gpu_bytes" and "threads"; the last one is counted from outside.
        """
        before = self._process.n_threads()
        raw = self._ask("repeat", slot=slot, outputs=list(case.outputs), n=n)
        grown = {str(k): int(v) for k, v in dict(raw.get("grown", {})).items()}
        grown["threads"] = max(grown.get("threads", 0), self._process.n_threads() - before)
        return {"n_distinct": int(raw.get("n_distinct", 0)), "grown": grown}

    def operators(self, slot: str, case: Case) -> list[str]:
        """The operators of torch's dispatcher that one call uses."""
        raw = self._ask("operators", slot=slot, outputs=list(case.outputs))
        return [str(one)[:200] for one in raw.get("operators", ())][:1000]

    def time(self, slot: str, case: Case, others: Sequence[Sequence[Any]], budget_s: float) -> dict[str, Any]:
        """Time it on the GPU, with the contents of `others` in turn; see `stand._do_time`."""
        return self._ask(
            "time", slot=slot, outputs=list(case.outputs), others=[tuple(one) for one in others],
            budget_s=budget_s,
        )  # fmt: skip

    def watched(self) -> dict[str, list[Any]]:
        """What its watch has seen: "replaced", "events", "state" and "threads"."""
        raw = self._ask("watched")
        return {name: list(raw.get(name, ())) for name in ("replaced", "events", "state", "threads")}

    def _ask(self, what: str, **about: Any) -> dict[str, Any]:
        try:
            raw = self._process.request({"do": what, **about}, self._limits.cell_s)
        except WorkerTimeout:
            raise Raised(f"it ran for more than {self._limits.cell_s:g} s", "timeout") from None
        raw.pop("token", None)
        if raw.get("too_large"):
            raise Raised("its results are larger than 512 MB", "too large")
        try:
            found: Mapping[str, Any] = plain(raw)
        except ValueError as error:
            raise Forged(str(error)) from None
        if "error" in found:
            line = found.get("line", 0)
            raise Raised(str(found["error"])[:400], str(found.get("error_type", "")), int(line or 0))
        return dict(found)


def _tensors(raw: Any) -> tuple[torch.Tensor, ...]:
    if not isinstance(raw, (list, tuple)) or not all(type(one) is torch.Tensor for one in raw):
        raise Forged("results that are not tensors")
    return tuple(raw)

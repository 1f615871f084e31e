"""The verifier's side of a candidate's process: ask it, and check what it answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbook.sandbox import bubblewrap
from workbook.sandbox.cgroup import Cgroup
from workbook.sandbox.messages import plain
from workbook.sandbox.process import Limits, Process, WorkerTimeout
from workbook.verify.portable import on_cpu
from workbook.verify.problem import Candidate, Case

_BUILDS = 3  # how many times longer than a call an import may take: it may compile C++
TOO_LARGE = "results are too large for the verifier's pipe"
SLOW = "slow"  # the kind of an error that only says that this machine has no GPU


class Raised(Exception):
    """The candidate raised an error, or took too long.

    Attributes:
        kind: the error's type, such as "NameError"; "timeout" if it took too long, or SLOW if it did so
            where kernels aren't compiled.
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
        types: the Python types of what it returned; "" for a plain tensor.
        aliases: for each result whether it shares an argument's memory.
        changed: the numbers of the argument tensors that it changed.
        reformed: the numbers of those that are now of another class, or have other memory or other strides.
        arguments: what these hold after the call.
        is_reused: whether a result is in the same memory as one of the call before.
        folded: for each result whether several of its elements are in the same memory, as in a tensor that
            was expanded.
        devices: the type of each result's device.
        is_twice: whether several results begin at the same address.
    """

    results: tuple[torch.Tensor, ...]
    is_single: bool
    types: tuple[str, ...]
    aliases: tuple[bool, ...]
    changed: tuple[int, ...]
    arguments: tuple[torch.Tensor, ...]
    reformed: tuple[int, ...] = ()
    is_reused: bool = False
    folded: tuple[bool, ...] = ()
    devices: tuple[str, ...] = ()
    is_twice: bool = False


class Suspect:
    """A candidate in its process; a context manager that leaves nothing running.

    Attributes:
        sees_gpu: whether the process can use a GPU.
        n_parameters: how many numbers the parameters and buffers of its model hold.
        is_seeded: whether its model makes its parameters itself, with the reference's seed.
        overwrites: whether a result of an earlier call could not be read any more after the next one, as with
            CUDA graphs in torch.compile.
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
        self.n_parameters = 0
        self.is_seeded = False
        self.overwrites = False
        settings = {"interpret": interpret}
        self._process = Process(
            "workbook.verify.stand", settings, [bubblewrap.HELPERS], limits, until, cgroup
        )
        self.sees_gpu = self._process.sees_gpu

    def __enter__(self) -> Suspect:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def load(
        self,
        state: Mapping[str, Any] | None = None,
        *,
        recognize: bool = False,
        seed: int | None = None,
        constants: bool = False,
    ) -> bool:
        """Import the candidate, and construct it if it is a model; the second time, only construct it.

        Args:
            state: the parameters, if they aren't those of the reference.
            recognize: whether parameters with other names than the reference's are recognized by their
                numbers.
            seed: to make its parameters with another seed.
            constants: whether the parts of a model begin with other constants, by `models.other_constants`.

        Returns:
            Whether it now has the reference's parameters, or those of `state`.

        Raises:
            Raised: it can't be imported or constructed.
        """
        one = self._candidate
        found = self._ask(
            "load", sources=self._sources(), entry=one.entry, options=dict(one.options),
            results=list(one.results), **self._construction(state, recognize, seed, constants),
        )  # fmt: skip
        n_parameters = found.get("n_parameters", 0)
        self.n_parameters = n_parameters if type(n_parameters) is int else 0
        return found.get("parameters") in ("named", "recognized" if recognize else "named")

    def load_as(self, candidate: Candidate) -> bool:
        """`load` the same files as a candidate that is constructed with other arguments and parameters."""
        self._candidate = candidate
        return self.load()

    def forget(self) -> None:
        """Free the memory of its arguments, results and model.

        Raises:
            Raised: it can't use the GPU any more, after an illegal access.
        """
        self._ask("forget")

    def execute(self) -> None:
        """Make it anew by executing the text of its Python file, as some benchmarks do: from now on, calls
        go there.

        Raises:
            Raised: it can't be made so, because it needs a file or a module.
        """
        self._ask("execute", **self._construction())

    def _construction(
        self,
        state: Mapping[str, Any] | None = None,
        recognize: bool = False,
        seed: int | None = None,
        constants: bool = False,
    ) -> dict[str, Any]:
        """What the candidate is constructed from."""
        one = self._candidate
        how = "loaded" if not self.is_seeded else "seeded" if state is None else "given"
        return {
            "kind": one.kind, "init": list(one.init), "init_keywords": dict(one.init_keywords),
            "state": dict(one.state if state is None else state), "how": how, "constants": constants,
            "seed": one.seed if seed is None else seed, "initial": dict(one.state) if recognize else {},
        }  # fmt: skip

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

    def make(self, slot: str, source: str, seed: int) -> None:
        """Let it make the arguments of a slot by `full_size.make_inputs`."""
        self._ask("make", slot=slot, source=source, seed=seed)

    def sample(self, seed: int) -> tuple[torch.Tensor, ...]:
        """Some elements of the last results, as `full_size.sampled` chooses them."""
        return _tensors(self._ask("sample", seed=seed).get("sample"))

    def write(self, slot: str, args: Sequence[Any]) -> None:
        """Change the contents of the tensors in a slot, in place."""
        self._ask("write", slot=slot, args=tuple(args))

    def call(self, slot: str, case: Case, *, poison: bool = False, again: bool = False) -> Answer:
        """Call it once.

        Args:
            poison: whether to fill all that it allocates.
            again: in destination-passing style, whether it gets the outputs of the call before, as they are.

        Raises:
            Raised: it raised an error or took too long.
            Forged: the answer isn't one.
        """
        raw = self._ask("call", slot=slot, outputs=list(case.outputs), poison=poison, again=again)
        with _checked():
            self.overwrites |= raw["expired"] is True
            results, others = _tensors(raw["results"]), iter(_tensors(raw["arguments"]))
            return Answer(
                results=results,
                is_single=raw["is_single"] is True,
                types=tuple(str(one)[:80] for one in raw["types"]),
                aliases=tuple(one is True for one in raw["aliases"]),
                changed=tuple(int(one) for one in raw["changed"]),
                # What it returns isn't sent twice.
                arguments=tuple(next(others) if i < 0 else results[i] for i in raw["returned"]),
                reformed=tuple(int(one) for one in raw["reformed"]),
                is_reused=raw["reused"] is True,
                folded=tuple(one is True for one in raw["folded"]),
                devices=tuple(str(one)[:20] for one in raw["devices"]),
                is_twice=raw["twice"] is True,
            )

    def buffers(self) -> dict[str, torch.Tensor]:
        """What the floating-point buffers of its model hold."""
        raw = self._ask("buffers")
        with _checked():
            return dict(zip([str(one) for one in raw["names"]], _tensors(raw["tensors"]), strict=True))

    def overwrite(self) -> bool:
        """Overwrite the last results with NaN; False if they hold no floating-point numbers."""
        return self._ask("overwrite").get("overwritten") is True

    def settle(self) -> tuple[bool, tuple[torch.Tensor, ...]]:
        """Wait a moment: whether the last results have changed since the call, and what they are now."""
        raw = self._ask("settle")
        return raw.get("changed") is not False, _tensors(raw.get("results", ()))

    def repeat(self, slot: str, case: Case, n: int, budget_s: float) -> dict[str, Any]:
        """Call it `n` times, or as often as `budget_s` permits.

        Returns:
            `n_calls`: fewer than `n` if they take long; `n_distinct`: how many results differ from the
            first; `grown`: how many more "tensors",
            "gpu_bytes" and "threads" there are, the threads counted from outside; `shared`: whether results
            of different calls share memory; `last` and `other`: the results of the last call, and those that
            differ.
        """
        before = self._process.n_threads()
        raw = self._ask("repeat", slot=slot, outputs=list(case.outputs), n=n, budget_s=budget_s)
        with _checked():
            grown = {name: int(raw["grown"][name]) for name in ("tensors", "gpu_bytes", "threads")}
            grown["threads"] = max(grown["threads"], self._process.n_threads() - before)
            last, other = _tensors(raw["last"]), _tensors(raw["other"])
            return {
                "n_calls": min(max(int(raw["n_calls"]), 1), n), "n_distinct": int(raw["n_distinct"]),
                "grown": grown, "shared": raw["shared"] is True, "last": last, "other": other,
            }  # fmt: skip

    def alternate(
        self, slot: str, case: Case, others: Sequence[Sequence[Any]], n: int, budgets_s: tuple[float, float]
    ) -> list[tuple[int, int, tuple[torch.Tensor, ...]]]:
        """Call it up to `n` times without a pause, with the contents of `others` in turn.

        Args:
            budgets_s: the seconds after which it ends, of its thread's computing time and altogether.

        Returns:
            What to compare: (which of `others`, the number of the call or 0 for the last one, results).
        """
        raw = self._ask(
            "alternate", slot=slot, outputs=list(case.outputs), others=[tuple(one) for one in others], n=n,
            budgets_s=list(budgets_s),
        )  # fmt: skip
        with _checked():
            found = [(turn, 0, _tensors(one)) for turn, one in enumerate(raw["results"][: len(others)])]
            if raw["odd"]:
                found.append((int(raw["odd_turn"]) % len(others), int(raw["odd_call"]), _tensors(raw["odd"])))
            return found

    def operators(self, slot: str, case: Case) -> list[str]:
        """The operators of torch's dispatcher that one call uses, in order."""
        return [one for one, _ in self.work(slot, case)[0]]

    def work(self, slot: str, case: Case) -> tuple[list[tuple[str, str]], set[str]]:
        """The operators that one call uses, each with the shapes that it works on; and the instructions of
        the candidate's Python code that run.
        """
        raw = self._ask("operators", slot=slot, outputs=list(case.outputs))
        with _checked():
            names, sizes, places = (
                [str(one)[:200] for one in raw[name]][:10_000] for name in ("operators", "sizes", "places")
            )
            return list(zip(names, sizes, strict=True)), set(places)

    def time(self, slot: str, case: Case, others: Sequence[Sequence[Any]], budget_s: float) -> dict[str, Any]:
        """Time it on the GPU, with the contents of `others` in turn, or with `full_size.change`; see
        `stand._do_time`.
        """
        raw = self._ask(
            "time", slot=slot, outputs=list(case.outputs), others=[tuple(one) for one in others],
            budget_s=budget_s,
        )  # fmt: skip
        if "refused" in raw:
            return {"refused": str(raw["refused"])[:400]}
        with _checked():
            us = {name: float(raw[name]) for name in ("median_us", "low_us", "high_us")}
            if not all(0 < one < 1e9 for one in us.values()):
                raise ValueError("a time that can't be")
            return us | {
                "turn": int(raw["turn"]) % (len(others) or 1 << 30),
                "kernels": [str(one)[:120] for one in raw["kernels"]][:20],
                "notes": [str(one)[:300] for one in raw["notes"]][:10],
                "results": _tensors(raw["results"]) or _tensors(raw["arguments"]),
            }

    def watched(self) -> dict[str, list[Any]]:
        """What its watch has seen: "replaced", "events", "state" and "threads"; and, seen from outside, the
        "processes" that it has started and that are still there.
        """
        raw = self._ask("watched")
        with _checked():
            found = {name: [str(one)[:300] for one in raw[name]] for name in ("replaced", "state", "threads")}
            found["processes"] = [one[:300] for one in self._process.started()]
            return found | {"events": [(str(kind), str(what)[:300]) for kind, what in raw["events"]]}

    def _ask(self, what: str, **about: Any) -> dict[str, Any]:
        limit_s = self._limits.cell_s * (_BUILDS if what in ("load", "execute") else 1)
        try:
            raw = self._process.request({"do": what, **about}, limit_s)
        except WorkerTimeout:
            says = f"it ran for more than {limit_s:g} s"
            if self._interpret and self._candidate.has_kernels:
                raise Raised(f"{says} in Triton's interpreter or our CUDA emulator", SLOW) from None
            raise Raised(says, "timeout") from None
        raw.pop("token", None)
        if raw.get("too_large"):
            raise Raised(f"its {TOO_LARGE}", "too large")
        try:
            found: Mapping[str, Any] = plain(raw)
        except ValueError as error:
            raise Forged(str(error)) from None
        if "error" in found:
            line = found.get("line", 0)
            where = line if type(line) is int and 0 < line < 10**6 else 0
            raise Raised(str(found["error"])[:400], str(found.get("error_type", "")), where)
        return dict(found)


def _tensors(raw: Any) -> tuple[torch.Tensor, ...]:
    if not isinstance(raw, (list, tuple)) or not all(type(one) is torch.Tensor for one in raw):
        raise Forged("results that are not tensors")
    if any(one.device.type != "cpu" or one.is_quantized for one in raw):
        raise Forged("tensors of another kind")
    return tuple(raw)


@contextlib.contextmanager
def _checked() -> Iterator[None]:
    """Turn whatever a malformed answer raises into `Forged`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise Forged(f"a malformed answer ({type(error).__name__})") from None

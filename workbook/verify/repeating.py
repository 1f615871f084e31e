"""Call a candidate many times: do its results repeat, and what accumulates? Used in its process."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from workbook.verify import arguments, memory
from workbook.verify.returned import Returned

_ALIVE_BYTES = 256 << 20  # of results of earlier calls
_FEWEST = 4  # calls, to see whether something differs or grows
_N_RING = 500  # calls, until a result must be in memory of an earlier one if results are kept
_RING_S = 3.0


@dataclass
class _Seen:
    """What several calls with the same arguments returned.

    Attributes:
        first: copies of the first call's results.
        last, other: copies on the CPU, of the last call's results, and of the first ones that differ from
            `first`.
        n_calls, n_distinct: how many calls there were, and how many differed from the first.
        shared: whether results of different calls share memory.
        alive: results of the last calls, as many as `_ALIVE_BYTES` hold.
    """

    first: list[Any] | None = None
    last: list[Any] = field(default_factory=list)
    other: list[Any] | None = None
    n_calls: int = 0
    n_distinct: int = 0
    shared: bool = False
    alive: list[list[Any]] = field(default_factory=list)


class Repeating:
    """Makes the calls, with functions that are looked up before the candidate is imported."""

    def __init__(self, returned: Returned, on_gpu: bool) -> None:
        self._returned, self._on_gpu = returned, on_gpu
        self._cpu_time, self._wall_time = time.thread_time, time.monotonic
        self._collect, self._objects = gc.collect, gc.get_objects
        self._n_threads, self._gpu_bytes = threading.active_count, torch.cuda.memory_allocated
        self._tensors, self._overwrite = arguments.tensors_of, arguments.overwrite
        self._overlap, self._addresses = memory.overlap, memory.addresses
        self._is_readable = memory.is_readable
        self._storages, self._comes_again = memory.storages, memory.comes_again

    def repeat(
        self, call: Callable[..., Any], args: Sequence[Any], specs: Any, n: int, budget_s: float
    ) -> dict[str, Any]:
        """Call it `n` times with the same arguments, or as often as `budget_s` permits.

        Args:
            specs: of outputs in destination-passing style, (shape, dtype) each.

        Returns:
            `n_calls`, `n_distinct`, `grown`, `shared` (whether results of different calls share memory), the
            results of the last call, and the first ones that differ from those of the first call (or those
            of the last call again).
        """
        before = self._counted()
        found, storages = self._calls(call, args, specs, n, budget_s)
        after = self._counted()  # all that is left of the results is on the CPU
        if not specs and any(one() is not None for one in storages.values()):  # somebody keeps results
            found["shared"] = found["shared"] or self._in_a_ring(call, args)
        after["tensors"] -= len({id(one) for one in (*found["last"], *found["other"])})
        return {**found, "grown": {name: after[name] - before[name] for name in after}}

    def alternate(
        self,
        call: Callable[..., Any],
        args: Sequence[Any],
        others: Sequence[Sequence[Any]],
        specs: Any,
        n: int,
        budgets_s: Sequence[float],
    ) -> dict[str, Any]:
        """Call it up to `n` times without a pause, each time with the next of `others` in the same tensors.

        Args:
            budgets_s: of this thread's CPU time and of wall time.

        Returns:
            `results`: for each of `others` the results of the last call with it. `odd`: the results of the
            first call that differed from an earlier one with the same values, or nothing; `odd_turn`: which
            of `others` it had; `odd_call`: its number.
        """
        returned = self._returned
        start = self._cpu_time(), self._wall_time()
        firsts: list[Any] = [None] * len(others)
        lasts: list[Any] = [None] * len(others)
        odd: dict[str, Any] = {"odd": [], "odd_turn": 0, "odd_call": 0}
        for number in range(n):
            turn = number % len(others)
            self._overwrite(args, others[turn])
            outputs = returned.outputs(specs)
            results = returned.tensors(call(*args, *outputs), outputs) or self._tensors(args)
            lasts[turn] = [returned.clone(one) for one in results]
            firsts[turn] = firsts[turn] or lasts[turn]
            if not odd["odd"] and not all(map(returned.same, firsts[turn], lasts[turn])):
                copies = [returned.sent(one) for one in lasts[turn]]
                odd = {"odd": copies, "odd_turn": turn, "odd_call": number + 1}
            spent = self._cpu_time() - start[0], self._wall_time() - start[1]
            if number >= 2 * len(others) and any(map(float.__gt__, spent, budgets_s)):
                break
        return {"results": [[returned.sent(one) for one in last] for last in lasts], **odd}

    def _calls(
        self, call: Callable[..., Any], args: Sequence[Any], specs: Any, n: int, budget_s: float
    ) -> tuple[dict[str, Any], memory.Storages]:
        """What the calls returned, and weak references to the memory of the last results."""
        seen, end = _Seen(), self._wall_time() + budget_s
        of_arguments = self._addresses(self._tensors(args))
        storages: memory.Storages = {}
        while seen.n_calls < n and (seen.n_calls < _FEWEST or self._wall_time() < end):
            outputs = self._returned.outputs(specs)
            results = self._returned.tensors(call(*args, *outputs), outputs)
            storages = self._note(seen, results, of_arguments)
        return {
            "n_calls": seen.n_calls, "n_distinct": seen.n_distinct, "shared": seen.shared,
            "last": seen.last, "other": seen.other or seen.last,
        }, storages  # fmt: skip

    def _note(self, seen: _Seen, results: list[Any], of_arguments: set[int]) -> memory.Storages:
        """Add one call's results to what was seen."""
        returned = self._returned
        seen.n_calls += 1
        if seen.first is None:
            seen.first = [returned.clone(one) for one in results]
        elif any(not returned.same(a, b) for a, b in zip(seen.first, results, strict=True)):
            seen.n_distinct += 1
            seen.other = seen.other or [returned.sent(one) for one in results]
        seen.last = [returned.sent(one) for one in results]
        own = [one for one in results if not of_arguments & self._addresses([one])]
        earlier = [one for several in seen.alive for one in several if self._is_readable(one)]
        seen.shared = seen.shared or self._overlap(earlier, own)
        size = sum(one.numel() * one.element_size() for one in results)
        seen.alive = [*seen.alive, results][-max(1, _ALIVE_BYTES // max(size, 1)) :]
        return self._storages(own)

    def _in_a_ring(self, call: Callable[..., Any], args: Sequence[Any]) -> bool:
        """Whether a result is in memory that an earlier result had, and that somebody kept since."""
        of_arguments = self._addresses(self._tensors(args))
        end = self._wall_time() + _RING_S

        def storages_of_a_call() -> memory.Storages:
            results = self._returned.tensors(call(*args), [])
            return self._storages([one for one in results if not of_arguments & self._addresses([one])])

        return self._comes_again(storages_of_a_call, _N_RING, lambda: self._wall_time() > end)

    def _counted(self) -> dict[str, int]:
        """What may grow with each call: tensors, bytes on the GPU, Python threads."""
        self._collect()
        return {
            "tensors": sum(issubclass(type(one), torch.Tensor) for one in self._objects()),
            "gpu_bytes": self._gpu_bytes() if self._on_gpu else 0,
            "threads": self._n_threads(),
        }

"""The process in which a candidate runs: it knows no reference and no expected result, and makes no verdict.

The verifier sends inputs and gets results back. Everything that this process reports besides results (what
was replaced, how long a call took) was measured in the candidate's own process, so it can be forged. Being
right can't.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from workbook.sandbox.inside import enter
from workbook.sandbox.serving import Server, sentence

_SOURCES = "candidate"  # the folder of its files
_SETTLE_S = 0.2  # for work that continues after a call has returned
_ALIVE_BYTES = 256 << 20  # of results of earlier calls
_FEWEST = 4  # calls, to see whether something differs or grows


def main(settings: dict[str, Any]) -> None:
    """Serve the verifier; does not return.

    Args:
        settings: `interpret`: whether kernels run without a GPU; `folder` and `sandboxed`: as in
            `inside.enter`.
    """
    requests, replies = enter(settings, "candidate")
    if settings["interpret"]:
        # With one thread, calls follow each other quickly on a busy machine, too: no core waits for another.
        os.environ |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        from workbook.verify import without_gpu

        without_gpu.prepare()
    _Stand(requests, replies).serve()
    os._exit(0)


class _Stand(Server):
    """Loads one candidate and calls it with the arguments that the verifier sends.

    Arguments are stored in slots, so that the candidate can be called again with the same tensors.
    """

    def __init__(self, requests: int, replies: int) -> None:
        import torch

        from helpers.check import matching, poison
        from helpers.timing import gpu
        from workbook.verify import arguments, full_size, memory
        from workbook.verify.loaded import Loaded
        from workbook.verify.slots import Slots
        from workbook.verify.tracing import Tracer
        from workbook.verify.watch import Watch

        super().__init__(requests, replies)
        self._torch, self._sleep = torch, time.sleep
        self._clocks = time.thread_time, time.monotonic
        self._plain_types = (torch.Tensor, torch.nn.Parameter)
        self._clone, self._equal = torch.Tensor.clone, torch.equal
        self._bits, self._poisoned = matching.bits_of, poison.poisoned
        self._poison_free_memory, self._time_gpu = poison.poison_free_memory, gpu.time_gpu
        self._tensors = arguments.tensors_of
        self._overwrite, self._full_size = arguments.overwrite, full_size
        self._leaves = arguments.leaves
        self._span, self._overlap = memory.span, memory.overlap
        self._addresses, self._form = memory.addresses, memory.form
        self._on_gpu = torch.cuda.is_available()
        self._synchronize = torch.cuda.synchronize if self._on_gpu else _nothing
        if self._on_gpu:
            torch.zeros((), device="cuda")  # the watch asks the driver about its context
        self._slots = Slots(self._on_gpu)
        self._names: tuple[str, ...] = ()  # of results that may be returned as a dict
        self._loaded: Any = None
        self._kept: list[Any] = []  # the results of the last call, and copies that were made at once
        self._call: Callable[..., Any] = _nothing
        self._model: Any = None
        self._folder = os.path.join(os.getcwd(), _SOURCES)
        self._tracer = Tracer(self._folder)
        self._make_watch, self._make_loaded = Watch, Loaded

    # ---------------------------------------------------------------------------------------------- requests

    def _do_load(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Write the candidate's files, import them, and make what will be called."""
        if self._loaded is not None:  # only with other parameters
            return self._run(lambda: self._constructed(message))
        for name, text in message["sources"].items():
            path = Path(self._folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._torch.manual_seed(message["seed"])
        self._names = tuple(message["results"])
        self._loaded = self._make_loaded(self._folder, message["entry"])
        self._watch = self._make_watch(self._folder)
        sys.path.insert(0, self._folder)
        sys.argv = [str(Path(self._folder, message["entry"].partition("::")[0]))]
        return self._run(lambda: self._imported(message))

    def _do_execute(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Make what will be called anew, from the text of the candidate's file."""

        def executed() -> dict[str, Any]:
            self._loaded.execute_it()
            return self._constructed(message)

        return self._run(executed)

    def _imported(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._loaded.import_it(list(message["sources"]), message["options"])
        return self._constructed(message)

    def _constructed(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if message["kind"] != "model":
            self._call = self._loaded.entry()
            return {}
        init, keywords = self._slots.placed((tuple(message["init"]), dict(message["init_keywords"])))
        model, has_state = self._loaded.model(init, keywords, message["state"], message["seed"])
        n_parameters = sum(one.numel() for one in self._tensors(dict(model.state_dict())))
        self._model = model.to("cuda") if self._on_gpu else model
        self._call = self._torch.no_grad()(self._model)  # as KernelBench does
        return {"same_parameters": has_state, "n_parameters": n_parameters}

    def _do_put(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Store arguments in a slot."""

        def put() -> dict[str, Any]:
            self._slots.put(message["slot"], message["args"])
            return {}

        return self._run(put)

    def _do_write(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Give the tensors of a slot other contents, in place; their version counters don't change."""

        def write() -> dict[str, Any]:
            self._overwrite(self._slots[message["slot"]], message["args"])
            self._synchronize()
            return {}

        return self._run(write)

    def _do_make(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Make the arguments of a slot here, because they are too large to be sent."""

        def make() -> dict[str, Any]:
            self._slots[message["slot"]] = self._full_size.make_inputs(message["source"], message["seed"])
            return {}

        return self._run(make)

    def _do_call(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Call the candidate once; `poison` fills every allocation before."""
        args = self._slots[message["slot"]]
        mode = self._poisoned() if message.get("poison") else nullcontext()

        def call() -> dict[str, Any]:
            outputs = self._outputs(message.get("outputs", ()))
            before = [(self._form(one), self._clone(one)) for one in self._tensors(args)]
            if self._on_gpu:
                self._poison_free_memory(max([one.numel() * one.element_size() for _, one in before] + [1]))
            with mode:
                value = self._call(*args, *outputs)
            return self._observed(value, args, outputs, before)

        return self._run(call)

    def _do_buffers(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What the floating-point buffers of the model hold."""

        def buffers() -> dict[str, Any]:
            found = [(name, one) for name, one in self._model.named_buffers() if one.is_floating_point()]
            return {"names": [name for name, _ in found], "tensors": [self._sent(one) for _, one in found]}

        return self._run(buffers)

    def _do_overwrite(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Fill the results of the last call with NaN, as their owner may."""
        found = [one for one, _ in self._kept if one.is_floating_point()]
        for one in found:
            one.data.fill_(float("nan"))
        self._synchronize()
        return {"overwritten": bool(found) and len(found) == len(self._kept)}

    def _do_settle(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Wait, and see whether the last results have changed since the call returned."""
        self._sleep(_SETTLE_S)
        self._synchronize()
        changed = [not self._same(now, then) for now, then in self._kept]
        return {"changed": any(changed), "results": [self._sent(now) for now, _ in self._kept]}

    def _do_repeat(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Call it `n` times with the same arguments, or as often as `budget_s` permits: what accumulates, and
        do results repeat?

        Returns:
            `n_calls`, `n_distinct`, `grown`, `shared` (whether results of different calls share memory), the
            results of the last call, and the first ones that differ from those of the first call (or those
            of the last call again).
        """
        args, n = self._slots[message["slot"]], message["n"]
        specs = message.get("outputs", ())
        of_arguments = self._addresses(self._tensors(args))

        def counted() -> dict[str, Any]:
            before = self._counted()
            found = calls()  # all that it returns is on the CPU
            after = self._counted()
            after["tensors"] -= len({id(one) for one in (*found["last"], *found["other"])})
            return {**found, "grown": {name: after[name] - before[name] for name in after}}

        def calls() -> dict[str, Any]:
            first, other, n_distinct, is_shared = None, None, 0, False
            n_calls, end = 0, self._clocks[1]() + message["budget_s"]
            alive: list[list[Any]] = []
            while n_calls < n and (n_calls < _FEWEST or self._clocks[1]() < end):
                n_calls += 1
                outputs = self._outputs(specs)
                results = self._results(self._call(*args, *outputs), args, outputs)
                if first is None:
                    first = [self._clone(one) for one in results]
                elif any(not self._same(a, b) for a, b in zip(first, results, strict=True)):
                    n_distinct += 1
                    other = other or [self._sent(one) for one in results]
                last = [self._sent(one) for one in results]
                own = [one for one in results if not of_arguments & self._addresses([one])]
                is_shared = is_shared or self._overlap([one for several in alive for one in several], own)
                size = sum(one.numel() * one.element_size() for one in results)
                alive = [*alive, results][-max(1, _ALIVE_BYTES // max(size, 1)) :]
            return {
                "n_calls": n_calls, "n_distinct": n_distinct, "shared": is_shared, "last": last,
                "other": other or last,
            }  # fmt: skip

        return self._run(counted)

    def _do_alternate(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Call it many times without a pause, each time with the next of `others` in the same tensors.

        Returns:
            `results`: for each of `others` the results of the last call with it. `odd`: the results of the
            first call that differed from an earlier one with the same values, or nothing; `odd_turn`: which
            of `others` it had; `odd_call`: its number.
        """
        args, specs = self._slots[message["slot"]], message.get("outputs", ())
        others = [self._slots.placed(tuple(one)) for one in message["others"]]

        def calls() -> dict[str, Any]:
            start = [clock() for clock in self._clocks]
            firsts: list[Any] = [None] * len(others)
            found: dict[str, Any] = {"odd": [], "odd_turn": 0, "odd_call": 0}
            lasts: list[Any] = [None] * len(others)
            for number in range(message["n"]):
                turn = number % len(others)
                self._overwrite(args, others[turn])
                outputs = self._outputs(specs)
                results = self._results(self._call(*args, *outputs), args, outputs) or self._tensors(args)
                lasts[turn] = [self._clone(one) for one in results]
                firsts[turn] = firsts[turn] or lasts[turn]
                is_same = all(map(self._same, firsts[turn], lasts[turn]))
                if not is_same and not found["odd"]:
                    odd = [self._sent(one) for one in lasts[turn]]
                    found = {"odd": odd, "odd_turn": turn, "odd_call": number + 1}
                spent = [clock() - begun for clock, begun in zip(self._clocks, start, strict=True)]
                if number >= 2 * len(others) and any(map(float.__gt__, spent, message["budgets_s"])):
                    break
            return {"results": [[self._sent(one) for one in last] for last in lasts], **found}

        return self._run(calls)

    def _do_operators(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What one call uses: the fields of `tracing.Used`."""
        args = self._slots[message["slot"]]
        outputs = self._outputs(message.get("outputs", ()))

        def call() -> dict[str, Any]:
            with self._tracer.used() as used:
                self._call(*args, *outputs)
            return used.as_reply()

        return self._run(call)

    def _do_time(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Time it on the GPU, with other contents of the arguments before each call.

        Without `others`, some elements change, and the results aren't sent.

        Returns:
            The timing's fields, and the results, the arguments and the number of the contents of the last
            timed call.
        """
        from helpers.timing.cupti import TimingError

        args = self._slots[message["slot"]]
        others = [self._slots.placed(tuple(one)) for one in message["others"]]
        outputs = self._outputs(message.get("outputs", ()))
        turn, value = 0, None

        def other() -> None:
            nonlocal turn
            turn += 1
            if others:
                self._overwrite(args, others[turn % len(others)])
            else:
                self._full_size.change(args, turn)

        def call() -> Any:
            nonlocal value
            value = self._call(*args, *outputs)
            return value

        def timed() -> dict[str, Any]:
            try:
                timing = self._time_gpu(call, before=other, budget_s=message["budget_s"])
            except TimingError as error:
                return {"refused": str(error)}
            self._synchronize()
            results = self._results(value, args, outputs)
            self._kept = [(one, one) for one in results]
            sent = results if others else []
            return {
                "median_us": timing.median_us, "low_us": timing.ci95_us[0], "high_us": timing.ci95_us[1],
                "kernels": [f"{one.calls} × {one.name}" for one in timing.kernels],
                "notes": list(timing.notes), "turn": turn % len(others) if others else turn,
                "results": [self._sent(one) for one in sent],
                "arguments": [] if results else [self._sent(one) for one in self._tensors(args)],
            }  # fmt: skip

        return self._run(timed)

    def _do_sample(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Some elements of the last results."""
        return self._run(
            lambda: {"sample": [self._full_size.sampled(one, message["seed"]) for one, _ in self._kept]}
        )

    def _do_watched(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What the watch has seen until now."""
        return {
            "replaced": self._watch.replaced(), "events": [list(one) for one in self._watch.events],
            "state": self._watch.changed_state(), "threads": self._watch.new_threads(),
        }  # fmt: skip

    # ------------------------------------------------------------------------------------------------ helpers

    def _run(self, action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What an action of the candidate returns, or its error."""
        try:
            with self._untrusted_code():
                return action()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit, and what C++ raises
            where = "in Triton's interpreter, " if _is_interpreters(error) else ""
            return {
                "error": where + sentence(error), "error_type": type(error).__name__,
                "line": self._line(error),
            }  # fmt: skip

    def _observed(self, value: Any, args: Any, outputs: list[Any], before: list[Any]) -> dict[str, Any]:
        """The results of a call, and what else can be seen of it; the clock has stopped when it returns."""
        if self._on_gpu:
            self._torch.cuda.current_stream().synchronize()
        results = self._results(value, args, outputs)
        earlier = [one for one, _ in self._kept]
        self._kept = [(one, self._clone(one)) for one in results]
        tensors = self._tensors(args)
        addresses = self._addresses(tensors)
        changed = [i for i, one in enumerate(tensors) if not self._same(one, before[i][1])]
        return {
            "results": [self._sent(then) for _, then in self._kept],
            "is_single": isinstance(value, self._torch.Tensor) or value is None,
            "types": [self._name_of_type(one) for one in self._values(value)],
            "devices": [str(one.device.type) for one in results],
            "aliases": [one.untyped_storage().data_ptr() in addresses for one in results if one.numel()],
            "changed": changed,
            "reformed": [i for i, one in enumerate(tensors) if self._form(one) != before[i][0]],
            "arguments": [self._sent(tensors[i]) for i in changed],
            "reused": self._overlap(
                earlier, [one for one in results if not addresses & self._addresses([one])]
            ),
            "folded": [self._span(one) < one.numel() * one.element_size() for one in results],
        }

    def _results(self, value: Any, args: Any, outputs: list[Any]) -> list[Any]:
        if outputs:
            return outputs
        found = self._values(value)
        if wrong := [one for one in found if not isinstance(one, self._torch.Tensor)]:
            raise TypeError(f"it returned {type(wrong[0]).__name__}, not a tensor")
        if odd := [one for one in found if one.layout is not self._torch.strided or one.is_meta]:
            kind = "a tensor without contents" if odd[0].is_meta else f"a tensor with layout {odd[0].layout}"
            raise TypeError(f"it returned {kind}, not an ordinary tensor")
        return [self._plain(one) for one in found]

    def _values(self, value: Any) -> list[Any]:
        if value is None:
            return []
        if isinstance(value, dict) and set(value) == set(self._names):
            value = [value[name] for name in self._names]
        found = self._leaves(value)
        if not self._names:
            return found
        return [self._torch.tensor(one) if isinstance(one, (int, float)) else one for one in found]

    def _name_of_type(self, value: Any) -> str:
        """ "" for a plain tensor; a subclass may have the same name."""
        return "" if type(value) in self._plain_types else f"{type(value).__module__}.{type(value).__name__}"

    def _plain(self, tensor: Any) -> Any:
        """The tensor itself, or what a subclass of a tensor computes when it is used."""
        if type(tensor) in self._plain_types:
            return tensor.resolve_conj().resolve_neg()
        return (tensor + 0).detach().as_subclass(self._torch.Tensor)

    def _sent(self, tensor: Any) -> Any:
        """A copy on the CPU."""
        return self._clone(tensor.detach().cpu(), memory_format=self._torch.contiguous_format)

    def _outputs(self, specs: Any) -> list[Any]:
        """Outputs for a candidate in destination-passing style, filled with poison."""
        from helpers.check.poison import fill_with_poison

        device = "cuda" if self._on_gpu else "cpu"
        return [
            fill_with_poison(self._torch.empty(tuple(shape), dtype=dtype, device=device))
            for shape, dtype in specs
        ]

    def _same(self, a: Any, b: Any) -> bool:
        return a.shape == b.shape and self._equal(self._bits(a.detach()), self._bits(b.detach()))

    def _counted(self) -> dict[str, int]:
        """What may grow with each call: tensors, bytes on the GPU, Python threads."""
        import threading

        gc.collect()
        torch = self._torch
        return {
            "tensors": sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects()),
            "gpu_bytes": torch.cuda.memory_allocated() if self._on_gpu else 0,
            "threads": threading.active_count(),
        }

    def _line(self, error: BaseException) -> int:
        line, trace = 0, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename.startswith(self._folder):
                line = trace.tb_lineno
            trace = trace.tb_next
        return line


def _nothing(*args: Any) -> None:
    """Stand in for what a machine without a GPU doesn't need."""


def _is_interpreters(error: BaseException) -> bool:
    """Whether Triton's interpreter raised it; it doesn't support all that a GPU does."""
    trace, file = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return "/triton/" in file

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
from workbook.verify.allocator import keep_memory

_SOURCES = "candidate"  # the folder of its files
_SETTLE_S = 0.2  # for work that continues after a call has returned


def main(settings: dict[str, Any]) -> None:
    """Serve the verifier; does not return.

    Args:
        settings: `interpret`: whether kernels run without a GPU; `folder` and `sandboxed`: as in
            `inside.enter`.
    """
    requests, replies = enter(settings, "candidate")
    keep_memory()
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

        from helpers.check import poison
        from helpers.timing import gpu
        from workbook.verify import arguments, full_size, memory
        from workbook.verify.loaded import Loaded
        from workbook.verify.repeating import Repeating
        from workbook.verify.returned import Returned
        from workbook.verify.slots import Slots
        from workbook.verify.tracing import Tracer
        from workbook.verify.watch import Watch

        super().__init__(requests, replies)
        self._torch, self._sleep = torch, time.sleep
        self._poisoned = poison.poisoned
        self._poison_free_memory, self._time_gpu = poison.poison_free_memory, gpu.time_gpu
        self._tensors = arguments.tensors_of
        self._overwrite, self._full_size = arguments.overwrite, full_size
        self._span, self._overlap = memory.span, memory.overlap
        self._addresses, self._form = memory.addresses, memory.form
        self._is_readable = memory.is_readable
        self._on_gpu = torch.cuda.is_available()
        self._synchronize = torch.cuda.synchronize if self._on_gpu else _nothing
        if self._on_gpu:
            torch.zeros((), device="cuda")  # the watch asks the driver about its context
        self._slots, self._returned = Slots(self._on_gpu), Returned(self._on_gpu)
        self._repeating = Repeating(self._returned, self._on_gpu)
        self._loaded: Any = None
        self._used: list[Any] = []  # the outputs of the last call in destination-passing style
        self._kept: list[Any] = []  # the results of the last call, and copies that were made at once
        self._call: Callable[..., Any] = _nothing
        self._model: Any = None
        self._folder = os.path.join(os.getcwd(), _SOURCES)
        self._tracer = Tracer(self._folder)
        self._make_watch, self._make_loaded = Watch, Loaded
        self._fork_rng = torch.random.fork_rng
        self._collect, self._empty_cache = gc.collect, torch.cuda.empty_cache

    # ---------------------------------------------------------------------------------------------- requests

    def _do_load(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Write the candidate's files, import them, and make what will be called."""
        if self._loaded is not None:  # only with other parameters
            self._loaded.restore()
            return self._run(lambda: self._constructed(message))
        for name, text in message["sources"].items():
            path = Path(self._folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._torch.manual_seed(message["seed"])
        self._returned.names = tuple(message["results"])
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
        self._watch.imported()
        return self._constructed(message)

    def _constructed(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if message["kind"] != "model":
            self._call = self._loaded.entry()
            return {}
        init, keywords = self._slots.placed((tuple(message["init"]), dict(message["init_keywords"])))
        with self._fork_rng([0] if self._on_gpu else []):  # the watch must still see what a call has seeded
            model, how = self._loaded.model(
                init,
                keywords,
                message["state"],
                message["seed"],
                message["initial"],
                message["how"],
                message["constants"],
            )
            left = self._torch.initial_seed()
        if left != message["seed"]:
            self._torch.manual_seed(left)
        n_parameters = sum(one.numel() for one in self._tensors(dict(model.state_dict())))
        self._model = model.to("cuda") if self._on_gpu else model
        self._call = self._torch.no_grad()(self._model)  # as KernelBench does
        return {"parameters": how, "n_parameters": n_parameters}

    def _do_put(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Store arguments in a slot."""

        def put() -> dict[str, Any]:
            self._slots.put(message["slot"], message["args"])
            return {}

        return self._run(put)

    def _do_forget(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Free the memory of arguments, results and the model."""

        def forget() -> dict[str, Any]:
            self._slots.clear()
            self._used, self._kept, self._call, self._model = [], [], _nothing, None
            self._collect()
            self._synchronize()
            if self._on_gpu:
                self._empty_cache()
            return {}

        return self._run(forget)

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
        """Call the candidate once; `poison` fills every allocation before, `again` passes the outputs of the
        call before, as they are.
        """
        args = self._slots[message["slot"]]
        mode = self._poisoned() if message.get("poison") else nullcontext()

        def call() -> dict[str, Any]:
            used = self._used if message.get("again") else []
            outputs = self._used = used or self._returned.outputs(message.get("outputs", ()))
            before = [(self._form(one), self._returned.clone(one)) for one in self._tensors(args)]
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
            return {
                "names": [name for name, _ in found],
                "tensors": [self._returned.sent(one) for _, one in found],
            }

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
        changed = [not self._returned.same(now, then) for now, then in self._kept]
        return {"changed": any(changed), "results": [self._returned.sent(now) for now, _ in self._kept]}

    def _do_repeat(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """As `Repeating.repeat`."""
        args, specs = self._slots[message["slot"]], message.get("outputs", ())
        return self._run(
            lambda: self._repeating.repeat(self._call, args, specs, message["n"], message["budget_s"])
        )

    def _do_alternate(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """As `Repeating.alternate`."""
        args, specs = self._slots[message["slot"]], message.get("outputs", ())
        others = [self._slots.placed(tuple(one)) for one in message["others"]]
        return self._run(
            lambda: self._repeating.alternate(
                self._call, args, others, specs, message["n"], message["budgets_s"]
            )
        )

    def _do_operators(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What one call uses: the fields of `tracing.Used`."""
        args = self._slots[message["slot"]]
        outputs = self._returned.outputs(message.get("outputs", ()))

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
        outputs = self._returned.outputs(message.get("outputs", ()))
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
            results = self._returned.tensors(value, outputs)
            self._kept = [(one, one) for one in results]
            sent = results if others else []
            return {
                "median_us": timing.median_us, "low_us": timing.ci95_us[0], "high_us": timing.ci95_us[1],
                "kernels": [f"{one.calls} × {one.name}" for one in timing.kernels],
                "notes": list(timing.notes), "turn": turn % len(others) if others else turn,
                "results": [self._returned.sent(one) for one in sent],
                "arguments": [] if results else [self._returned.sent(one) for one in self._tensors(args)],
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
        types = self._returned.types(value)  # before a container is used
        results = self._returned.tensors(value, outputs)
        earlier = [one for one, _ in self._kept if self._is_readable(one)]
        has_lost_one = len(earlier) < len(self._kept)
        self._kept = [(one, self._returned.clone(one)) for one in results]
        tensors = self._tensors(args)
        addresses = self._addresses(tensors)
        changed = [i for i, one in enumerate(tensors) if not self._returned.same(one, before[i][1])]
        forms = [self._form(one) for one in results]
        returned = [self._form(tensors[i]) for i in changed]
        places = [forms.index(one) if one in forms else -1 for one in returned]
        return {
            "results": [self._returned.sent(then) for _, then in self._kept],
            "is_single": isinstance(value, self._torch.Tensor) or value is None,
            "types": types,
            "devices": [str(one.device.type) for one in results],
            "aliases": [one.untyped_storage().data_ptr() in addresses for one in results if one.numel()],
            "changed": changed,
            "reformed": [i for i, one in enumerate(tensors) if self._form(one) != before[i][0]],
            "arguments": [
                self._returned.sent(tensors[i]) for i, place in zip(changed, places, strict=True) if place < 0
            ],
            "returned": places,
            "reused": self._overlap(
                earlier, [one for one in results if not addresses & self._addresses([one])]
            ),
            "expired": has_lost_one,
            "twice": len({one.data_ptr() for one in results if one.numel()})
            < sum(one.numel() > 0 for one in results),
            "folded": [self._span(one) < one.numel() * one.element_size() for one in results],
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

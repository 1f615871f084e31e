"""Make one call of a learner's object and record everything that the judge needs to know about it.

`call_here` runs in the notebook and in the grader's processes, which get cases without their expected
results. In a notebook a case with a `served` function runs here as a whole; in the grader, `ask_here` makes
its calls of the learner's object.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from helpers.exercises import guard, launches, speed
from helpers.exercises.model import AGAIN, SPEED, Case, Exercise, Outcome, Text
from helpers.exercises.portable import portable, same_bits, type_with_article
from helpers.exercises.torch_work import TorchWork

_MOST_STORED = 1 << 22  # elements: larger results are not stored for comparison after the next call
_TRACED = 1 << 13  # elements: a run on the host with more elements is not traced


@dataclass
class _Prepared:
    """The object that was prepared last, and its last result."""

    obj: Any
    made: Any
    result: Any = None
    bits: Any = None


_prepared: dict[str, _Prepared] = {}


def call_here(exercise: Exercise, obj: Any, case: Case) -> Outcome:
    """Call the learner's object with one case, in this process.

    Args:
        exercise: what to prepare, whether tensors are guarded, and whose launches are counted.
        obj: the learner's object, as it came from the notebook.
        case: label, args, kwargs and call; `expected` is ignored.

    Returns:
        An `Outcome`; it holds whatever the learner's code raises, except KeyboardInterrupt.
    """
    state = _prepare(exercise, obj)
    if isinstance(state, Outcome):
        return state
    if case.call in exercise.served:
        served = exercise.served[case.call]
        try:
            value = served(lambda *args: ask_here(exercise, obj, case.call, args), *case.args)
        except (Exception, SystemExit) as error:
            return _raised(error, obj)
        return value if isinstance(value, Outcome) else Outcome(portable(value))
    if not case.call and not callable(state.made):
        return _not_callable(exercise, state.made)
    if case.call == SPEED:
        return speed.measure(state.made, case.args)
    if case.call and case.call != AGAIN:
        function = exercise.adapters[case.call]

        def call(*args, **kwargs):
            return function(state.made, *args, **kwargs)
    elif case.call == AGAIN:

        def call(*args, **kwargs):
            half = len(args) // 2
            state.made(*args[:half], **kwargs)
            for old, new in zip(args[:half], args[half:], strict=True):
                if isinstance(old, torch.Tensor):
                    old.copy_(new)
            return state.made(*args[:half], **kwargs)
    else:
        call = state.made
    return _guarded_call(exercise, state, call, case) if exercise.guarded else _plain_call(state, call, case)


def text_here(exercise: Exercise, obj: Any) -> Text | Outcome:
    """The learner's answer as text, or an outcome with the reason why there is none."""
    try:
        return obj if isinstance(obj, Text) else Text(exercise.text(obj))
    except (Exception, SystemExit) as error:
        return _raised(error, obj)


def ask_here(exercise: Exercise, obj: Any, call: str, args: tuple) -> Outcome:
    """Call the learner's object, or the adapter `call` if there is one, for a `served` function."""
    state = _prepare(exercise, obj)
    if isinstance(state, Outcome):
        return state
    adapter = exercise.adapters.get(call)
    if adapter is None and not callable(state.made):
        return _not_callable(exercise, state.made)
    try:
        value = adapter(state.made, *args) if adapter else state.made(*args)
        return Outcome(portable(value))
    except (Exception, SystemExit) as error:
        return _raised(error, obj)


def _prepare(exercise: Exercise, obj: Any) -> _Prepared | Outcome:
    """The learner's object as it is called, or what went wrong while it was prepared."""
    state = _prepared.get(exercise.id)
    if state is not None and state.obj is obj:
        return state
    answer = text_here(exercise, obj) if exercise.text else obj
    if isinstance(answer, Outcome):
        return answer
    try:
        made = exercise.prepare(answer) if exercise.prepare else answer
    except (Exception, SystemExit) as error:
        return _raised(error, obj)
    state = _prepared[exercise.id] = _Prepared(obj, made)
    return state


def _not_callable(exercise: Exercise, made: Any) -> Outcome:
    what = f"still {made}" if made is None or made is Ellipsis else type_with_article(made)
    return Outcome(error=f"{exercise.name} is {what}, not a function", error_type="NotCallable")


def _plain_call(state: _Prepared, call: Callable, case: Case) -> Outcome:
    args = guard.place(case.args, guard.Blocks())
    try:
        value = call(*args, **case.kwargs)
        return Outcome(portable(value), args_after=args)
    except (Exception, SystemExit) as error:
        return _raised(error, state.obj)


def _guarded_call(exercise: Exercise, state: _Prepared, call: Callable, case: Case) -> Outcome:
    blocks = guard.Blocks()
    try:
        args = guard.place(case.args, blocks)
        kwargs = guard.place(case.kwargs, blocks)
    except (OSError, MemoryError, torch.cuda.OutOfMemoryError) as error:
        return Outcome(facts={"skipped": f"no room: {error}"})
    facts: dict[str, Any] = {}
    tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)]
    on_gpu = any(t.is_cuda for t in tensors)
    if exercise.must_launch:
        n_elements = max((t.numel() for t in tensors), default=0)
        blocks.work = TorchWork(n_elements, exercise.must_launch == "triton", exercise.rearranges)
    seen = launches.Seen()
    try:
        with contextlib.ExitStack() as stack:
            # Triton's interpreter computes with numpy, which would warn of every overflow.
            stack.enter_context(np.errstate(all="ignore"))
            if exercise.must_launch == "triton":
                seen = stack.enter_context(launches.triton_watched(blocks, exercise.poison_masked))
            elif exercise.must_launch == "cuda" and not on_gpu:
                small = sum(t.numel() for t in tensors) <= _TRACED
                seen = stack.enter_context(launches.host_cuda_watched(small))
            stack.enter_context(guard.guarded(blocks))
            value = call(*args, **kwargs)
            if on_gpu:
                torch.cuda.synchronize()
    except (Exception, SystemExit) as error:
        facts |= _outside(seen, blocks)
        return _raised(error, state.obj, facts)
    facts |= _outside(seen, blocks)
    if seen.launched and seen.most_read is not None and exercise.must_launch == "triton":
        facts |= {
            "read_bytes": seen.read_bytes,
            "written_bytes": seen.written_bytes,
            "most_read": seen.most_read,
            "accesses": seen.n_accesses,
        }
    if seen.launched is not None:
        facts["launched"] = sorted(set(seen.launched))
    if blocks.work is not None:
        facts["computed"] = list(blocks.work.computed)
    facts["gap_writes"] = blocks.writes_in_gaps()
    if isinstance(value, torch.Tensor):
        facts["device"] = value.device.type
        facts["same_memory"] = value.numel() > 0 and any(
            t.untyped_storage().data_ptr() == value.untyped_storage().data_ptr() for t in tensors
        )
        facts["earlier_changed"] = _store_result(state, value)
    # Only the elements of a far view are sent.
    after = tuple(t.contiguous() if isinstance(t, torch.Tensor) and blocks.keep_alive else t for t in args)
    return Outcome(portable(value), args_after=after, facts=facts)


def _outside(seen: launches.Seen, blocks: guard.Blocks) -> dict:
    try:
        return {
            "guard_writes": max(blocks.writes_outside(), seen.writes_outside),
            "guard_reads": seen.reads_outside,
        }
    except RuntimeError:  # after an illegal access the GPU fails every call
        return {}


def _store_result(state: _Prepared, value: torch.Tensor) -> bool:
    """Store this call's result; return whether the last call's result has changed since."""
    changed = False
    if state.result is not None and state.bits is not None:
        changed = state.result.shape == state.bits.shape and not same_bits(state.result, state.bits)
    small = value.numel() <= _MOST_STORED
    state.result, state.bits = (value, value.detach().clone()) if small else (None, None)
    return changed


def _raised(error: BaseException, obj: Any, facts: dict | None = None) -> Outcome:
    """An outcome from an exception: its message, and the line in the learner's code."""
    facts = dict(facts or {})
    line = _line(error, obj)
    # Triton's interpreter wraps what a kernel raised.
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
        line = _line(error, obj) or line
    if isinstance(cause := getattr(error, "cause", None), str):
        facts["cause"] = cause
    kind = type(error).__name__
    text = str(error).strip()
    facts["bases"] = [one.__name__ for one in type(error).__mro__]
    return Outcome(error=f"{kind}: {text}" if text else kind, error_type=kind, facts=facts, line=line)


def _line(error: BaseException, obj: Any) -> int:
    """The last line of the traceback that is in a notebook's cell or in the learner's own file."""
    own_file = getattr(getattr(obj, "__code__", None), "co_filename", None)
    found = 0
    for frame, number in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if file == own_file or "ipykernel_" in file or file.startswith("<ipython-input"):
            found = number
    return found

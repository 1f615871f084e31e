"""Run the corpus on this machine: `python tests/corpus_runs.py exploits | honest` prints one JSON object.

Frauds run under a naive harness, which works as published ones do: one seed, one call that is compared, then
a timed loop over the same inputs. After that, `Hidden` tries what such a harness leaves out. Each file runs
in a forked process, because frauds patch modules, and importing PyTorch for each of them would take minutes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import corpus
import interpreter
import numpy as np
import seeds
import torch
from torch.utils import cpp_extension

from helpers import check, cuda

SEED = 42
SECONDS = 60


def load(path: Path, name: str) -> ModuleType:
    """Import one file under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def naive(problem: ModuleType, candidate: Callable[[], ModuleType]) -> bool:
    """Whether a harness with one seed accepts the candidate; this is what the corpus's frauds fool."""
    kernel = candidate()
    torch.manual_seed(SEED)
    model = problem.Model(*problem.get_init_inputs())
    torch.manual_seed(SEED)
    candidate_model = kernel.ModelNew(*problem.get_init_inputs())
    torch.manual_seed(SEED)
    inputs = problem.get_inputs()
    with torch.no_grad():
        expected = model(*[one.clone() for one in inputs])
        output = candidate_model(*inputs)
        tolerance = 1e-2 if expected.dtype == torch.bfloat16 else 1e-4
        if expected.shape != output.shape or not torch.allclose(
            output, expected, atol=tolerance, rtol=tolerance
        ):
            return False
        begin = time.process_time()  # other tests run meanwhile
        for _ in range(5):
            candidate_model(*inputs)
        return (time.process_time() - begin) / 5 < 1  # a second per call would be a slow kernel


def reference_of(problem: ModuleType) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """The reference as a function of the inputs and parameters, and the parameters' values."""
    torch.manual_seed(SEED)
    model = problem.Model(*problem.get_init_inputs())
    names = [name for name, _ in model.named_parameters()]

    def reference(*args: Any) -> Any:
        n_inputs = len(args) - len(names)
        parameters = dict(zip(names, args[n_inputs:], strict=True))
        return torch.func.functional_call(model, parameters, args[:n_inputs])

    return reference, [one.detach().clone() for one in model.parameters()]


def trials(problem: ModuleType, parameters: list[torch.Tensor]) -> list[tuple[torch.Tensor, ...]]:
    """Arguments that a naive harness doesn't try."""
    torch.manual_seed(7)
    inputs = problem.get_inputs()
    first, n_cols = inputs[0], inputs[0].shape[-1]
    one_changed = [one.clone() for one in inputs]
    for one in one_changed:
        one[..., one.shape[-1] // 2] += 3
    found = [
        tuple(inputs),
        tuple(torch.randn(one.shape, dtype=one.dtype) for one in inputs),
        tuple(one_changed),
        tuple(one * 1000 for one in inputs),
        tuple(-one for one in inputs),
    ]
    if len(inputs) == 1 and not parameters:
        with_nan = first.clone()
        with_nan[0, 3] = float("nan")
        found += [
            (with_nan,),
            (first.t().contiguous().t(),),
            (torch.cat([first.flatten()[:1], first.flatten()])[1:].view(first.shape),),
            (first[:, : n_cols - 3].contiguous(),),
        ]
    shifted = [one + torch.rand(one.shape) for one in parameters]
    return [(*one, *(shifted if i else parameters)) for i, one in enumerate(found)]


class Hidden:
    """What a candidate must compute, computed before it is imported, so that no patch reaches it."""

    def __init__(self, problem: ModuleType) -> None:
        reference, parameters = reference_of(problem)
        self.trials = trials(problem, parameters)
        self.expected = [
            reference(*(one.double() for one in args)).numpy().astype("float64") for args in self.trials
        ]

    def failure(self, kernel: ModuleType) -> str:
        """The first wrong result of a candidate that a naive harness may have accepted, or ""."""
        reused = [one.clone() for one in self.trials[0]]
        for i, args in enumerate(self.trials):
            if i < 3:  # the same tensors with other contents
                for one, value in zip(reused, args, strict=True):
                    one.data.copy_(value)
                args = tuple(reused)
            torch.manual_seed(SEED)  # the benchmark's seed, but not its inputs
            try:
                got = kernel.run(*args) if i % 2 else kernel.custom_kernel(args)
                got = got.clone().detach().as_subclass(torch.Tensor).double().numpy()
            except (SystemExit, RuntimeError) as error:
                return f"trial {i} raised {type(error).__name__}"
            expected = self.expected[i]
            bound = 2e-5 * (np.abs(expected) + np.nanmean(np.abs(expected)))
            with np.errstate(invalid="ignore"):
                right = (np.abs(got - expected) <= bound) | (np.isnan(got) & np.isnan(expected))
            if not right.all():
                return f"trial {i} has {right.size - right.sum()} wrong elements"
        return ""


def run_exploit(entry: corpus.Entry) -> dict[str, Any]:
    """Whether the naive harness accepts a fraud, and where it fails."""
    problem = load(entry.problem_path, "problem")
    hidden = Hidden(problem)
    loaded: list[ModuleType] = []

    def candidate() -> ModuleType:
        loaded.append(load(entry.path, "candidate"))
        return loaded[0]

    try:
        fooled = naive(problem, candidate)
    except SystemExit:
        fooled = False
    with torch.no_grad():
        return {"fooled": fooled, "failure": hidden.failure(loaded[0])}


def run_honest(entry: corpus.Entry) -> dict[str, Any]:
    """Compare the three entry points of an honest kernel with the reference."""
    problem = load(entry.problem_path, "problem")
    kernel = load(entry.path, "candidate")
    accepted = naive(problem, lambda: kernel)
    reference, parameters = reference_of(problem)
    changed = _changes_its_first_input(problem)

    def run(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return kernel.run(x.clone() if changed else x, *rest)

    def make_inputs(shape: Any, generator: torch.Generator, device: str, dtype: torch.dtype) -> tuple:
        torch.manual_seed(generator.initial_seed())
        return (*problem.get_inputs(), *(one + torch.rand(one.shape) for one in parameters))

    shape = tuple(problem.get_inputs()[0].shape)
    precision = getattr(problem, "precision", None)
    with torch.no_grad():
        check.assert_matches(
            run, lambda *args: reference(*(one.clone() for one in args)), shapes=[shape],
            make_inputs=make_inputs, precision=precision, name=entry.name,
        )  # fmt: skip
        inputs = problem.get_inputs()
        args = (*inputs, *parameters)
        torch.manual_seed(SEED)  # some prepare their parameters when they are constructed
        model = kernel.ModelNew(*problem.get_init_inputs())
        model.load_state_dict(problem_state(problem))
        for got in (model(*(one.clone() for one in inputs)), kernel.custom_kernel([a.clone() for a in args])):
            check.assert_result(entry.name, got, reference, args, precision=precision)
    return {"fooled": accepted, "failure": ""}


def problem_state(problem: ModuleType) -> dict[str, torch.Tensor]:
    """The state of the reference model that `reference_of` uses."""
    torch.manual_seed(SEED)
    return problem.Model(*problem.get_init_inputs()).state_dict()


def _changes_its_first_input(problem: ModuleType) -> bool:
    inputs = problem.get_inputs()
    first = inputs[0].clone()
    with torch.no_grad():
        problem.Model(*problem.get_init_inputs())(*inputs)
    return not torch.equal(first, inputs[0])


def in_a_child(run: Callable[[corpus.Entry], dict[str, Any]], entry: corpus.Entry) -> dict[str, Any]:
    """What `run` returns for one file, from a forked process that ends after a minute."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        os.close(read_end)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        answer = os.dup(write_end)
        os.close(write_end)
        begin = time.monotonic()
        seeds.sow(seeds.of(entry.name))
        try:
            result = run(entry)
        except BaseException as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        result["seconds"] = round(time.monotonic() - begin, 2)
        with contextlib.suppress(OSError), os.fdopen(answer, "w") as stream:
            json.dump({"result": result}, stream)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        lines = [line for line in stream.read().splitlines() if line.startswith('{"result"')]
    _, status = os.waitpid(child, 0)
    return json.loads(lines[-1])["result"] if lines else {"error": f"ended with status {status}"}


def main(what: str, *names: str) -> None:
    torch.set_num_threads(1)  # threads don't survive a fork
    cpp_extension.load_inline = cuda.load_inline  # without a GPU, CUDA C++ runs in the emulator
    if what == "honest":  # imports what every comparison needs once, before the forks
        interpreter.quicken()
        check.assert_matches(torch.square, torch.square, shapes=[(1, 1)])
    entries = {
        "exploits": lambda: corpus.exploits() + corpus.limits() + corpus.accepted(),
        "honest": corpus.honest,
    }[what]()
    run = run_honest if what == "honest" else run_exploit
    chosen = [one for one in entries if not one.needs and (not names or one.name in names)]
    json.dump({one.name: in_a_child(run, one) for one in chosen}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])

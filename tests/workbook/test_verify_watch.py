"""What the candidate's process notices: replaced and planted functions, hooks, frames, and telling names."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from commands import ROOT

from workbook.verify.arguments import leaves

# Runs a file as a candidate, calls its `f`, and prints what the watch has seen.
WATCHED = """
import runpy, sys
from workbook.verify.watch import Watch

watch = Watch(sys.argv[1])
runpy.run_path(sys.argv[1] + "/candidate.py", run_name="candidate")["f"]()
print(*watch.replaced(), *(what for _, what in watch.events), *watch.changed_state(), sep="\\n")
"""


@pytest.fixture
def seen_by_the_watch(tmp_path):
    def run(body: str) -> list[str]:
        (tmp_path / "candidate.py").write_text(textwrap.dedent(body))
        ran = subprocess.run(
            [sys.executable, "-c", WATCHED, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()

    return run


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("import torch; torch.nn.Conv2d.forward = lambda self, x: x", "torch.nn.modules.conv.Conv2d.forward"),
        ("import torch; torch.nn.Module.__call__ = lambda self, *args: 0", "torch.nn.Module.__call__"),
        ("import sys, types; sys.modules['time'] = types.ModuleType('time')", "sys.modules['time']"),
        ("import torch, types; torch.cuda = types.ModuleType('torch.cuda')", "torch.cuda"),
        (
            "import torch\n    global library\n"
            "    library = torch._C._dispatch_library('IMPL', 'aten', 'CPU', '', 0)\n"
            "    library.impl('aten::isclose', 'CPU', lambda *args: args[0] == args[0])",
            "torch.ops.aten.isclose",
        ),
        ("import gc; gc.callbacks.append(lambda *args: None)", "gc.callbacks"),
        ("import sys; sys.setprofile(lambda *args: None)", "observes every function call (sys.setprofile)"),
        ("import sys; sys.addaudithook(lambda *args: None)", "observes what other code does"),
        ("import ctypes; ctypes.CDLL(None).fork", "calls fork of the C library"),
        ("import torch; torch.backends.cuda.enable_flash_sdp(False)", "backends of scaled_dot_product"),
        (
            "from torch.nn.modules import module\n"
            "    module.register_module_forward_hook(lambda *args: None)",
            "hooks of all modules",
        ),
        ("import glob; glob.glob('/srv/**/*.json', recursive=True)", "searches /srv"),
        ("import os; os.listdir('/')", "searches /"),
        (
            "try: 1 / 0\n    except ZeroDivisionError as error: error.__traceback__.tb_frame",
            "walks the call stack (tb_frame)",
        ),
    ],
    ids=lambda one: one[:40],
)  # fmt: skip
def test_what_no_kernel_needs_is_noticed(seen_by_the_watch, body, says):
    assert any(says in line for line in seen_by_the_watch(f"def f():\n    {body}\n"))


def test_what_honest_code_does_is_not_noticed(seen_by_the_watch):
    seen = seen_by_the_watch(
        """
        import ctypes, dataclasses, functools, inspect, logging, traceback, warnings
        import torch

        @dataclasses.dataclass
        class Settings:
            n: int = 3

        @functools.lru_cache
        def helper(n):
            return n

        @torch.library.custom_op("verify_watch::double", mutates_args=())
        def double(x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        def f():
            warnings.warn("slow")
            logging.getLogger("candidate").warning("slow")
            ctypes.CDLL(None).getpid()
            inspect.signature(helper)
            try:
                helper(Settings().n / 0)
            except ZeroDivisionError:
                traceback.print_exc()
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                return torch.nn.Linear(3, 3)(double(torch.ones(2, 3)))
        """
    )
    assert seen == [""]


def test_results_are_flattened_in_the_order_of_their_keys():
    assert leaves((1, [2, (3,)], {"b": 5, "a": (4,)})) == [1, 2, 3, 4, 5]

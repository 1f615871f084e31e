"""Scripts in processes of their own, the logger's prefix taken off, and a kernel lifted out of generated
code.
"""

from __future__ import annotations

import pytest
import torch
import triton

from helpers import device, ptx, records
from helpers.lessons import scripts

DEBUGGED = """
    x = 41
    breakpoint()
    print("the end", x)
"""


def test_a_script_reads_commands_for_its_debugger():
    printed = scripts.run_script(DEBUGGED, "p x + 1\ncontinue\n")
    assert "[pdb] p x + 1\n42\n" in printed and printed.endswith("the end 41\n")
    assert "(Pdb)" not in printed


def test_a_script_gets_variables_and_its_error_is_shown():
    script = """
        import os
        print(os.environ["COLOUR"])
        raise RuntimeError("as meant")
    """
    printed = scripts.run_script(script, COLOUR="green")
    assert printed.startswith("green\n") and "RuntimeError: as meant" in printed
    assert 'File "script.py"' in printed  # and not the temporary folder


def recorded_code() -> str:
    params = {"n_rows": 1823, "n_cols": 781}
    return records.measured_file("triton/output-code", lambda path: None, ".py", params=params).read_text()


def logged(code: str) -> str:
    """What TORCH_LOGS=output_code prints for a piece of code, as torch 2.13 does."""
    prefix = "V1122 01:55:45.470000 24895 torch/_inductor/graph.py:2722] [0/0] [__output_code]"
    lines = ["Output code: ", *code.splitlines(), "Output code written to: /tmp/x/cabc.py"]
    return "a warning of something else\n" + "".join(f"{prefix} {line}\n" for line in lines)


def test_the_code_is_read_from_what_the_logger_prints(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)  # the record, on every machine
    code = recorded_code()
    assert scripts.output_code(logged(code)).split() == code.split()
    assert scripts.kernel_text(scripts.output_code(logged(code))) == scripts.kernel_text(code)


def test_a_script_that_logs_no_code_is_shown():
    with pytest.raises(ValueError, match="no CUDA here"):
        scripts.output_code("RuntimeError: no CUDA here\n")
    with pytest.raises(ValueError, match=r"no function decorated with @triton\.jit"):
        scripts.kernel_text("import torch\n")
    with pytest.raises(ValueError, match="defines no function"):
        scripts.load_kernel("x = 1\n")


def test_a_lifted_kernel_runs():
    text = """@triton.jit
def add_one(x_ptr, n, XBLOCK: tl.constexpr):
    index = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(x_ptr + index, tl.load(x_ptr + index, index < n) + 1, index < n)
"""
    x = torch.zeros(10)
    ptx.interpreted(scripts.load_kernel(text))[(triton.cdiv(10, 4),)](x, 9, XBLOCK=4)
    assert x.tolist() == [1.0] * 9 + [0.0]


def test_prints_and_asserts_of_the_gpu_are_separated():
    printed = "\n".join(
        [
            *(f"pid (0, 0, 0) idx ({i}) x: {i}.000000" for i in (3, 1, 2, 0, 1, 5, 4)),
            "script.py:10: unknown: block: [0,0,0], thread: [3,0,0] Assertion `too big` failed.",
            "Traceback (most recent call last):",
            "torch.AcceleratorError: CUDA error: device-side assert triggered",
        ]
    )
    lines = scripts.debug_lines(printed)
    assert [line["by"] for line in lines] == ["device_print"] * 4 + ["device_assert", "then"]
    assert lines[0]["printed"] == "pid (0, 0, 0) idx (0) x: 0.000000"
    assert lines[-1]["printed"].startswith("torch.AcceleratorError")

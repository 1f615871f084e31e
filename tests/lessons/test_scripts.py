"""Scripts in processes of their own."""

from __future__ import annotations

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

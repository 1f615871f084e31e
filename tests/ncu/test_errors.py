"""Each failure of ncu is one sentence."""

from __future__ import annotations

import pytest

from helpers import ncu


@pytest.mark.parametrize(
    ("text", "status", "reason", "says"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not",
            1,
            "permission",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not", 1, "permission", "--cap-add=SYS_ADMIN"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not", 1, "permission", "sudo"),
        (
            "==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. add\n2. mul",
            0,
            "no-kernels",
            "add, mul",
        ),
        ("==WARNING== No kernels were profiled.", 0, "no-kernels", "'square'"),
        (
            "before\nTraceback (most recent call last):\n  File x\nKeyError: 3\n==ERROR== The application "
            "returned an error code (1).\n"
            "==WARNING== No kernels were profiled.",
            1,
            "script",
            "KeyError: 3",
        ),
        (
            "bye\n==ERROR== The application returned an error code (9).\n==WARNING== No kernels were "
            "profiled.",
            9,
            "script",
            "bye",
        ),
        (
            "==ERROR== Failed to initialize the profiler: LibraryNotLoaded. Check that a compatible driver",
            1,
            "driver",
            "update the driver",
        ),
        ("==ERROR== Profiling failed because a driver resource was unavailable.", 1, "busy", "DCGM"),
        ("==ERROR== unrecognised option '--sett'. Use --help for further details.", 1, "option", "--sett"),
        ("==ERROR== Something new.", 1, "other", "Something new"),
        ("", 3, "other", "exit status 3"),
    ],
)
def test_diagnoses(text, status, reason, says):
    error = ncu.diagnose(text, status, {"kernel": "square"})
    assert error.reason == reason and says in str(error)
    assert "before" not in str(error)


def test_nothing_launched_at_all():
    assert "launched no kernel" in str(ncu.diagnose("==WARNING== No kernels were profiled.", 0, {}))

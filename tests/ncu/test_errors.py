"""Each failure of ncu is one sentence."""

from __future__ import annotations

import pytest

from helpers import ncu

NONE = "==WARNING== No kernels were profiled."
FAILED = "==ERROR== The application returned an error code"


@pytest.mark.parametrize(
    ("text", "status", "reason", "says"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not", 1, "permission", "sudo"),
        (f"{NONE}\nAvailable Kernels:\n1. add\n2. mul", 0, "no-kernels", "add, mul"),
        (NONE, 0, "no-kernels", "'square'"),
        (
            f"before\nTraceback (most recent call last):\n  File x\nKeyError: 3\n{FAILED} (1).\n{NONE}",
            1,
            "script",
            "KeyError: 3",
        ),
        (f"bye\n{FAILED} (9).\n{NONE}", 9, "script", "bye"),
        (
            "==ERROR== Failed to initialize the profiler: LibraryNotLoaded. Check that",
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


def test_without_permission_each_way_to_get_it_is_named():
    said = str(ncu.diagnose("==ERROR== ERR_NVGPUCTRPERM - The user does not", 1, {}))
    assert all(
        way in said for way in ("NVreg_RestrictProfilingToAdminUsers=0", "--cap-add=SYS_ADMIN", "sudo")
    )


def test_nothing_launched_at_all():
    assert "launched no kernel" in str(ncu.diagnose(NONE, 0, {}))

"""benchmarks/sanitize.py: reading what compute-sanitizer printed."""

from __future__ import annotations

import pytest
import sanitize

BANNER = "========= COMPUTE-SANITIZER\n"


CLEAN = "========= ERROR SUMMARY: 0 errors\n"
READ = "========= Invalid __global__ read\n========= ERROR SUMMARY: 24 errors\n"
NO_HAZARD = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
HAZARD = "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"


@pytest.mark.parametrize(
    ("tool", "run", "printed", "errors", "fine"),
    [
        ("memcheck", "kernels", "kernels: done\n" + BANNER + CLEAN, 0, True),
        ("memcheck", "kernels", "kernels: done\n" + BANNER + CLEAN.replace("0", "2"), 2, False),
        ("memcheck", "overrun", BANNER + READ, 24, True),
        ("memcheck", "overrun", "overrun: done\n" + BANNER + CLEAN, 0, False),
        ("racecheck", "kernels", "kernels: done\n" + BANNER + NO_HAZARD, 0, True),
        ("racecheck", "kernels", "kernels: done\n" + BANNER + HAZARD, 1, False),
        ("synccheck", "kernels", BANNER + "AssertionError\n" + CLEAN, None, False),
        ("synccheck", "kernels", "", None, False),
    ],
)
def test_a_sanitizers_output_is_read(tool, run, printed, errors, fine):
    """A run that did not end is never clean, and a control must be found."""
    found = sanitize.read(tool, run, printed, 1.0)
    assert (found.errors, found.as_it_should_be) == (errors, fine)
    if "Invalid" in printed:
        assert "Invalid __global__ read" in str(found)

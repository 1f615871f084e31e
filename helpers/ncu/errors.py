"""Why Nsight Compute gave no report, in one sentence with what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from helpers import device

PERMISSION = (
    "Nsight Compute may not read this GPU's counters (ERR_NVGPUCTRPERM): run it as root (sudo), or set the driver "
    "option NVreg_RestrictProfilingToAdminUsers=0 (a line `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in "
    "/etc/modprobe.d/, then reload the driver or reboot); in a container start it with --cap-add=SYS_ADMIN."
)


class NcuError(RuntimeError):
    """Nsight Compute did not give a report. `reason` is one word for code, `output` all that ncu and the script wrote.

    Reasons: "graded", "no-gpu", "not-found", "permission", "no-kernels", "script", "driver", "busy", "option", "timeout", "other".
    """

    def __init__(self, message: str, reason: str, output: str = ""):
        super().__init__(message)
        self.reason, self.output = reason, output


def script_output(text: str) -> str:
    """What the profiled script itself printed: ncu's own lines begin with ==."""
    lines = [line for line in text.splitlines() if not line.startswith("==")]
    return "".join(line + "\n" for line in lines if line.strip())


def diagnose(output: str, exit_status: int = 1, options: dict | None = None) -> NcuError:
    """Turn what ncu wrote into one sentence that says what happened and what to do.

    Args:
        output: everything that ncu and the script wrote.
        exit_status: ncu's exit status.
        options: the options of `command` that were in force, to name the filters.

    Example:
        >>> from helpers import ncu
        >>> print(ncu.diagnose("==WARNING== No kernels were profiled."))
        The script ran, but it launched no kernel on the GPU, so there is nothing to profile.
    """
    options = options or {}
    ncu_lines = [line for line in output.splitlines() if line.startswith(("==ERROR==", "==WARNING=="))]
    said = " ".join(ncu_lines)
    if "ERR_NVGPUCTRPERM" in output:
        return NcuError(PERMISSION, "permission", output)
    # The script's own failure comes before "nothing was profiled", which it also causes.
    if "Traceback (most recent call last)" in output:
        lines = script_output(output).splitlines()
        start = max(i for i, line in enumerate(lines) if line.startswith("Traceback"))
        trace = "\n".join(lines[start:])
        return NcuError(f"The script failed while Nsight Compute ran it:\n{trace}", "script", output)
    if re.search(
        r"LibraryNotLoaded|compatible driver|[Dd]river.{0,40}not (compatible|supported)|failed to connect to the CUDA driver",
        said,
    ):
        return NcuError(
            f"Nsight Compute and the NVIDIA driver ({device.driver_version() or 'unknown'}) do not fit together: "
            "take an ncu of the driver's CUDA version or older, or update the driver.",
            "driver",
            output,
        )
    if re.search(
        r"driver resource was unavailable|concurrently collecting profiling|InterprocessLock|nsight-compute-lock",
        said,
    ):
        return NcuError(
            "Something else is profiling this GPU (another ncu, nsys, DCGM or a monitoring agent), or another user's "
            "ncu holds its lock file in the temporary folder: stop it and run again.",
            "busy",
            output,
        )
    if re.search(
        r"[Uu]nrecogni[sz]ed option|[Uu]nknown|[Ii]nvalid (argument|option|value)|Failed to find (section|metric|set)",
        said,
    ):
        return NcuError(f"Nsight Compute does not take these options: {_first(ncu_lines)}", "option", output)
    if "application returned an error code" in said:
        tail = "\n".join(script_output(output).splitlines()[-15:])
        return NcuError(
            f"The script failed while Nsight Compute ran it ({_first(ncu_lines)}):\n{tail}", "script", output
        )
    if "No kernels were profiled" in output:
        wanted = " and ".join(
            f"{what} {options[key]!r}"
            for key, what in (("kernel", "the kernel name"), ("nvtx", "the NVTX range"))
            if options.get(key)
        )
        launched = re.findall(r"^\s*\d+\.\s+(.+)$", output.partition("Available Kernels:")[2], re.MULTILINE)
        names = f" It launched {', '.join(launched[:8])}." if launched else ""
        return NcuError(
            f"The script ran, but no launch matched {wanted}.{names}"
            if wanted
            else "The script ran, but it launched no kernel on the GPU, so there is nothing to profile.",
            "no-kernels",
            output,
        )
    what = _first(ncu_lines) or "\n".join(output.splitlines()[-10:]) or "it wrote nothing."
    return NcuError(f"Nsight Compute gave no report (exit status {exit_status}): {what}", "other", output)


def _first(lines: Iterable[str]) -> str:
    return next((re.sub(r"^==\w+==\s*", "", line) for line in lines), "")

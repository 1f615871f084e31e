"""Explain in one sentence why Nsight Compute produced no report, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from helpers import device

PERMISSION = (
    "Nsight Compute may not read this GPU's counters (ERR_NVGPUCTRPERM): run it as root (sudo), or set the "
    "driver "
    "option NVreg_RestrictProfilingToAdminUsers=0 (a line `options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0` in "
    "/etc/modprobe.d/, then reload the driver or reboot); in a container start it with --cap-add=SYS_ADMIN."
)


class NcuError(RuntimeError):
    """Nsight Compute produced no report.

    Attributes:
        reason: one word that code can test: "no-gpu", "not-found", "permission", "no-kernels",
            "script", "driver", "busy", "option", "timeout" or "other".
        output: everything that ncu and the script printed.
    """

    def __init__(self, message: str, reason: str, output: str = ""):
        super().__init__(message)
        self.reason, self.output = reason, output


def script_output(text: str) -> str:
    """Returns what the profiled script itself printed, without ncu's lines, which start with ==."""
    lines = [line for line in text.splitlines() if not line.startswith("==")]
    return "".join(line + "\n" for line in lines if line.strip())


def diagnose(output: str, exit_status: int = 1, options: dict | None = None) -> NcuError:
    """Returns an error that explains ncu's output in one sentence: what happened and what to do.

    Args:
        output: everything that ncu and the script printed.
        exit_status: ncu's exit status.
        options: the options that were passed to `command`; the message names the filters among them.

    Example:
        >>> from helpers import ncu
        >>> print(ncu.diagnose("==WARNING== No kernels were profiled."))
        The script ran, but it launched no kernel on the GPU, so there is nothing to profile.
    """
    options = options or {}
    ncu_lines = [line for line in output.splitlines() if line.startswith(("==ERROR==", "==WARNING=="))]
    messages = " ".join(ncu_lines)
    if "ERR_NVGPUCTRPERM" in output:
        return NcuError(PERMISSION, "permission", output)
    # Check for a failed script before "no kernels were profiled", because a failure also causes that message.
    if "Traceback (most recent call last)" in output:
        lines = script_output(output).splitlines()
        start = max(i for i, line in enumerate(lines) if line.startswith("Traceback"))
        trace = "\n".join(lines[start:])
        return NcuError(f"The script failed while Nsight Compute ran it:\n{trace}", "script", output)
    if re.search(
        r"LibraryNotLoaded|compatible driver|[Dd]river.{0,40}not (compatible|supported)|failed to connect "
        r"to the CUDA driver",
        messages,
    ):
        return NcuError(
            f"Nsight Compute and the NVIDIA driver ({device.driver_version() or 'unknown'}) are not "
            "compatible: "
            "install an ncu of the driver's CUDA version or older, or update the driver.",
            "driver",
            output,
        )
    if re.search(
        r"driver resource was unavailable|concurrently collecting "
        r"profiling|InterprocessLock|nsight-compute-lock",
        messages,
    ):
        return NcuError(
            "Something else is profiling this GPU (another ncu, nsys, DCGM or a monitoring agent), or "
            "another user's "
            "ncu holds its lock file in the temporary folder: stop it and run again.",
            "busy",
            output,
        )
    if re.search(
        r"[Uu]nrecogni[sz]ed option|[Uu]nknown|[Ii]nvalid (argument|option|value)|Failed to find "
        r"(section|metric|set)",
        messages,
    ):
        return NcuError(
            f"Nsight Compute does not accept these options: {_first(ncu_lines)}", "option", output
        )
    if "application returned an error code" in messages:
        tail = "\n".join(script_output(output).splitlines()[-15:])
        return NcuError(
            f"The script failed while Nsight Compute ran it ({_first(ncu_lines)}):\n{tail}", "script", output
        )
    if "No kernels were profiled" in output:
        filters = " and ".join(
            f"{what} {options[key]!r}"
            for key, what in (("kernel", "the kernel name"), ("nvtx", "the NVTX range"))
            if options.get(key)
        )
        launched = re.findall(r"^\s*\d+\.\s+(.+)$", output.partition("Available Kernels:")[2], re.MULTILINE)
        names = f" It launched {', '.join(launched[:8])}." if launched else ""
        return NcuError(
            f"The script ran, but no launch matched {filters}.{names}"
            if filters
            else "The script ran, but it launched no kernel on the GPU, so there is nothing to profile.",
            "no-kernels",
            output,
        )
    what = _first(ncu_lines) or "\n".join(output.splitlines()[-10:]) or "it printed nothing."
    return NcuError(f"Nsight Compute produced no report (exit status {exit_status}): {what}", "other", output)


def _first(lines: Iterable[str]) -> str:
    return next((re.sub(r"^==\w+==\s*", "", line) for line in lines), "")

"""Detects this machine's hardware and tools, explains what is missing, and prepares a notebook for it."""

from __future__ import annotations

import functools
import itertools
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import tested_versions, toolkit
from helpers.machine import Finding, GpuSpec, Survey

if TYPE_CHECKING:
    import torch

# The real clock, even if a lesson replaces time.perf_counter later.
_clock_s = time.perf_counter

# Where NVIDIA's installers, conda and Colab put the tools when they are not on PATH.
_TOOL_FOLDERS = (
    "/usr/local/cuda/bin",
    "/opt/cuda/bin",
    "/opt/nvidia/nsight-compute/*",
    "/usr/local/cuda/nsight-compute*",
    "/usr/local/NVIDIA-Nsight-Compute*",
)

# What each tool is for, and the command that installs it.
_TOOLS = {
    "c++": (
        "C++ extensions (lesson 02)",
        "apt-get install g++   # or: conda install -c conda-forge cxx-compiler",
    ),
    "ninja": ("C++ and CUDA extensions (lesson 02)", "pip install ninja"),
    "gpu": (
        "live measurements (recorded ones are shown instead)",
        "run on a machine with an NVIDIA GPU, or in Colab: Runtime > Change runtime type > T4 GPU",
    ),
    "nvcc": (
        "CUDA extensions on this GPU (lesson 02)",
        "conda install -c conda-forge cuda-nvcc   # or NVIDIA's CUDA toolkit; then set CUDA_HOME",
    ),
    # The version depends on torch: see `toolkit.install_line`.
    "nvrtc": ("compiling CUDA C++ to PTX and machine code (lessons 02 and 04)", ""),
    "ncu": (
        "Nsight Compute (lesson 05; recorded reports are read instead)",
        "conda install -c conda-forge nsight-compute   # or NVIDIA's Nsight Compute installer",
    ),
}


# What each tool prints for --version.
_VERSIONS = {
    "c++": r"(.+)",
    "ninja": r"([\d.]+\d)",
    "nvcc": r"release ([\d.]+)",
    "ncu": r"Version ([\d.]+)",
}


class Missing(RuntimeError):
    """A required tool or GPU is missing. The message names it and the command that installs it."""


# Resident blocks per SM, by compute capability: CUDA C++ Programming Guide, "Technical Specifications per
# Compute Capability". torch's device properties don't include the driver's attribute.
_MAX_BLOCKS_PER_SM = {
    (7, 0): 32,
    (7, 5): 16,
    (8, 0): 32,
    (8, 6): 16,
    (8, 7): 16,
    (8, 9): 24,
    (9, 0): 32,
    (10, 0): 32,
}


def cache_folder() -> Path:
    """Returns the folder of builds and live results: WORKBOOK_CACHE, or kernel-workbook in the user's cache.

    Example:
        >>> from helpers import device
        >>> device.cache_folder().name
        'kernel-workbook'
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("WORKBOOK_CACHE") or Path(base) / "kernel-workbook")


@functools.cache
def has_gpu() -> bool:
    """Whether torch can launch work on an NVIDIA GPU."""
    import torch

    if not torch.cuda.is_available() or torch.version.hip:
        return False
    try:
        torch.cuda.current_device()
    except RuntimeError:
        return False
    return True


@functools.cache
def find_tool(name: str) -> Path | None:
    """Returns the path of "c++", "ninja", "nvcc" or "ncu", or None.

    Searches PATH, CUDA_HOME, this Python's own folder and the folders of NVIDIA's installers.
    """
    names = {"c++": [os.environ.get("CXX", ""), "c++", "g++", "clang++"]}.get(name, [name])
    cuda_home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = [Path(sys.executable).parent]
    if cuda_home:
        folders.insert(0, Path(cuda_home) / "bin")
    for pattern in _TOOL_FOLDERS:
        # the newest version first
        folders += sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
    for candidate in filter(None, names):
        found = shutil.which(candidate)
        if found:
            return Path(found)
        for folder in folders:
            if os.access(folder / candidate, os.X_OK) and (folder / candidate).is_file():
                return folder / candidate
    return None


def cuda_toolkit() -> Path | None:
    """Returns the folder of the CUDA toolkit that nvcc belongs to; None without nvcc."""
    nvcc = find_tool("nvcc")
    if nvcc is None:
        return None
    homes = (nvcc.parent.parent, nvcc.resolve().parent.parent, Path("/usr/local/cuda"))
    return next((home for home in homes if (home / "include/cuda_runtime.h").is_file()), homes[0])


def nvrtc() -> toolkit.Nvrtc | None:
    """Returns the NVRTC to compile with, preferably of the CUDA version that torch was built for; None
    without any.

    The lookup takes about a millisecond and isn't cached, so a new installation is found at once.
    """
    import torch

    return toolkit.find_nvrtc(torch.version.cuda, cuda_toolkit())


def require(*names: str) -> None:
    """Raises `Missing` unless all the named tools are available.

    Args:
        names: any of "gpu", "c++", "ninja", "nvcc", "nvrtc" and "ncu".

    Raises:
        Missing: a tool is missing. The message says what needs it and how to install it.
        ValueError: an unknown name.
    """
    for name in names:
        if name not in _TOOLS:
            raise ValueError(f"require() knows {', '.join(_TOOLS)}; it was given {name!r}.")
        lookup = {"gpu": has_gpu, "nvrtc": nvrtc}.get(name, functools.partial(find_tool, name))
        if lookup() in (False, None):
            raise Missing(_missing_sentence(name))


def _what_and_how(name: str) -> tuple[str, str]:
    """Returns what a tool is for and the command that installs it."""
    import torch

    what, how = _TOOLS[name]
    return what, how or toolkit.install_line(torch.version.cuda)


def _missing_sentence(name: str) -> str:
    what, how = _what_and_how(name)
    if name == "gpu":
        return f"No NVIDIA GPU that torch can use was found; it is needed for {what}. To get one: {how}"
    label = {"nvrtc": "NVRTC"}.get(name, name)
    return f"{label} is missing; it is needed for {what}. To install it: {how}"


@functools.cache
def nvml_handle() -> tuple | None:
    """Returns the pynvml module and the handle of torch's current GPU; None if NVML isn't available."""
    if not has_gpu():
        return None
    try:
        import pynvml
    except ImportError:
        return None
    import torch

    try:
        pynvml.nvmlInit()
        # By PCI address: NVML's numbering ignores CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
        p = torch.cuda.get_device_properties(torch.cuda.current_device())
        address = f"{p.pci_domain_id:08x}:{p.pci_bus_id:02x}:{p.pci_device_id:02x}.0"
        return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(address.encode())
    except pynvml.NVMLError:
        return None


def _peak_gb_per_s(properties) -> float | None:
    """Returns the theoretical memory bandwidth: memory clock × bus width × 2 (double data rate)."""
    # torch reports the memory clock (kHz) and the bus width (bits) from 2.8 on.
    clock_khz = getattr(properties, "memory_clock_rate", 0)
    bus_bits = getattr(properties, "memory_bus_width", 0)
    if not (clock_khz and bus_bits) and (nvml := nvml_handle()):
        pynvml, handle = nvml
        clock_khz = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM) * 1000
        bus_bits = pynvml.nvmlDeviceGetMemoryBusWidth(handle)
    if not (clock_khz and bus_bits):
        return None
    return round(2 * clock_khz * 1e3 * bus_bits / 8 / 1e9, 1)


@functools.cache
def gpu_spec() -> GpuSpec | None:
    """Returns this machine's GPU, with its copy bandwidth measured once (0.1 to 1 s); None without a GPU."""
    if not has_gpu():
        return None
    import torch

    index = torch.cuda.current_device()
    p = torch.cuda.get_device_properties(index)
    capability = (p.major, p.minor)
    spec = GpuSpec(
        name=p.name,
        compute_capability=capability,
        sm_count=p.multi_processor_count,
        warp_size=p.warp_size,
        max_threads_per_sm=p.max_threads_per_multi_processor,
        max_blocks_per_sm=_MAX_BLOCKS_PER_SM.get(capability, 32),
        registers_per_sm=p.regs_per_multiprocessor,
        shared_bytes_per_sm=p.shared_memory_per_multiprocessor,
        l2_bytes=p.L2_cache_size,
        memory_bytes=p.total_memory,
        peak_gb_per_s=_peak_gb_per_s(p),
        copy_gb_per_s=None,
    )
    return replace(spec, copy_gb_per_s=measure_copy(spec.memory_bytes))


def measure_copy(memory_bytes: int) -> float:
    """Measures a device-to-device copy in GB/s, bytes read plus bytes written: the lessons' bandwidth
    ceiling.

    A copy moves a gigabyte, which is far larger than any L2, and takes long enough that the launch gap inside
    CUDA events doesn't matter. An idle GPU needs time to raise its clocks, so the function copies in batches
    until three of them are within 1 % of the fastest, for at least 0.1 s and at most one second, and returns
    the fastest.
    """
    import torch

    n_bytes = min(1 << 30, memory_bytes // 8)
    source = torch.empty(n_bytes, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    start_s, batches = _clock_s(), []
    while True:
        events = [torch.Event(device="cuda", enable_timing=True) for _ in range(10)]
        for event in events:
            event.record()
            target.copy_(source)
        torch.accelerator.synchronize()
        batches.append(statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events)))
        elapsed_s = _clock_s() - start_s
        if elapsed_s > 1 or (elapsed_s > 0.1 and sum(batch < 1.01 * min(batches) for batch in batches) >= 3):
            return round(2 * n_bytes / min(batches) / 1e6, 1)


def package_version(package: str) -> str | None:
    """Returns the installed version of a distribution, or None.

    Example:
        >>> from helpers import device
        >>> device.package_version("no-such-package") is None
        True
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _first_line(command: list[str], pattern: str) -> str | None:
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(pattern, text)
    return match.group(1) if match else None


def left_to_eager(dtype: torch.dtype) -> str:
    """Returns why torch.compile would run eager kernels for `dtype` on this GPU, or "" if it compiles.

    torch only warns about it (`_check_triton_bf16_support` in torch/_inductor/compile_fx.py), and what it
    returns looks like any compiled function.
    """
    import torch

    if dtype == torch.bfloat16 and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "torch.compile leaves bfloat16 to eager on this GPU."
    return ""


def driver_version() -> str | None:
    """Returns the version of the NVIDIA driver, from the kernel module or nvidia-smi; None without one."""
    try:
        match = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", Path("/proc/driver/nvidia/version").read_text())
        if match:
            return match.group(1)
    except OSError:
        pass  # no kernel module: ask nvidia-smi, which WSL has
    return _first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], r"([\d.]+)")


def counters_allowed() -> bool | None:
    """Whether this user may read the GPU's hardware counters; None if the driver doesn't say.

    The driver's switch is NVreg_RestrictProfilingToAdminUsers, shown in /proc/driver/nvidia/params.
    """
    try:
        params = Path("/proc/driver/nvidia/params").read_text()
    except OSError:
        return None
    match = re.search(r"RmProfilingAdminOnly:\s*(\d)", params)
    if match is None:
        return None
    return match.group(1) == "0" or os.geteuid() == 0


def _problems(driver: str | None, torch) -> list[str]:
    """Returns one sentence, with what to do, for each pair of components that don't work together."""
    found = []
    if driver and torch.version.cuda is None:
        found.append(
            f"This machine has an NVIDIA driver ({driver}) but torch {torch.__version__} is a CPU-only "
            "build: install the CUDA build (pip install --force-reinstall torch from PyPI on Linux)."
        )
    elif driver and not has_gpu():
        try:
            torch.cuda.init()
            why = "no GPU is visible (is CUDA_VISIBLE_DEVICES empty?)"
        except (RuntimeError, AssertionError) as error:
            why = str(error).splitlines()[0]
        if "too old" in why or "insufficient" in why:
            found.append(
                f"The driver ({driver}) is older than torch's CUDA runtime {torch.version.cuda}: "
                "update the driver, or install a torch built for an older CUDA."
            )
        else:
            found.append(f"The driver ({driver}) is installed, but torch can't use a GPU: {why}.")
    if (compiler := nvrtc()) and compiler.problem:
        found.append(compiler.problem)
    if has_gpu() and find_tool("ncu") and counters_allowed() is False:
        found.append(
            "ncu is installed but may not read the counters (ERR_NVGPUCTRPERM): run as root, or set the "
            "driver "
            "option NVreg_RestrictProfilingToAdminUsers=0 and reload it; in a container add "
            "--cap-add=SYS_ADMIN."
        )
    return found


def _tool_version(name: str) -> str | None:
    """Returns the version of "c++", "ninja", "nvcc" or "ncu", else its path; None if it is missing."""
    tool = find_tool(name)
    return tool and (_first_line([str(tool), "--version"], _VERSIONS[name]) or str(tool))


def survey() -> Survey:
    """Inspects this machine: Python, torch, triton, compilers, driver, GPU and Nsight Compute."""
    import torch

    driver, gpu = driver_version(), gpu_spec()
    tools = {name: _tool_version(name) for name in _VERSIONS}
    if gpu and tools["ncu"]:
        allowed = {True: "may read counters", False: "may NOT read counters", None: "counters not tested"}
        tools["ncu"] += f" ({allowed[counters_allowed()]})"
    gpu_text = (
        gpu
        and f"{gpu.name}, {gpu.target}, {gpu.memory_bytes / 1e9:,.0f} GB, copy {gpu.copy_gb_per_s:,.0f} GB/s"
    )
    compiler, built_for = nvrtc(), torch.version.cuda
    nvrtc_text = compiler and (
        f"{toolkit.named(compiler.version)} (torch is "
        f"{f'built for CUDA {built_for}' if built_for else 'a CPU build'})"
    )
    findings = (
        Finding("Python", platform.python_version()),
        Finding("torch", torch.__version__, "everything", "pip install torch"),
        Finding("triton", package_version("triton"), "lessons 03 and 04", "pip install triton (Linux)"),
        *(Finding(name, tools[name], *_TOOLS[name]) for name in ("c++", "ninja")),
        Finding("NVRTC", nvrtc_text, *_what_and_how("nvrtc")),
        Finding("driver", driver, *_TOOLS["gpu"]),
        Finding("GPU", gpu_text, *_TOOLS["gpu"]),
        *(Finding(name, tools[name], *_TOOLS[name]) for name in ("nvcc", "ncu")),
    )
    others = {name: package_version(name) for name in ("triton", "numpy")}
    problems = (*_problems(driver, torch), *tested_versions.problems({"torch": torch.__version__, **others}))
    needed = {"torch", "triton", "c++", "ninja", "NVRTC"} | ({"nvcc"} if gpu else set())
    here = {f.name for f in findings if f.here}
    return Survey(findings, problems, gpu, ok=needed <= here)


def prepare() -> Survey:
    """Prepares a notebook and returns the survey. The setup cell of each notebook calls it.

    It puts ninja and nvcc on PATH, because torch calls them by name, and widens pandas' tables. Without a GPU
    it turns Triton's interpreter on (unless Triton is already imported, which is too late, or
    TRITON_INTERPRET is set). Two warnings are silenced: the profiler's, that there is no GPU, and
    autograd's, that its thread has no CUDA context yet. It also asks Triton to fuse a product and a sum into
    one `fma` (unless TRITON_DEFAULT_FP_FUSION is set), as it did when the records were made; Triton 3.10 will
    no longer do so by default.
    """
    import warnings

    import pandas as pd

    folders = os.environ.get("PATH", "").split(os.pathsep)
    for tool in filter(None, map(find_tool, ("ninja", "nvcc"))):
        if str(tool.parent) not in folders:
            folders.append(str(tool.parent))
    os.environ["PATH"] = os.pathsep.join(folders)
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    pd.set_option("display.width", 160, "display.max_columns", 20, "display.max_colwidth", 200)
    if has_gpu():
        warnings.filterwarnings("ignore", message="Attempting to run cuBLAS, but there was no current CUDA")
    else:
        warnings.filterwarnings("ignore", message="CUDA is not available, disabling CUDA profiling")
        if "triton" not in sys.modules:
            os.environ.setdefault("TRITON_INTERPRET", "1")
    return survey()

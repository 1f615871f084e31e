"""Find out what hardware and tools are here, say what is missing and how to get it, and prepare a notebook for it."""

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

from helpers import toolkit, tried
from helpers.machine import Finding, GpuSpec, Survey

if TYPE_CHECKING:
    import torch

# The real clock, whatever becomes of time.perf_counter later.
_clock_s = time.perf_counter

# Where NVIDIA's installers, conda and Colab put the tools when they are not on PATH.
_TOOL_FOLDERS = (
    "/usr/local/cuda/bin",
    "/opt/cuda/bin",
    "/opt/nvidia/nsight-compute/*",
    "/usr/local/cuda/nsight-compute*",
    "/usr/local/NVIDIA-Nsight-Compute*",
)

# What each tool is for, and the one line that gets it.
_TOOLS = {
    "c++": (
        "C++ extensions (lesson 02)",
        "apt-get install g++   # or: conda install -c conda-forge cxx-compiler",
    ),
    "ninja": ("C++ and CUDA extensions (lesson 02)", "pip install ninja"),
    "gpu": (
        "live measurements; recorded ones are shown instead",
        "run on a machine with an NVIDIA GPU, or in Colab: Runtime > Change runtime type > T4 GPU",
    ),
    "nvcc": (
        "CUDA extensions on this GPU (lesson 02)",
        "conda install -c conda-forge cuda-nvcc   # or NVIDIA's CUDA toolkit; then set CUDA_HOME",
    ),
    # Which one, torch decides: `toolkit.install_line`.
    "nvrtc": ("compiling CUDA C++ to PTX and machine code (lessons 02 and 04)", ""),
    "ncu": (
        "Nsight Compute live (lesson 05); recorded reports are read instead",
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
    """A tool or a GPU that the code needs is not here; the message says which and the line that gets it."""


# Blocks an SM can hold at once, by compute capability: CUDA C++ Programming Guide, "Technical Specifications
# per Compute Capability". The driver's attribute is not in torch's device properties.
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
    """Where builds and live results are kept: WORKBOOK_CACHE, or kernel-workbook in the user's cache folder.

    Example:
        >>> from helpers import device
        >>> device.cache_folder().name
        'kernel-workbook'
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("WORKBOOK_CACHE") or Path(base) / "kernel-workbook")


@functools.cache
def has_gpu() -> bool:
    """True where torch can launch work on an NVIDIA GPU."""
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
    """The path of "c++", "ninja", "nvcc" or "ncu", or None.

    Looks on PATH, in CUDA_HOME, beside this Python and where NVIDIA's installers put things.
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
    """The CUDA toolkit's folder that nvcc belongs to; None without nvcc."""
    nvcc = find_tool("nvcc")
    if nvcc is None:
        return None
    homes = (nvcc.parent.parent, nvcc.resolve().parent.parent, Path("/usr/local/cuda"))
    return next((home for home in homes if (home / "include/cuda_runtime.h").is_file()), homes[0])


def nvrtc() -> toolkit.Nvrtc | None:
    """The NVRTC that compiles here: of the CUDA that torch was built for, where that is installed; None without any.

    Looked up at each call, which takes about a millisecond: what is installed meanwhile counts at once.
    """
    import torch

    return toolkit.find_nvrtc(torch.version.cuda, cuda_toolkit())


def require(*names: str) -> None:
    """Raise `Missing` unless every one of "gpu", "c++", "ninja", "nvcc", "nvrtc", "ncu" is here.

    Raises:
        Missing: what is not here, what needs it, and the one line that gets it.
        ValueError: a name that is none of these.
    """
    for name in names:
        if name not in _TOOLS:
            raise ValueError(f"require() knows {', '.join(_TOOLS)}; it was given {name!r}.")
        look = {"gpu": has_gpu, "nvrtc": nvrtc}.get(name, functools.partial(find_tool, name))
        if look() in (False, None):
            raise Missing(_missing_sentence(name))


def _what_and_how(name: str) -> tuple[str, str]:
    """What a tool is for, and the one line that gets it."""
    import torch

    what, how = _TOOLS[name]
    return what, how or toolkit.install_line(torch.version.cuda)


def _missing_sentence(name: str) -> str:
    what, how = _what_and_how(name)
    thing = {"gpu": "An NVIDIA GPU that torch can use", "nvrtc": "NVRTC"}.get(name, name)
    return f"{thing} is not here, and it is needed for {what}. To get it: {how}"


@functools.cache
def nvml_handle() -> tuple | None:
    """The pynvml module and NVML's handle of torch's current GPU; None where NVML is not here or does not answer."""
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
    """Theoretical memory bandwidth: memory clock x bus width x 2 (double data rate)."""
    # cudaDeviceGetAttribute: 36 is the memory clock in kHz, 37 the bus width in bits. torch tells them from 2.8 on.
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
    """This machine's GPU, with its copy bandwidth measured once (0.1 to 1 s), or None where there is no GPU."""
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
    """Device-to-device copy, bytes read plus bytes written, in GB/s: the ceiling that lessons compare with.

    A gigabyte a copy is far beyond every L2, and long enough that the launch gap inside CUDA events does not count. An
    idle GPU takes a while to raise its clocks, and may be held down for a moment, so batches are copied until three
    are as fast as the fastest within 1 %, for 0.1 s at least and a second at most. A ceiling is the fastest batch.
    """
    import torch

    n_bytes = min(1 << 30, memory_bytes // 8)
    source = torch.empty(n_bytes, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    began, batches = _clock_s(), []
    while True:
        events = [torch.Event(device="cuda", enable_timing=True) for _ in range(10)]
        for event in events:
            event.record()
            target.copy_(source)
        torch.accelerator.synchronize()
        batches.append(statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events)))
        took = _clock_s() - began
        if took > 1 or (took > 0.1 and sum(batch < 1.01 * min(batches) for batch in batches) >= 3):
            return round(2 * n_bytes / min(batches) / 1e6, 1)


def package_version(package: str) -> str | None:
    """The installed version of a distribution, or None.

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
    """Why torch.compile would run eager's kernels for `dtype` on this GPU, in a sentence; "" where it compiles.

    torch says so in a warning only (`_check_triton_bf16_support` in torch/_inductor/compile_fx.py), and what it returns
    looks like any compiled function.
    """
    import torch

    if dtype == torch.bfloat16 and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "torch.compile leaves bfloat16 to eager on this GPU."
    return ""


def driver_version() -> str | None:
    """The NVIDIA driver's version, from the kernel module or nvidia-smi; None without one."""
    try:
        match = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", Path("/proc/driver/nvidia/version").read_text())
        if match:
            return match.group(1)
    except OSError:
        pass  # no kernel module: ask nvidia-smi, which WSL has
    return _first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], r"([\d.]+)")


def counters_allowed() -> bool | None:
    """Whether a plain user may read the GPU's hardware counters; None where the driver does not tell.

    The driver's own switch: NVreg_RestrictProfilingToAdminUsers, in /proc/driver/nvidia/params.
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
    """Things that are here but do not fit together, each one sentence with what to do."""
    found = []
    if driver and torch.version.cuda is None:
        found.append(
            f"This machine has an NVIDIA driver ({driver}) but torch {torch.__version__} is a CPU-only build: "
            "install the CUDA build (pip install --force-reinstall torch from PyPI on Linux)."
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
            found.append(f"The driver ({driver}) is here but torch cannot use a GPU: {why}.")
    if (compiler := nvrtc()) and compiler.misfit:
        found.append(compiler.misfit)
    if has_gpu() and find_tool("ncu") and counters_allowed() is False:
        found.append(
            "ncu is here but may not read the counters (ERR_NVGPUCTRPERM): run as root, or set the driver option "
            "NVreg_RestrictProfilingToAdminUsers=0 and reload it; in a container add --cap-add=SYS_ADMIN."
        )
    return found


def _tool_version(name: str) -> str | None:
    """The version of "c++", "ninja", "nvcc" or "ncu", or its path where it does not tell; None where it is not here."""
    tool = find_tool(name)
    return tool and (_first_line([str(tool), "--version"], _VERSIONS[name]) or str(tool))


def survey() -> Survey:
    """Look at this machine: Python, torch, triton, the compilers, driver, GPU, Nsight Compute."""
    import torch

    driver, gpu = driver_version(), gpu_spec()
    tools = {name: _tool_version(name) for name in _VERSIONS}
    if gpu and tools["ncu"]:
        allowed = {True: "may read counters", False: "may NOT read counters", None: "counters untried"}
        tools["ncu"] += f" ({allowed[counters_allowed()]})"
    gpu_text = (
        gpu
        and f"{gpu.name}, {gpu.target}, {gpu.memory_bytes / 1e9:,.0f} GB, copy {gpu.copy_gb_per_s:,.0f} GB/s"
    )
    compiler, built_for = nvrtc(), torch.version.cuda
    nvrtc_text = compiler and (
        f"{toolkit.named(compiler.version)} (torch is {f'built for CUDA {built_for}' if built_for else 'a CPU build'})"
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
    problems = (*_problems(driver, torch), *tried.problems({"torch": torch.__version__, **others}))
    needed = {"torch", "triton", "c++", "ninja", "NVRTC"} | ({"nvcc"} if gpu else set())
    here = {f.name for f in findings if f.here}
    return Survey(findings, problems, gpu, ok=needed <= here)


def prepare() -> Survey:
    """Do what every lesson needs on every machine, and return the survey; the setup cell of each notebook calls it.

    ninja and nvcc come on PATH, since torch calls them by name; tables get the width of a notebook; and without a GPU
    Triton's interpreter is switched on, unless Triton is imported already (too late) or TRITON_INTERPRET is set. That
    torch.profiler can watch no GPU then is known, and its warning is left out. Triton makes one `fma` of a product and a
    sum, unless TRITON_DEFAULT_FP_FUSION is set: so it did when the kernels were recorded, and 3.10 will not by itself.
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
    if not has_gpu():
        warnings.filterwarnings("ignore", message="CUDA is not available, disabling CUDA profiling")
        if "triton" not in sys.modules:
            os.environ.setdefault("TRITON_INTERPRET", "1")
    return survey()

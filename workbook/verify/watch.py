"""What a candidate does besides computing: functions that it replaces, places where it looks, state that it
changes.

A `Watch` is made before the candidate is loaded, in the candidate's own process. It reports what it sees; a
candidate that is determined enough can silence it, but it can't change the inputs, the expected results or
the comparison, which stay in another process.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

from workbook.verify.originals import Originals

# Audit events that mean that code looks for something it wasn't given, and what the report calls them.
_PEEKS = {
    "sys._getframe": "walks the call stack (sys._getframe)",
    "sys._current_frames": "reads the frames of all threads (sys._current_frames)",
    "gc.get_objects": "lists all objects in memory (gc.get_objects)",
    "gc.get_referrers": "looks for the owners of an object (gc.get_referrers)",
    "gc.get_referents": "looks for what an object holds (gc.get_referents)",
    "sys.setprofile": "observes every function call (sys.setprofile)",
    "sys.settrace": "observes every line that runs (sys.settrace)",
    "sys.monitoring.register_callback": "observes what other code runs (sys.monitoring)",
    "ctypes.cdata": "reads or writes memory at an address (ctypes)",
    "sys.addaudithook": "observes what other code does (sys.addaudithook)",
}
# Attributes through which code gets at frames without `sys._getframe`.
_FRAMES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
# What code that calls C functions by name doesn't need for computing.
_C_STARTS = ("fork", "vfork", "clone", "clone3", "posix_spawn", "posix_spawnp", "execve", "system", "popen",
             "pthread_create", "ptrace", "process_vm_readv", "process_vm_writev", "syscall")  # fmt: skip
_STARTS = {
    "subprocess.Popen": "starts a process",
    "os.fork": "forks",
    "os.forkpty": "forks",
    "os.posix_spawn": "starts a process",
    "os.exec": "replaces the process",
    "socket.connect": "opens a network connection",
}
_SEARCHES = ("os.listdir", "os.scandir", "glob.glob")
# Modules through which code reaches these events; their frames don't say who asked.
_BETWEEN = (
    "inspect", "traceback", "subprocess", "os", "posixpath", "genericpath", "pathlib", "io", "codecs",
    "multiprocessing", "concurrent", "linecache", "tokenize", "glob", "fnmatch", "shutil", "tempfile",
)  # fmt: skip
_HARMLESS_PLACES = (
    "/usr/", "/lib", "/bin/", "/sbin/", "/etc/ld.so", "/sys/devices", "/sys/class", "/dev/null",
    "/dev/nvidia", "/dev/urandom", "/opt/cuda", "/opt/nvidia", "/proc/cpuinfo", "/proc/meminfo",
    "/proc/self/maps",
)  # fmt: skip


class Watch:
    """Observes everything that runs from files in `folder`.

    Attributes:
        events: what the candidate did that it need not do: (kind, sentence), kind being "peeks",
            "processes", "files" or "seeds". Each is reported once.
    """

    def __init__(self, folder: str) -> None:
        import torch

        self._folder = folder.rstrip("/") + "/"
        home = os.path.dirname(folder.rstrip("/")) + "/"
        self._own_places = (home, "/tmp/", *_HARMLESS_PLACES, *_import_places())
        self.events: list[tuple[str, str]] = []
        self._originals = Originals(self._folder)
        self.replaced = self._originals.replaced
        self._cuda_seed: Callable[[], int] | None = None
        if torch.cuda.is_available():
            torch.cuda.init()
            self._cuda_seed = torch.cuda.default_generators[torch.cuda.current_device()].initial_seed
        torch.rand(1)  # so that the seed that is set already can't be set again unnoticed
        self._state = self.state()
        self._threads = {thread.ident for thread in threading.enumerate()}
        self._frame = sys._getframe
        self._on = True
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._on or event not in _AUDITED:
            return
        if event == "object.__getattr__" and args[1] not in _FRAMES:
            return
        self._on = False  # what is asked here is not the candidate's
        try:
            if self._is_candidate(self._frame(1), event):
                self._note(event, args)
        finally:
            self._on = True

    def _is_candidate(self, frame: FrameType | None, event: str) -> bool:
        """Whether the innermost frame that isn't of `_BETWEEN` runs the candidate's code."""
        # A traceback that is printed has frames, too, so only the candidate's own look at them counts.
        between = {"object.__getattr__": (), "ctypes.dlsym": ("ctypes",)}.get(event, _BETWEEN)
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if frame.f_code.co_filename.startswith(self._folder):
                return True
            if not isinstance(name, str) or name.partition(".")[0] not in between:
                return False
            frame = frame.f_back
        return False

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _PEEKS:
            found = "peeks", _PEEKS[event]
        elif event in _STARTS:
            found = "processes", _STARTS[event]
        elif event == "object.__getattr__":
            found = "peeks", f"walks the call stack ({args[1]})"
        elif event == "ctypes.dlsym":
            if args[1] not in _C_STARTS:
                return
            found = "processes", f"calls {args[1]} of the C library"
        else:
            place = args[0]
            if isinstance(place, bytes):
                place = os.fsdecode(place)
            if not isinstance(place, str) or self._is_own(os.path.abspath(place)):
                return
            found = "files", f"opens {os.path.abspath(place)}"
            if event in _SEARCHES:  # and then the folders in it
                found = "files", f"searches {os.path.abspath(place)}"
                if any(what.startswith("searches ") for _, what in self.events):
                    return
        if found not in self.events and len(self.events) < 20:
            self.events.append(found)

    def _is_own(self, place: str) -> bool:
        return place.startswith(self._own_places)

    def state(self) -> dict[str, Any]:
        """Settings that a call must leave as they were, name -> value."""
        import random

        import numpy as np
        import torch

        from helpers.timing import persisting

        cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
        matmul = cuda.matmul
        return {
            "torch.get_default_dtype()": str(torch.get_default_dtype()),
            "torch.get_default_device()": str(torch.get_default_device()),
            # "none" has the same meaning as "ieee".
            "torch.backends.cuda.matmul.fp32_precision": matmul.fp32_precision.replace("none", "ieee"),
            "torch.backends.mkldnn.matmul.fp32_precision": getattr(
                getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision", "none"
            ).replace("none", "ieee"),
            "whether subnormal numbers are flushed to 0": float(
                torch.tensor(2.0**-1070, dtype=torch.float64) * 1
            )
            == 0,
            "gc.get_threshold()": gc.get_threshold(),
            "timers that send signals": tuple(bool(signal.getitimer(one)[0]) for one in _TIMERS),
            "numpy.random.get_state()": hash(str(np.random.get_state())),
            "dtypes of torch": tuple(str(getattr(torch, one)) for one in _DTYPES),
            "torch.backends.cudnn.conv.fp32_precision": cudnn.conv.fp32_precision,
            "torch.backends.cudnn.rnn.fp32_precision": cudnn.rnn.fp32_precision,
            "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": str(
                matmul.allow_fp16_reduced_precision_reduction
            ),
            "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": str(
                matmul.allow_bf16_reduced_precision_reduction
            ),
            "torch.backends.cudnn.benchmark": cudnn.benchmark,
            "torch.backends.cudnn.deterministic": cudnn.deterministic,
            "torch.backends.cudnn.enabled": cudnn.enabled,
            "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
            "torch.is_grad_enabled()": torch.is_grad_enabled(),
            "torch.is_inference_mode_enabled()": torch.is_inference_mode_enabled(),
            "torch.is_autocast_enabled()": torch.is_autocast_enabled("cuda"),
            "torch.get_num_threads()": torch.get_num_threads(),
            "cudaLimitPersistingL2CacheSize": persisting.set_aside_bytes(),
            "torch.initial_seed()": torch.initial_seed(),
            "torch.cuda.initial_seed()": self._cuda_seed and self._cuda_seed(),
            "whether torch's random numbers begin anew": torch.equal(
                torch.get_rng_state(), torch.Generator().manual_seed(torch.initial_seed()).get_state()
            ),
            "random.getstate()": hash(random.getstate()),
            "gc.isenabled()": gc.isenabled(),
            "the working directory": os.getcwd(),
            "torch.backends.cuda.matmul.allow_fp16_accumulation": str(matmul.allow_fp16_accumulation),
            "backends of scaled_dot_product_attention": (
                cuda.flash_sdp_enabled(),
                cuda.mem_efficient_sdp_enabled(),
                cuda.math_sdp_enabled(),
                cuda.cudnn_sdp_enabled(),
            ),
            "torch.backends.cuda.preferred_linalg_library()": str(cuda.preferred_linalg_library()),
            "torch.backends.mkldnn.enabled": torch.backends.mkldnn.enabled,
            "torch.is_anomaly_enabled()": torch.is_anomaly_enabled(),
            "hooks of all modules": tuple(len(one) for one in _hooks_of_all_modules()),
            "modes of torch's functions and operators": (
                torch._C._len_torch_function_stack(),
                torch._C._len_torch_dispatch_stack(),
            ),
            "implementations of torch's own operators": tuple(
                sorted(
                    str(one)
                    for one in torch.library._impls
                    # torch itself adds those for vmap when it is first used.
                    if str(one).startswith("aten/") and not str(one).endswith("/FuncTorchBatched")
                )
            ),
            "what torch.compile does": _compiling(),
            "the profiler of PyTorch": torch._C._autograd._profiler_enabled(),
            "tracemalloc.is_tracing()": tracemalloc.is_tracing(),
            "the cores of the process": _cores(),
            "the priority of the process": os.getpriority(os.PRIO_PROCESS, 0),
            "os.environ": tuple(sorted((k, v) for k, v in os.environ.items() if not _is_private(k, v))),
        }

    def changed_state(self) -> list[str]:
        """The settings that differ from those before the candidate was loaded, as "name: before -> now"."""
        now, found = self.state(), []
        for name, before in self._state.items():
            if now[name] == before:
                continue
            if name == "os.environ":
                keys = sorted({k for k, _ in set(before) ^ set(now[name])})
                found.append(f"os.environ: {', '.join(keys[:5])}")
            elif name in _RANDOM:
                found.append(_RANDOM[name])
            elif isinstance(before, tuple):
                found.append(name)
            else:
                found.append(f"{name}: {before} -> {now[name]}")
        return found

    def imported(self) -> None:
        """Be told that the candidate was imported.

        A seed that it has set since is usual at the top of a file, and every benchmark sets its own
        afterwards. From now on, it must leave random numbers alone.
        """
        import torch

        torch.rand(1)  # so that the same seed can't be set again unnoticed
        now = self.state()
        of_random_numbers = {name: now[name] for name in (*_SEEDS, *_RANDOM)}
        if any(self._state[name] != value for name, value in of_random_numbers.items()):
            self.events.append(("seeds", "sets the seed of random numbers, or draws some"))
        self._state |= of_random_numbers

    def new_threads(self) -> list[str]:
        """The names of Python threads that run now and did not before, except those in which a library runs
        a function of its own, as tqdm does.
        """
        new = [thread for thread in threading.enumerate() if thread.ident not in self._threads]
        return [thread.name for thread in new if not self._is_of_library(thread)]

    def _is_of_library(self, thread: threading.Thread) -> bool:
        """Whether what a thread runs is a function of an installed package."""
        run = type(thread).run
        function = getattr(thread, "_target", None) if run is threading.Thread.run else run
        names = getattr(function, "__globals__", {})
        name, file = names.get("__name__"), names.get("__file__")
        if not isinstance(name, str) or not isinstance(file, str) or file.startswith(self._folder):
            return False
        is_pythons = name.partition(".")[0] in sys.stdlib_module_names  # a pool's, for example
        return not is_pythons and vars(sys.modules.get(name, sys)) is names


_SEEDS = "torch.initial_seed()", "torch.cuda.initial_seed()"
_RANDOM = {
    "random.getstate()": "the state of Python's random numbers",
    "numpy.random.get_state()": "the state of NumPy's random numbers",
}
_TIMERS = signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF
_DTYPES = ("float16", "bfloat16", "float32", "float64", "half", "float", "double", "int32", "int64")
_BUILD_VARIABLES = (
    "TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TORCH_", "TRITON_", "KMP_", "CUDA_MODULE", "CUDA_DEVICE_",
    "PYTORCH_", "CUDA_HOME", "CUDA_PATH", "PATH", "LD_LIBRARY_PATH", "MAX_JOBS", "CC", "CXX", "CXXFLAGS",
    "NVCC_", "CUBLAS_WORKSPACE_CONFIG", "TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
)  # fmt: skip
# Those of them that make everything else slower or less precise.
_DECISIVE_VARIABLES = ("TORCH_COMPILE_DISABLE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
                       "PYTORCH_NO_CUDA_MEMORY_CACHING")  # fmt: skip
_USUAL_VALUES = {"CUDA_LAUNCH_BLOCKING": "0"}
_AUDITED = {*_PEEKS, *_STARTS, *_SEARCHES, "open", "object.__getattr__", "ctypes.dlsym"}


def _compiling() -> tuple[str, bool]:
    """The stance of `torch.compile`, and whether it is switched off; what isn't imported yet is as usual."""
    frames, config = (sys.modules.get(f"torch._dynamo.{name}") for name in ("eval_frame", "config"))
    stance = getattr(getattr(frames, "_stance", None), "stance", "default")
    return str(stance), bool(getattr(config, "disable", False))


def _cores() -> tuple[int, ...]:
    """The cores on which this process may run; empty where the system doesn't say."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def _hooks_of_all_modules() -> list[Any]:
    """What torch.nn.Module calls before and after every module's own work."""
    from torch.nn.modules import module

    return [one for name, one in vars(module).items() if name.startswith("_global_") and "hooks" in name]


def _is_private(name: str, value: str) -> bool:
    """Environment variables of builds, those that libraries set when they are first used, and those that are
    set to what they mean anyway.
    """
    is_usual = _USUAL_VALUES.get(name) == value
    return is_usual or (name.startswith(_BUILD_VARIABLES) and name not in _DECISIVE_VARIABLES)


def _import_places() -> list[str]:
    """The folders of Python, of installed packages, and of this workbook's packages."""
    import helpers
    import workbook

    packages = [os.path.dirname(one.__file__) for one in (helpers, workbook)]
    installed = [one for one in sys.path if one.rstrip("/").endswith(("site-packages", "dist-packages"))]
    return [os.path.realpath(one) + "/" for one in (sys.prefix, sys.base_prefix, *packages, *installed)]

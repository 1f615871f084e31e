"""Replace, in a candidate's process on a machine without a GPU, the functions that need one."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from helpers import device

_FLAGS = ("extra_cflags", "extra_cuda_cflags")
_WITHOUT_EFFECT = (
    ("cuda", "synchronize"), ("cuda", "set_device"), ("cuda.nvtx", "range_push"), ("cuda.nvtx", "range_pop"),
    ("cuda.nvtx", "mark"),
)  # fmt: skip
# What candidates ask a GPU about, to choose how many programs they launch or which kernel: an H100's answers.
_PROPERTIES = {
    "name": "NVIDIA H100 80GB HBM3", "major": 9, "minor": 0, "multi_processor_count": 132, "warp_size": 32,
    "total_memory": 85_017_493_504, "L2_cache_size": 52_428_800, "max_threads_per_multi_processor": 2048,
    "regs_per_multiprocessor": 65_536, "shared_memory_per_block": 49_152,
    "shared_memory_per_block_optin": 232_448, "shared_memory_per_multiprocessor": 233_472,
    "gcnArchName": "",  # AMD's, for which torch.compile asks
}  # fmt: skip


def prepare() -> None:
    """Let `load_inline` and `load` build for our emulator, waiting for the GPU do nothing, questions about
    the GPU have an answer, and Triton's autotuner choose the first configuration; and correct Triton's
    interpreter.
    """
    import torch
    from torch.utils import cpp_extension
    from triton.runtime.autotuner import Autotuner

    from workbook.verify import interpreter

    # Everything has finished already, and there is only one device. Each name gets a function of its own:
    # torch.compile looks them up by what they are.
    for module, name in _WITHOUT_EFFECT:
        setattr(operator.attrgetter(module)(torch), name, lambda *args, **keywords: None)
    torch.cuda.current_device = lambda: 0
    torch.cuda.device = type("device", (contextlib.nullcontext,), {})
    torch.cuda.get_device_properties = lambda device=None: _Properties(**_PROPERTIES)
    torch.cuda.get_device_name = lambda device=None: _PROPERTIES["name"]
    torch.cuda.get_device_capability = lambda device=None: (_PROPERTIES["major"], _PROPERTIES["minor"])
    Autotuner.do_bench = property(lambda tuner: _all_alike)
    interpreter.install()
    for name, ours in (("load_inline", _load_inline), ("load", _load)):
        setattr(cpp_extension, name, _replaced(cpp_extension, name, ours))


class _Properties(SimpleNamespace):
    """What candidates may ask about a GPU."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"without a GPU, nobody knows its {name}")


def _all_alike(kernel_call: Callable[[], Any], quantiles: Any = None) -> list[float]:
    """The time of any configuration, in the form of Triton's benchmark: the autotuner takes the first one."""
    return [1.0, 1.0, 1.0]


def _replaced(module: Any, name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    """Our function; while it runs, torch's own is back in its place, because ours may call it."""
    original = getattr(module, name)

    @functools.wraps(original)
    def build(*args: Any, **options: Any) -> Any:
        setattr(module, name, original)
        try:
            return ours(*args, **options)
        finally:
            setattr(module, name, build)

    return build


def _load_inline(
    name: str, cpp_sources: Any, cuda_sources: Any = None, functions: Any = None, **options: Any
) -> Any:
    """`torch.utils.cpp_extension.load_inline`; options for nvcc's speed have no meaning here."""
    from torch.utils import cpp_extension

    from helpers.cuda.errors import BuildError
    from helpers.cuda.extension import load_cpp, load_cuda
    from helpers.cuda.inline import load_inline

    flags = _kept(options)
    if not functions:  # the sources bind their functions themselves
        return cpp_extension.load(name, _written(cpp_sources, cuda_sources), **flags)
    try:
        return load_inline(
            name=name, cpp_sources=cpp_sources, cuda_sources=cuda_sources, functions=functions, **flags
        )
    except BuildError:  # our headers lack something, or it is wrong: PyTorch's own headers decide
        names = [functions] if isinstance(functions, str) else list(functions)
        cpp, cuda = _joined(cpp_sources), _joined(cuda_sources)
        if not cuda:
            return load_cpp(name, cpp, names, flags=flags.get("extra_cflags", ["-O2"]))
        nvcc_flags = flags.get("extra_cuda_cflags", [])
        return load_cuda(name, cuda, names, cpp_source=cpp, flags=nvcc_flags, device="emulator")


def _written(cpp_sources: Any, cuda_sources: Any) -> list[str]:
    """Files with the sources, and the header that `load_inline` adds to them; the same ones for the same
    sources, so that these are built only once.
    """
    texts = {"main.cpp": _joined(cpp_sources), "kernels.cu": _joined(cuda_sources)}
    folder = device.cache_folder() / "sources" / hashlib.sha256(repr(texts).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / file for file, text in texts.items() if text]
    for file in files:
        file.write_text(f"#include <torch/types.h>\n{texts[file.name]}")
    return [str(file) for file in files]


def _joined(sources: Any) -> str:
    return sources if isinstance(sources, str) else "\n".join(sources or [])


def _load(name: str, sources: Any, **options: Any) -> Any:
    """`torch.utils.cpp_extension.load`."""
    from helpers.cuda.inline import load

    return load(name=name, sources=sources, **_kept(options))


def _kept(options: dict[str, Any]) -> dict[str, Any]:
    return {key: options[key] for key in _FLAGS if options.get(key)}

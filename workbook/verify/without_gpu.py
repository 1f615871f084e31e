"""Replace, in a candidate's process on a machine without a GPU, the functions that need one."""

from __future__ import annotations

from typing import Any


def prepare() -> None:
    """Let `load_inline` build for our emulator, and let waiting for the GPU do nothing."""
    import torch
    from torch.utils import cpp_extension

    torch.cuda.synchronize = _wait
    cpp_extension.load_inline = _load_inline


def _wait(device: Any = None) -> None:
    """Everything has finished already."""


def _load_inline(
    name: str, cpp_sources: Any, cuda_sources: Any = None, functions: Any = None, **options: Any
) -> Any:
    """`torch.utils.cpp_extension.load_inline`; options for nvcc's speed have no meaning here."""
    from helpers.cuda.inline import load_inline

    cpp = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    flags = {key: options[key] for key in ("extra_cflags", "extra_cuda_cflags") if options.get(key)}
    return load_inline(name=name, cpp_sources=cpp, cuda_sources=cuda_sources, functions=functions, **flags)

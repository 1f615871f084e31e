"""Replace, in a candidate's process on a machine without a GPU, the functions that need one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_FLAGS = ("extra_cflags", "extra_cuda_cflags")


def prepare() -> None:
    """Let `load_inline` and `load` build for our emulator, and let waiting for the GPU do nothing."""
    import torch
    from torch.utils import cpp_extension

    torch.cuda.synchronize = _wait
    for name, ours in (("load_inline", _load_inline), ("load", _load)):
        setattr(cpp_extension, name, _replaced(cpp_extension, name, ours))


def _wait(device: Any = None) -> None:
    """Everything has finished already."""


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
    from helpers.cuda.inline import load_inline

    cpp = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    return load_inline(
        name=name, cpp_sources=cpp, cuda_sources=cuda_sources, functions=functions, **_kept(options)
    )


def _load(name: str, sources: Any, **options: Any) -> Any:
    """`torch.utils.cpp_extension.load`."""
    from helpers.cuda.inline import load

    return load(name=name, sources=sources, **_kept(options))


def _kept(options: dict[str, Any]) -> dict[str, Any]:
    return {key: options[key] for key in _FLAGS if options.get(key)}

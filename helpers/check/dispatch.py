"""Watch the operators of PyTorch's dispatcher without importing its compiler."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode


@functools.cache
def dispatch_mode() -> type[TorchDispatchMode]:
    """The base class of modes: `TorchDispatchMode`, whose subclasses import torch._dynamo with their first
    operator, to protect themselves from being compiled. That takes a second or more, so these do it only if
    something has imported it before they are defined. While one is active, torch.compile compiles as usual;
    within other modes it would skip a function for good.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return "torch._dynamo" in sys.modules

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

    return Mode

"""Triton's interpreter, quicker by half for the tests that launch thousands of small kernels in it."""

from __future__ import annotations

import inspect
from typing import Any


def quicken() -> None:
    """In this process, look only once for the functions of Triton's language that the interpreter replaces.

    It walks over the whole language at every launch and whenever a kernel calls another function (`tl.max` is one),
    which is half of a small kernel's time. What it replaces, and by what, stays the same.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    found: dict[Any, list[str]] = {}

    def patch_builtin(package: Any, *more: Any) -> None:
        if package not in found:
            members = inspect.getmembers(package)
            found[package] = [name for name, member in members if tl.core.is_builtin(member)]
        for name in found[package]:
            member = getattr(package, name)
            if tl.core.is_builtin(member):
                interpreter._patch_attr(package, name, member, *more)

    interpreter._patch_builtin = patch_builtin

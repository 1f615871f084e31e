"""The source code of the kernels that lessons show.

Such a kernel is a block in helpers/kernels between the lines `# [kernel:NAME]` and `# [/kernel:NAME]` (`//`
in C++ and CUDA).
"""

from __future__ import annotations

import re
from pathlib import Path

_MARKER = re.compile(r"^\s*(?:#|//)\s*\[(/?)kernel:([A-Za-z_]\w*)\]\s*$")


def text(name: str) -> str:
    """Returns the source of one of the course's kernels, such as "square_matrix", without its markers.

    Raises:
        KeyError: No kernel has this name.
    """
    return read_kernels(Path(__file__).parent)[name][1]


def read_kernels(folder: Path) -> dict[str, tuple[str, str]]:
    """Returns every marked block in `folder`: kernel name to (file suffix, text without the markers).

    Raises:
        ValueError: A marker has no partner, a block contains another block, or two blocks have the same name.
    """
    kernels: dict[str, tuple[str, str]] = {}
    for path in sorted(p for p in folder.glob("*") if p.suffix in {".py", ".cu", ".cpp"}):
        name, block = None, []
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            marker = _MARKER.match(line)
            where = f"{path.name}, line {number}"
            if not marker:
                block.append(line)
            elif marker[1]:
                if marker[2] != name:
                    raise ValueError(f"{where}: [/kernel:{marker[2]}] closes a block that is not open.")
                kernels[name] = (path.suffix, "\n".join(block).strip("\n"))
                name = None
            else:
                if name is not None:
                    raise ValueError(f"{where}: [kernel:{marker[2]}] opens before [kernel:{name}] is closed.")
                if marker[2] in kernels:
                    raise ValueError(
                        f"{where}: another block is already named {marker[2]}; rename one of them."
                    )
                name, block = marker[2], []
        if name is not None:
            raise ValueError(f"{path.name}: [kernel:{name}] is never closed; end it with [/kernel:{name}].")
    return kernels


def kernel_cell(name: str, suffix: str, block: str) -> str:
    """Returns the source of the cell that shows a kernel: the block itself, or for C++ and CUDA a raw string
    that contains it.
    """
    if suffix == ".py":
        return block
    return f'{name.upper()}_{"CUDA" if suffix == ".cu" else "CPP"} = r"""\n{block}\n"""'

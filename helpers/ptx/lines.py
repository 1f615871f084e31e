"""Map each line of TTIR, TTGIR, LLVM IR, PTX and SASS to the line of the kernel's source that it came from.

Every map is a list with one entry per line of the text: a line number or None. For code inlined from another
function, the map contains the line of the kernel that called it.

tritonparse 0.6 has such maps inside its trace reader, but we don't use them: they are not a public API, and
its PTX reader relies on comments that only LLVM writes. It maps no line of PTX from NVRTC, and attributes
code inlined from `tl.max` to Triton's library instead of the kernel.

Sources: NVIDIA, "Parallel Thread Execution ISA" (`.loc` with `inlined_at`); MLIR location syntax; LLVM
`DILocation`; the output of `nvdisasm --print-line-info`.
"""

from __future__ import annotations

import re

SASS = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@(!?\w+)\s+)?(\S+)\s*(.*?)\s*;?\s*$")


def mlir_lines(text: str) -> list[int | None]:
    """Returns the source line of each line of TTIR or TTGIR, from its trailing `loc(...)`.

    For inlined code, this is the line of the call, not of the callee.
    """
    names = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", text, flags=re.M))

    def resolve(body: str, depth: int = 0) -> int | None:
        if depth > 50:
            return None
        if (place := re.fullmatch(r'"[^"]*":(\d+):\d+', body)) is not None:
            return int(place[1])
        if (call := re.fullmatch(r"callsite\((.*) at (.*)\)", body)) is not None:
            outer = resolve(call[2], depth + 1)
            return outer if outer is not None else resolve(call[1], depth + 1)
        if body in names:
            return resolve(names[body], depth + 1)
        if (named := re.fullmatch(r'"[^"]*"\((.*)\)', body)) is not None:
            return resolve(named[1], depth + 1)
        if (fused := re.fullmatch(r"fused(?:<.*>)?\[(.*)\]", body)) is not None:
            return next(
                (n for n in (resolve(b.strip(), depth + 1) for b in fused[1].split(",")) if n is not None),
                None,
            )
        return None

    found: list[int | None] = []
    for line in text.split("\n"):
        match = re.search(r"\bloc\((#loc\d*|\".*|callsite.*)\)\s*$", line)
        found.append(resolve(match[1]) if match and not line.startswith("#loc") else None)
    return found


def llir_lines(text: str) -> list[int | None]:
    """Returns the source line of each line of LLVM IR from `!dbg`; for inlined code, the outermost call."""
    places = {
        number: (int(line), outer)
        for number, line, outer in re.findall(
            r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+),[^)]*?(?:inlinedAt: !(\d+))?\)",
            text,
            flags=re.M,
        )
    }
    found: list[int | None] = []
    for line in text.split("\n"):
        match = re.search(r"!dbg !(\d+)", line)
        number = match[1] if match and not line.startswith("!") else None
        while number in places and places[number][1]:
            number = places[number][1]
        found.append(places[number][0] if number in places else None)
    return found


_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:[^/]*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^/]*(//.*)?")


def _places(text: str) -> list[tuple[int, str, int, int] | None]:
    """Returns (line number, file index, line, outermost line) for each `.loc` line of PTX, else None."""
    outer: dict[tuple[str, ...], tuple[str, ...]] = {}
    found: list[tuple[int, str, int, int] | None] = []
    for number, line in enumerate(text.split("\n")):
        match = _LOC.match(line)
        if match is None:
            found.append(None)
            continue
        place = match.groups()[:3]
        source_line = int(place[1])
        if match[4]:
            outer[place] = match.groups()[3:6]
        for _ in range(50):
            if place not in outer:
                break
            place = outer[place]
        # If the debug information consists only of line tables, LLVM lists the callers in the comment:
        # `// a.py:6:15 @[ b.py:12:15 ]`.
        callers = re.findall(r"@\[ [^\[\]]*?:(\d+):\d+", match[7] or "")
        found.append((number, match[1], source_line, int(callers[-1]) if callers else int(place[1])))
    return found


def ptx_lines(text: str) -> list[int | None]:
    """Returns the source line of each line of PTX, from `.loc`; for inlined code, the outermost call."""
    current: int | None = None
    found: list[int | None] = []
    for line, place in zip(text.split("\n"), _places(text), strict=True):
        if place is not None:
            current = place[3] or None
        elif line.startswith("}"):
            current = None
        found.append(None if place is not None else current)
    return found


def _callers(ptx: str) -> dict[tuple[str, int], int | None]:
    """Maps (file name, line) of inlined code to the kernel's line that called it; None if several did."""
    files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', ptx, flags=re.M))
    found: dict[tuple[str, int], int | None] = {}
    for place in filter(None, _places(ptx)):
        _, file, source_line, outermost = place
        key = (files.get(file, "").rsplit("/", 1)[-1], source_line)
        found[key] = outermost if found.get(key, outermost) == outermost else None
    return found


def sass_lines(text: str, ptx: str = "") -> list[int | None]:
    """Returns the source line of each line of nvdisasm's SASS, from its `//## File` comments.

    The comments name the innermost function. If the kernel's PTX is passed as well, inlined code gets the
    line that called it, or None if several lines did.
    """
    callers = _callers(ptx)
    current: int | None = None
    found: list[int | None] = []
    for line in text.split("\n"):
        if (match := re.search(r'//## File "([^"]*)", line (\d+)', line)) is not None:
            place = (match[1].rsplit("/", 1)[-1], int(match[2]))
            current = callers.get(place, place[1])
            found.append(None)
        else:
            found.append(current if SASS.match(line) else None)
    return found

"""Parse PTX: instructions, registers, parameters, and the source line of each instruction.

Nothing here compiles; `helpers.ptx.compile` passes its results to this module.

Source: NVIDIA, "Parallel Thread Execution ISA" (statements, state spaces, types).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from helpers.ptx.lines import ptx_lines

GLOBAL_SPACES = ("global", "generic")
_SPACES = ("global", "shared", "local", "param", "const", "tex")
_LINE_DIRECTIVES = re.compile(
    r"\.(loc|file|version|target|address_size|maxntid|reqntid|minnctapersm|maxnctapersm|maxnreg|maxclusterrank"
    r"|reqnctapercluster|explicitcluster|blocksareclusters|noreturn)\b"
)
_TYPE = re.compile(r"(?:bf|[bfsu]|tf|e\dm\d)(\d+)(x2)?$")


@dataclass(frozen=True)
class Instruction:
    """One PTX or SASS instruction.

    Attributes:
        line: the line number in the PTX or SASS text, starting at 1.
        opcode: the opcode with all its suffixes, such as `ld.global.v4.b32` or `LDG.E.128`.
        operands: the operands as written; a vector `{%r1, %r2}` or an address `[%rd1+8]` is one operand.
        predicate: `%p1`, `!%p1` or None; the instruction only runs in threads for which it is true.
        source_line: the line of the kernel's source that it was compiled from, or None if the compiler names
            none.
    """

    line: int
    opcode: str
    operands: tuple[str, ...]
    predicate: str | None = None
    source_line: int | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """Returns the opcode split at its dots: `("ld", "global", "v4", "b32")`."""
        return tuple(self.opcode.split("."))

    @property
    def space(self) -> str | None:
        """Returns the state space of a PTX memory instruction, such as "global" or "generic".

        Returns None for other instructions.
        """
        if self.parts[0] not in ("ld", "ldu", "st", "atom", "red"):
            return None
        words = [part.split("::")[0] for part in self.parts[1:]]
        return next((word for word in words if word in _SPACES), "generic")

    @property
    def vector(self) -> int:
        """Returns the number of values that one instruction moves: 4 for `.v4`, 1 without a vector suffix."""
        return next((int(part[1:]) for part in self.parts[1:] if re.fullmatch(r"v[248]", part)), 1)

    @property
    def n_bytes(self) -> int | None:
        """Returns the bytes per thread that a PTX instruction moves, or None if it has no type."""
        match = _TYPE.match(self.parts[-1])
        return int(match[1]) // 8 * (2 if match[2] else 1) * self.vector if match else None

    def matches(self, opcode: str) -> bool:
        """Whether the opcode is `opcode` or starts with it: "ld.global" matches `ld.global.v4.b32`."""
        return self.opcode == opcode or self.opcode.startswith(opcode + ".")

    def __str__(self) -> str:
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class PtxReading:
    """The parsed contents of one kernel (`.entry`) in a PTX text.

    Attributes:
        version: the PTX ISA version, such as "8.7".
        target: the target, such as "sm_90a".
        address_size: 64.
        entry: the kernel's mangled name.
        params: (name, declaration) of each parameter, such as `("k_param_2", ".u32")`.
        reqntid: the required block size as (x, y, z), with 1 for omitted dimensions, or None.
        maxntid: the maximum block size in the same form, or None.
        registers_declared: the number of registers in the `.reg` lines by type, such as {"pred": 3, "b32":
            28, "b64": 10}.
        instructions: the instructions in order, including those in inline assembly.
        labels: the labels in order.
        shared_declarations: the `.shared` declarations of the module and of the kernel, as written.
    """

    version: str
    target: str
    address_size: int
    entry: str
    params: tuple[tuple[str, str], ...]
    reqntid: tuple[int, int, int] | None
    maxntid: tuple[int, int, int] | None
    registers_declared: dict[str, int]
    instructions: tuple[Instruction, ...] = field(repr=False)
    labels: tuple[str, ...] = field(repr=False)
    shared_declarations: tuple[str, ...] = field(repr=False)

    def find(
        self, opcode: str, *, operand: str | None = None, source_line: int | None = None
    ) -> list[Instruction]:
        """Returns the instructions whose opcode is `opcode` or starts with it up to a dot.

        Args:
            opcode: "ld.global" finds `ld.global.b32` and `ld.global.v4.b32`; "mul.wide" finds it for all
                types.
            operand: only return instructions with exactly this operand, such as "127" or "%tid.x".
            source_line: only return instructions compiled from this line of the source.
        """
        return [
            i
            for i in self.instructions
            if i.matches(opcode)
            and (operand is None or operand in i.operands)
            and (source_line is None or i.source_line == source_line)
        ]

    @property
    def loads(self) -> list[Instruction]:
        """Returns the loads per thread from global memory.

        Generic loads count unless they read the thread's own stack.
        """
        return [i for i in self.instructions if i.parts[0] in ("ld", "ldu") and _is_global(i)]

    @property
    def stores(self) -> list[Instruction]:
        """Returns the stores per thread to global memory; generic ones count as in `loads`."""
        return [i for i in self.instructions if i.parts[0] == "st" and _is_global(i)]

    @property
    def predicated(self) -> list[Instruction]:
        """Returns the instructions with an `@%p` guard."""
        return [i for i in self.instructions if i.predicate]

    @property
    def opcodes(self) -> Counter[str]:
        """Returns how often each full opcode occurs."""
        return Counter(i.opcode for i in self.instructions)

    @property
    def uses_shared(self) -> bool:
        """Whether the kernel refers to shared memory, in a declaration or in an instruction."""
        named = any("shared" in re.split(r"[.:]+", i.opcode) for i in self.instructions)
        return named or bool(self.shared_declarations)

    @property
    def n_registers_declared(self) -> int:
        """Returns the number of virtual registers in the `.reg` lines, without predicates.

        They are not the GPU's registers, which the assembler allocates.
        """
        return sum(n for kind, n in self.registers_declared.items() if kind != "pred")

    def __repr__(self) -> str:
        block = (
            f"reqntid {self.reqntid}"
            if self.reqntid
            else f"maxntid {self.maxntid}"
            if self.maxntid
            else "any block"
        )
        declared = ", ".join(f"{n} {kind}" for kind, n in self.registers_declared.items())
        return (
            f"{self.entry}: PTX {self.version} for {self.target}, {len(self.params)} parameters, {block}\n"
            f"  {len(self.instructions)} instructions, {len(self.predicated)} under a predicate; "
            f"{_count(self.loads, 'load')} and {_count(self.stores, 'store')} per thread\n"
            f"  virtual registers: {declared or 'none'}; shared memory: "
            f"{'named' if self.uses_shared else 'not named'}"
        )


def _count(found: list[Instruction], what: str) -> str:
    return f"{len(found)} {what}{'s' * (len(found) != 1)}"


def _is_global(i: Instruction) -> bool:
    return i.space in GLOBAL_SPACES and not any("%SP" in operand for operand in i.operands)


def split_operands(text: str) -> tuple[str, ...]:
    """Splits operands at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for n, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:n])
            start = n + 1
    parts.append(text[start:])
    return tuple(" ".join(part.split()) for part in parts if part.strip())


def _without_comments(text: str) -> str:
    """Returns the text with comments replaced by spaces, so that positions and line numbers stay the same."""
    keep_lines = lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0])  # noqa: E731
    return re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', keep_lines, text, flags=re.S)


def _statements(text: str):
    """Yields (line, kind, text) for each part of a PTX text.

    The kinds are "open", "close", "label", "directive", "header" and "statement".
    """
    label = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
    pos, line, n = 0, 1, len(text)
    while pos < n:
        char = text[pos]
        if char == "\n":
            line, pos = line + 1, pos + 1
        elif char.isspace() or char == ";":
            pos += 1
        elif char in "{}":
            yield line, "open" if char == "{" else "close", char
            pos += 1
        elif (match := label.match(text, pos)) is not None:
            yield line, "label", match[1]
            pos = match.end()
        elif _LINE_DIRECTIVES.match(text, pos):
            end = text.find("\n", pos)
            end = n if end < 0 else end
            yield line, "directive", text[pos:end].strip()
            pos = end
        elif char == "." and text.startswith(
            (".section", ".visible", ".entry", ".func", ".weak", ".extern"), pos
        ):
            # A header ends at its body, or at the semicolon of a declaration.
            end = min((at for at in (text.find("{", pos), text.find(";", pos)) if at >= 0), default=n)
            # Directives such as `.maxntid` are on separate lines between a kernel's header and its body.
            body = text[pos:end]
            cut = re.search(r"\n\s*\.(?!param\b)[a-z]", body)
            end = pos + cut.start() if cut else end
            yield line, "header", text[pos:end]
            line += text.count("\n", pos, end)
            pos = end
        else:
            end = text.find(";", pos)
            end = n if end < 0 else end
            yield line, "statement", text[pos:end].strip()
            line += text.count("\n", pos, end)
            pos = end + 1


def _dimensions(text: str) -> tuple[int, int, int]:
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    return tuple([*numbers, 1, 1][:3])


def entries(ptx: str) -> list[str]:
    """Returns the names of the kernels (`.entry`) in a PTX text, in order."""
    return re.findall(r"\.entry\s+([\w$]+)", _without_comments(ptx))


def read_ptx(ptx: str, entry: str | None = None) -> PtxReading:
    """Parses one kernel in a PTX text.

    Args:
        ptx: PTX from Triton, NVRTC or nvcc.
        entry: the name of the kernel, if the text has several.

    Returns:
        A `PtxReading`. An instruction's `source_line` is taken from `.loc`; for inlined code, it is the line
        of the call.

    Raises:
        ValueError: the text has no kernel, no kernel of this name, or several kernels while `entry` is None.

    Example:
        >>> from helpers import cuda, ptx
        >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
        >>> reading = ptx.read_ptx(cuda.compile_ptx(text, target="sm_90"))
        >>> len(reading.loads), len(reading.stores), reading.uses_shared
        (1, 1, False)
    """
    reader = _EntryReader(_chosen(entries(ptx), entry), ptx_lines(ptx))
    for line, kind, text in _statements(_without_comments(ptx)):
        reader.take(line, kind, text)
    return reader.reading()


def _chosen(names: list[str], entry: str | None) -> str:
    if not names:
        raise ValueError("This text has no .entry, so it is not the PTX of a kernel; pass `stages(...).ptx`.")
    if entry is None and len(names) > 1:
        raise ValueError(f"This PTX has {len(names)} kernels ({', '.join(names)}): choose one with entry=...")
    if entry is not None and entry not in names:
        raise ValueError(f"This PTX has no kernel {entry!r}; it has {', '.join(names)}.")
    return entry or names[0]


class _EntryReader:
    """Collects the contents of one kernel from the statements of a PTX text, in order.

    `named` is true from the kernel's header to the end of its body, and `inside` is true within the body.
    """

    def __init__(self, entry: str, source_lines: list[int | None]) -> None:
        self.entry, self.source_lines = entry, source_lines
        self.version, self.target, self.address_size = "?", "?", 64
        self.reqntid: tuple[int, int, int] | None = None
        self.maxntid: tuple[int, int, int] | None = None
        self.params: list[tuple[str, str]] = []
        self.registers: Counter[str] = Counter()
        self.instructions: list[Instruction] = []
        self.labels: list[str] = []
        self.shared: list[str] = []
        self.depth, self.named, self.inside = 0, False, False

    def take(self, line: int, kind: str, text: str) -> None:
        """Processes the next statement from `_statements`."""
        if kind == "header" and self.depth == 0:
            self._header(text)
        elif kind == "open":
            self.depth += 1
            self.inside = self.inside or (self.named and self.depth == 1)
        elif kind == "close":
            self.depth -= 1
            self.inside = self.inside and self.depth > 0
            self.named = self.named and self.depth > 0
        elif kind == "directive":
            self._directive(text)
        elif kind == "label" and self.inside:
            self.labels.append(text)
        elif kind == "statement":
            self._statement(line, text)

    def _header(self, text: str) -> None:
        self.named = re.search(rf"\.entry\s+{re.escape(self.entry)}(?![\w$])", text) is not None
        if self.named:
            for declaration in re.findall(r"\.param\s+([^,()]*)", text):
                words = declaration.split()
                self.params.append((words[-1], " ".join(words[:-1])))
        elif ".shared" in text and "(" not in text:
            self.shared.append(" ".join(text.split()))

    def _directive(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if word == ".version":
            self.version = rest.split(",")[0].strip()
        elif word == ".target":
            self.target = rest.split(",")[0].strip()
        elif word == ".address_size":
            self.address_size = int(rest)
        elif word == ".reqntid" and self.named:
            self.reqntid = _dimensions(rest)
        elif word == ".maxntid" and self.named:
            self.maxntid = _dimensions(rest)

    def _statement(self, line: int, text: str) -> None:
        if text.startswith(".reg") and self.inside:
            _, kind, names = text.split(None, 2)
            counts = [re.search(r"<(\d+)>", name) for name in names.split(",")]
            self.registers[kind.lstrip(".")] += sum(int(count[1]) if count else 1 for count in counts)
        elif text.startswith(".shared") and (self.inside or self.depth == 0):
            self.shared.append(" ".join(text.split()))
        elif self.inside and not text.startswith("."):
            guard, rest = re.match(r"(?:@(!?\S+)\s+)?(.*)", text, flags=re.S).groups()
            opcode, _, operands = rest.replace("\t", " ").partition(" ")
            source = self.source_lines[line - 1] if line <= len(self.source_lines) else None
            self.instructions.append(
                Instruction(line, opcode.strip(), split_operands(operands), guard, source)
            )

    def reading(self) -> PtxReading:
        return PtxReading(
            version=self.version,
            target=self.target,
            address_size=self.address_size,
            entry=self.entry,
            params=tuple(self.params),
            reqntid=self.reqntid,
            maxntid=self.maxntid,
            registers_declared=dict(self.registers),
            instructions=tuple(self.instructions),
            labels=tuple(self.labels),
            shared_declarations=tuple(self.shared),
        )

"""Translates CUDA C++ to plain C++ by replacing the few constructs that only nvcc understands.

`translate` works on tokens, not on a syntax tree, and keeps line numbers: line 7 of the result comes from
line 7 of the source, so messages of the compiler and of the run refer to the learner's source. It replaces:

* `kernel<<<grid, block, shared, stream>>>(arguments)` with a call of `wb::launch`;
* in device code, `float*` with `wb::ptr<float>`, a pointer that knows its memory, and the subscript in
  `p[i] = v` with `p[wb::W(i, 3)] = v`: how it is used (`R` read, `W` write, `M` both, `P` address taken, `N`
  member access) and its number in the table of `sites` at the end;
* `*p` with `(p)[…0…]`, which is the same as a subscript;
* `__shared__` declarations with arrays that remember which thread wrote what;
* CUDA's includes with nothing, and `is_cuda()` with `is_cpu()`.

`include/` has the C++ side. A construct that the emulator doesn't support raises `Unsupported` with its name
and line.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path

from helpers.cuda.emulator.tokens import CudaText

HEADERS = Path(__file__).parent / "include"

_ASSIGNS = {"+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
_DROPPED_HEADER = re.compile(
    r"(c10/cuda/|ATen/cuda/(?!.*\.cuh)|cuda_runtime|cuda_fp16|cuda_bf16|cuda\.h|device_launch_parameters|math_constants|vector_types)"
)
_TORCH_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"](?:torch/|ATen/ATen\.h)", re.M)
_FOREIGN_HEADER = re.compile(
    r"(cub/|thrust/|cooperative_groups|mma\.h|cublas|cudnn|cufft|curand|cusparse|cuda/|cutlass/|cute/|nccl|ATen/cuda/)"
)
_FOREIGN_WORDS = {
    "cooperative_groups": "cooperative groups",
    "nvcuda": "tensor cores (nvcuda::wmma)",
    "wmma": "tensor cores (wmma)",
    "cub": "CUB",
    "thrust": "Thrust",
    "curand_init": "cuRAND",
    "asm": "inline PTX (asm)",
    "__asm__": "inline PTX (asm)",
    "texture": "textures",
    "tex1Dfetch": "textures",
    "tex2D": "textures",
    "surf2Dwrite": "surfaces",
    "cudaTextureObject_t": "textures",
    "__managed__": "managed memory (__managed__)",
    "cudaMallocManaged": "managed memory (cudaMallocManaged)",
    "cudaLaunchCooperativeKernel": "cooperative launches",
    "__cluster_dims__": "thread-block clusters",
    "clock": "the GPU's clock (clock)",
    "clock64": "the GPU's clock (clock64)",
    "__activemask": "__activemask, which depends on how the GPU schedules a warp; name the mask, as in "
    "__ballot_sync",
}


class Unsupported(ValueError):
    """A construct that the emulator doesn't support. `line` is its line in the CUDA source, starting at 1."""

    def __init__(self, line: int, what: str):
        super().__init__(what)
        self.line = line


@dataclass(frozen=True)
class Translation:
    """The translated C++ source.

    Attributes:
        text: the C++ source: as many lines as the CUDA source, followed by the table of sites.
        kernels: the names of the `__global__` functions.
        sites: (line, expression) of each numbered access; number 0 means "unknown".
    """

    text: str
    kernels: tuple[str, ...]
    sites: tuple[tuple[int, str], ...]


@dataclass
class _Function:
    first: int  # token of __global__ or __device__
    name: str
    parameters: tuple[int, int]  # tokens of ( and )
    body: tuple[int, int] | None  # tokens of { and }
    is_kernel: bool


@functools.cache
def _known_calls() -> frozenset[str]:
    """Returns the names with two leading underscores that the headers in `include/` define."""
    text = "".join(p.read_text() for p in sorted(HEADERS.glob("*.h")))
    atomics = {
        name + tail for name in re.findall(r"WB_ATOMIC\((\w+)", text) for tail in ("", "_block", "_system")
    }
    return frozenset(re.findall(r"\b(__\w+)(?=\(|\()", text)) | atomics | {"__restrict__"}


@dataclass
class _Translator(CudaText):
    sites: list[tuple[int, str]] = field(default_factory=lambda: [(0, "")])
    kernels: list[str] = field(default_factory=list)
    shared_by_all: dict[str, str] = field(default_factory=dict)  # `extern __shared__` outside of functions

    # ---- what the host cannot do

    def unsupported(self, i: int, what: str) -> None:
        raise Unsupported(self.line(i), f"{what} needs a GPU: the host does not run it")

    def check_words(self) -> None:
        for i, token in enumerate(self.tokens):
            if token.kind == "include":
                if _DROPPED_HEADER.search(token.text):
                    self.replace(i, i, "")
                elif _FOREIGN_HEADER.search(token.text):
                    self.unsupported(i, re.search(r'[<"](.*)[>"]', token.text)[1])
            elif token.kind == "word":
                is_call = self.is_at(i + 1, "(")
                if token.text in _FOREIGN_WORDS and not (
                    token.text in ("clock", "texture", "cub")
                    and not is_call
                    and not self.is_at(i + 1, "<", "::")
                ):
                    if token.text != "asm" or self.in_device(i):
                        self.unsupported(i, _FOREIGN_WORDS[token.text])
                elif token.text == "cuda" and self.is_at(i + 1, "::") and not self.is_at(i - 1, "::"):
                    self.unsupported(i, "libcu++ (cuda::)")
                elif (
                    token.text.startswith("__")
                    and is_call
                    and token.text not in _known_calls()
                    and self.in_device(i)
                ):
                    defined = re.search(rf"\b(define|void|int|float|\w+_t|T)\s+{token.text}\b", self.source)
                    if not (token.text.startswith("__builtin") or defined):
                        self.unsupported(i, f"{token.text}()")
                elif token.text == "is_cuda" and is_call:
                    self.replace(i, i, "is_cpu")
                elif token.text == "kCUDA":
                    self.replace(i, i, "kCPU")

    def in_device(self, i: int) -> bool:
        return any(f.first <= i <= (f.body or f.parameters)[1] for f in self.functions)

    # ---- functions

    def find_functions(self) -> list[_Function]:
        found, i = [], 0
        while i < len(self.tokens):
            if self.is_at(i, "__global__", "__device__"):
                function = self.function_at(i)
                if function:
                    found.append(function)
                    i = (function.body or function.parameters)[0]
            i += 1
        return found

    def function_at(self, first: int) -> _Function | None:
        i, is_kernel = first, self.is_at(first, "__global__")
        while i < len(self.tokens):
            if self.is_at(i, "__global__"):
                is_kernel = True
            if self.is_at(i, ";", "=", "{", "["):
                return None
            if self.is_at(i, "("):
                if self.is_at(
                    i - 1, "__launch_bounds__", "__align__", "alignas", "__attribute__", "decltype"
                ) or self.is_at(i - 1, "operator"):
                    i = self.tokens[i].partner
                else:
                    break
            i += 1
        else:
            return None
        closing = self.tokens[i].partner
        end = closing
        while end < len(self.tokens) and not self.is_at(end, "{", ";"):
            end += 1
        if end >= len(self.tokens) or closing < 0:
            return None
        body = (end, self.tokens[end].partner) if self.is_at(end, "{") else None
        if body and body[1] < 0:
            raise Unsupported(self.line(end), "this { has no }")
        return _Function(first, self.tokens[i - 1].text, (i, closing), body, is_kernel)

    def name_parameters(self, function: _Function) -> list[str]:
        names, depth, last = [], 0, None
        opening, closing = function.parameters
        for i in range(opening + 1, closing + 1):
            text = self.tokens[i].text
            if i == closing or (text == "," and depth == 0):
                if last:
                    names.append(last)
                last = None
            elif text in "<([{":
                depth += 1
            elif text in ">)]}":
                depth -= 1
            elif depth == 0 and self.is_word(i) and not self.is_at(i - 1, "=") and last != "=":
                last = text
        return names

    # ---- device code

    def device(self, function: _Function) -> None:
        last = (function.body or function.parameters)[1]
        if function.body:
            words = {token.text for token in self.tokens[slice(*function.body)]}
            declared = [text for name, text in self.shared_by_all.items() if name in words]
            self.insert_after(function.body[0], " ".join(["", *declared]))
        if function.is_kernel and function.body:
            names = self.name_parameters(function)
            self.kernels.append(function.name)
            quoted = ", ".join(f'"{n}"' for n in names) or "nullptr"
            self.insert_after(
                function.body[0],
                f" static const char* const wb_names[] = {{{quoted}}}; static const wb::Kernel "
                f'wb_kernel{{"{function.name}", wb_names, {len(names)}}};'
                " wb::ctx.kernel = &wb_kernel;",
            )
        scalars: set[str] = set()
        handled: set[int] = set()  # tokens that a declaration has dealt with
        for i in range(function.first, last + 1):
            if i in handled:
                continue
            if self.is_at(i, "__shared__"):
                handled |= self.shared(i, scalars)
            elif self.is_at(i, "<<<"):
                self.unsupported(i, "a launch from device code (dynamic parallelism)")
            elif self.is_at(i, "reinterpret_cast"):
                self.replace(i, i, "wb::reinterpret")
            elif self.is_at(i, "__restrict__", "__restrict", "__noinline__"):
                self.replace(i, i, "")
            elif self.is_at(i, "assert") and self.is_at(i + 1, "("):
                closing = self.tokens[i + 1].partner
                self.replace(i, i, "wb::assert_that")
                self.insert_before(closing, f", {self.site(i, closing)}")
            elif self.is_at(i, "*"):
                self.star(i, handled)
            elif self.is_at(i, "["):
                self.subscript(i, handled)
            elif (
                self.is_word(i) and self.tokens[i].text in scalars and not self.is_at(i - 1, ".", "->", "::")
            ):
                tag = self.use(i, i)
                self.insert_after(i, f"[wb::{tag}(0, {self.site(i, i)})]")

    def find_shared(self) -> None:
        """Removes declarations of dynamic shared memory outside of functions; functions get their own."""
        for i in range(len(self.tokens)):
            if self.is_at(i, "__shared__") and not self.in_device(i):
                first, end, declared = self.declared(i, set())
                self.replace(first, end, "")
                self.shared_by_all |= declared

    def site(self, i: int, j: int) -> int:
        self.sites.append((self.line(i), " ".join(self.text(i, j).split())))
        return len(self.sites) - 1

    def star(self, i: int, handled: set[int]) -> None:
        start = self.type_before(i)
        if start is not None:
            self.pointer_type(i, start, handled)
        elif not self.operand_ends(i - 1) or (self.is_at(i - 1, ")") and self.is_cast(i - 1)):
            self.dereference(i)

    def pointer_type(self, i: int, start: int, handled: set[int]) -> None:
        last = i
        while self.is_at(last + 1, "*"):
            last += 1
        if self.text(start, i - 1).split() == ["void"] or "void" in self.text(start, i - 1).split():
            return
        if "auto" in self.text(start, i - 1).split():
            self.replace(start, last, "auto ")
            handled |= set(range(start, last + 1))
            return
        handled |= set(range(i, last + 1))
        self.insert_before(start, "wb::ptr<")
        self.replace(last, last, "> ")
        # float *a = x, *b = y; is two declarations: a pointer's star belongs to its name
        depth, j = 0, start - 1
        while j >= 0 and not (depth == 0 and self.is_at(j, ";", "{", "}", "(", ",", "<")):
            depth += self.is_at(j, ")") - self.is_at(j, "(")
            j -= 1
        if not self.is_at(j, ";", "{", "}"):
            return
        kind, j = self.text(start, i - 1), last + 1
        while j < len(self.tokens) and not self.is_at(j, ";"):
            if self.is_at(j, "(", "[", "{"):
                j = self.tokens[j].partner
            elif self.is_at(j, ","):
                if self.is_at(j + 1, "*"):
                    self.replace(j, j + 1, f"; wb::ptr<{kind}> ")
                    handled.add(j + 1)
                elif self.is_word(j + 1) and self.is_at(j + 2, "=", ",", ";", "["):
                    self.replace(j, j, f"; {kind}")
            j += 1

    def dereference(self, i: int) -> None:
        end = self.operand_after(i + 1)
        if self.is_at(i + 1, "this"):
            return
        site = self.site(i, end)
        if self.is_at(end + 1, "="):
            tag = "W"
        elif (end + 1 < len(self.tokens) and self.tokens[end + 1].text in _ASSIGNS) or self.is_at(
            i - 1, "++", "--"
        ):
            tag = "M"
        else:
            tag = "R"
        self.replace(i, i, "(")
        self.insert_after(end, f")[wb::{tag}(0, {site})]")

    def use(self, first: int, last: int) -> str:
        """Returns how the element named by these tokens is used: R, W, M, P or N."""
        after = last + 1
        member = False
        while self.is_at(after, ".", "->"):
            member = True
            after += 2
        if self.is_at(first - 1, "&") and not self.operand_ends(first - 2):
            return "N" if member else "P"
        if self.is_at(after, "="):
            return "W"
        if (
            after < len(self.tokens)
            and self.tokens[after].kind == "mark"
            and self.tokens[after].text in _ASSIGNS
        ) or self.is_at(after, "++", "--"):
            return "M"
        return "M" if self.is_at(first - 1, "++", "--") else "R"

    def subscript(self, i: int, handled: set[int]) -> None:
        if not self.operand_ends(i - 1):
            return
        first = i - 1
        while True:  # back to where the expression begins: a.b[i], f(x)[i], (p + 1)[i]
            if self.is_at(first, ")", "]"):
                first = self.tokens[first].partner
                if self.operand_ends(first - 1) and not self.is_at(first - 1, ")"):
                    first -= 1
                    continue
            if self.is_at(first - 1, ".", "->", "::"):
                first -= 2
                continue
            break
        is_declaration = self.is_word(first) and (
            self.type_before(first) is not None or self.next_declarator(first)
        )
        brackets = [i]
        while self.is_at(self.tokens[brackets[-1]].partner + 1, "["):
            brackets.append(self.tokens[brackets[-1]].partner + 1)
        handled |= set(brackets)
        if is_declaration:
            return
        last = self.tokens[brackets[-1]].partner
        tag, site = self.use(first, last), self.site(first, last)
        for bracket in brackets:
            self.insert_after(bracket, f"wb::{tag}(")
            self.insert_before(self.tokens[bracket].partner, f", {site})")

    def shared(self, i: int, scalars: set[str]) -> set[int]:
        """Translates one `__shared__` declaration and returns its tokens."""
        first, end, declared = self.declared(i, scalars)
        self.replace(first, end, " ".join(" ".join(declared.values()).split()))
        return set(range(first, end + 1))

    def declared(self, i: int, scalars: set[str]) -> tuple[int, int, dict[str, str]]:
        """Returns the first and the last token of a `__shared__` declaration, and name -> C++ declaration."""
        first = i - 1 if self.is_at(i - 1, "extern", "static") else i
        end = i
        while not self.is_at(end, ";"):
            if self.is_at(end, "="):
                raise Unsupported(
                    self.line(i), "a __shared__ variable cannot have an initial value, on a GPU neither"
                )
            end = self.tokens[end].partner if self.is_at(end, "(", "[", "{") else end
            end += 1
        j, kind = i + 1, []
        while not (self.is_word(j) and (self.is_at(j + 1, "[", ";", ","))):
            if self.is_at(j, "__align__", "alignas"):
                j = self.tokens[j + 1].partner + 1
                continue
            if not self.is_at(j, "extern", "static"):
                kind.append(self.tokens[j].text)
            j += 1
        kind_text = " ".join(kind).replace(" :: ", "::")
        dynamic = self.is_at(first, "extern") or self.is_at(i + 1, "extern")
        out: dict[str, str] = {}
        while True:
            name, dims = self.tokens[j].text, ""
            while self.is_at(j + 1, "["):
                closing = self.tokens[j + 1].partner
                dims += self.text(j + 1, closing)
                j = closing
            if dynamic:
                out[name] = f'wb::ptr<{kind_text}> {name} = wb::dynamic_shared<{kind_text}>("{name}");'
            else:
                if not dims:
                    scalars.add(name)
                    dims = "[1]"
                key = f"wb_key_{len(self.sites)}_{len(out)}"
                array = f"{kind_text}{dims}"
                out[name] = (
                    f'static const wb::Key {key}{{"{name}"}}; auto {name} = wb::shared<{array}>({key});'
                )
            j += 1
            if not self.is_at(j, ","):
                break
            j += 1
        self.site(i, end)  # makes the keys' names differ
        return first, end, out

    # ---- host code

    def launches(self) -> None:
        for i in range(len(self.tokens)):
            if not self.is_at(i, "<<<"):
                continue
            first = self.before_arguments(i - 1) if self.is_at(i - 1, ">") else i - 1
            while self.is_at(first - 1, "::"):
                first -= 2 if self.is_word(first - 2) else 1
            end = i + 1
            while end + 2 < len(self.tokens) and not all(self.is_at(end + k, ">") for k in range(3)):
                end = self.tokens[end].partner if self.is_at(end, "(", "[", "{") else end
                end += 1
            if end + 2 >= len(self.tokens):
                raise Unsupported(self.line(i), "this <<< has no >>>")
            name = " ".join(self.text(first, i - 1).split())
            self.insert_before(first, "wb::launch([&](auto... wb_arguments) { ")
            self.replace(i, i, f'(wb_arguments...); }}, "{name}", wb::Config(')
            self.replace(end, end + 2, "))")

    def run(self) -> Translation:
        self.functions = self.find_functions()
        self.check_words()
        self.find_shared()
        for function in self.functions:
            self.device(function)
        self.launches()
        rows = ", ".join(f'{{{n}, R"wb({t[:80]})wb"}}' for n, t in self.sites)
        table = f"\nnamespace wb {{ const Site sites[] = {{{rows}}}; }}\n"
        return Translation(self.apply_edits() + table, tuple(self.kernels), tuple(self.sites))


def translate(source: str) -> Translation:
    """Translates CUDA C++ for the emulator.

    Raises:
        Unsupported: the source uses something that needs a GPU. The message has its name and line.
    """
    return _Translator(source).run()


def cpp_file(source: str, name: str = "kernel.cu") -> str:
    """Returns a complete C++ file. Compiler messages refer to the lines of `name`, which are those of
    `source`.

    Raises:
        Unsupported: as in `translate`.
    """
    # The emulator's streams and checks for PyTorch need its headers before them.
    torch_first = "#include <torch/types.h>\n" if _TORCH_INCLUDE.search(source) else ""
    return (
        f'#line 1 "host.h"\n{torch_first}#include "{HEADERS / "cuda_host.h"}"\n#line 1 '
        f'"{name}"\n{translate(source).text}\n#line 1 "binding.cpp"\n'
    )

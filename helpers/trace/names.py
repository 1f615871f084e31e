"""Parse kernel names: namespace, template arguments, vector width, and functor."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class KernelName:
    """The parts of a kernel's demangled C++ name. `vector_width` counts elements, not bytes."""

    full: str
    namespace: str
    function: str
    template: tuple[str, ...]
    vector_width: int | None
    functor: str | None
    pointers: int | None
    meaning: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def short(self) -> str:
        """Returns a short one-line form: the kernel, its vector width, and its functor."""
        if not self.template:
            return self.function if "(" in self.full and self.function else self.full
        width = f"<{self.template[0]}>" if self.template[0].isdigit() else ""
        return f"{self.function}{width}" + (f" · {_innermost(self.functor)}" if self.functor else "")

    def __repr__(self) -> str:
        lines = [self.function + (f", of {self.namespace}" if self.namespace else "")]
        width = max((len(value) for value, _ in self.meaning), default=0)
        lines += [f"  {value:<{width}}   {meaning}" for value, meaning in self.meaning]
        return "\n".join(lines)


# What PyTorch's template arguments mean: aten/src/ATen/native/cuda/CUDALoops.cuh and Reduce.cuh.
_POINTERS = "the pointers: one output, the rest inputs"
_FUNCTOR = "the functor: what is done to each element"
_ARGUMENTS = {
    "vectorized_elementwise_kernel": ("the vector width: elements per load or store", _FUNCTOR, _POINTERS),
    "unrolled_elementwise_kernel": (_FUNCTOR, _POINTERS, "elements per thread, one at a time"),
    "elementwise_kernel": ("threads per block", "elements per thread", _FUNCTOR),
    "reduce_kernel": ("the most threads per block", "outputs per thread", "the reduction"),
}


def read_kernel_name(name: str) -> KernelName:
    """Splits a kernel's name into namespace, function, template arguments, vector width and functor.

    Supports the demangled names from torch.profiler, Nsight Systems and Nsight Compute, Triton's plain names,
    and copies such as "Memcpy HtoD (Pageable -> Device)". A truncated name is parsed as far as possible.

    Args:
        name: the name as a profiler shows it.

    Raises:
        ValueError: the name is empty or still mangled (it starts with `_Z`).

    Example:
        >>> from helpers import trace
        >>> name = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)"
        >>> trace.read_kernel_name(name).vector_width
        4
    """
    text = " ".join(str(name).split())
    if not text:
        raise ValueError("read_kernel_name() got an empty name; pass the name of a kernel from a profile.")
    if text.startswith("_Z"):
        raise ValueError(f"{text[:40]!r} is a mangled C++ name; run it through c++filt and pass the result.")
    if text.startswith(("Memcpy ", "Memset ")):
        return KernelName(text, "", text, (), None, None, None)
    # Replace brackets that are part of a name, because they would confuse the bracket matching below.
    plain = text.replace("(anonymous namespace)", "{anonymous}").replace("<unnamed>", "{anonymous}")
    plain = plain.replace("operator()", "operator{}").replace("operator ()", "operator{}")
    head = plain[: _find(plain, "(")]
    opening = head.find("<")
    qualified = (head if opening < 0 else head[:opening]).split(" ")[-1]
    *namespaces, function = qualified.split("::")
    template = ()
    if opening >= 0:
        inside = head[opening + 1 : _find(head, ">", opening + 1)]
        template = tuple(re.sub(r"^\((?:unsigned )?\w+\)(?=-?\w)", "", part) for part in _split(inside))
    meanings = _ARGUMENTS.get(function, ())
    functors = [
        a for a, m in zip(template, meanings, strict=False) if m == _FUNCTOR and not a.endswith("...")
    ]
    functor = _tidy(functors[0]) if functors else None
    array = re.search(r"[Aa]rray<char ?\*, (?:\([\w ]+\))?(\d+)", head)
    width = None
    if function == "vectorized_elementwise_kernel" and template and template[0].isdigit():
        width = int(template[0])
    elif function == "unrolled_elementwise_kernel":
        width = 1
    rows = [(_tidy(argument), meaning) for argument, meaning in zip(template, meanings, strict=False)]
    namespace = "::".join(part.replace("{anonymous}", "(anonymous namespace)") for part in namespaces)
    pointers = int(array[1]) if array else None
    return KernelName(text, namespace, function, template, width, functor, pointers, tuple(rows))


def _find(text: str, wanted: str, start: int = 0) -> int:
    """Returns the first index of `wanted` outside all brackets from `start` on, or the length of the text."""
    depth = 0
    for i in range(start, len(text)):
        if depth == 0 and text[i] == wanted:
            return i
        if text[i] in "<({[":
            depth += 1
        elif text[i] in ">)}]":
            depth -= 1
    return len(text)


def _split(text: str) -> list[str]:
    """Splits text at the commas outside all brackets."""
    parts = []
    while text:
        cut = _find(text, ",")
        parts.append(text[:cut].strip())
        text = text[cut + 1 :]
    return parts


def _tidy(argument: str) -> str:
    """Returns a template argument without namespaces, parameter lists, and the extra spaces of old C++."""
    text = re.sub(r"^void (?=\w)", "", argument)
    text = re.sub(
        r"(?:\{anonymous\}|\b[A-Za-z_]\w*)::(?=[\w{\[])", lambda m: m[0] if "lambda" in m[0] else "", text
    )
    instance = re.search(r"[{\[]lambda[^#]*?(?:#|instance )(\d+)\)?[}\]]$", text)
    if instance:
        owner = re.search(r"([A-Za-z_]\w*(?:<[^()]*?>)?)\(", argument.replace("{anonymous}::", ""))
        owner_name = re.sub(r"\b\w+::", "", owner[1]) if owner else "?"
        return f"{owner_name}, lambda {instance[1]}"
    text = re.sub(r"\(unsigned long\)|\((?:int|bool)\)|(?<=\d)ul\b", "", text).replace("char *", "char*")
    while "> >" in text:
        text = text.replace("> >", ">>")
    return text


def _innermost(functor: str) -> str:
    """Returns `MulFunctor` for `BinaryFunctor<float, float, float, MulFunctor<float>>`."""
    functors = re.findall(r"\b([A-Za-z]\w*Functor\w*)", functor)
    return functors[-1] if functors else re.match(r"[\w?]*", functor)[0]


def short_name(name: str) -> str:
    """Returns `read_kernel_name(name).short`, or the name itself if it cannot be parsed.

    Example:
        >>> from helpers import trace
        >>> name = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)"
        >>> trace.short_name(name)
        'vectorized_elementwise_kernel<4> · FillFunctor'
    """
    try:
        return read_kernel_name(name).short
    except ValueError:
        return name

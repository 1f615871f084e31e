"""torch's `load_inline` and `load`, called the same way on a machine without a GPU.

Where there are a GPU and nvcc, both are torch's own, with what `extension` adds: a folder for each version of the
text, a lock that a killed build cannot leave behind, errors cut to the lines that matter. Elsewhere the same text is
built by the C++ compiler, and its kernels run on CPU tensors, thread by thread and checked. So that this takes seconds, `load_inline`
builds the host's text against a stand-in for PyTorch's headers (`host/include/tensors.h`): `torch::Tensor` and the
functions that a wrapper needs, which ask PyTorch through Python. The wrapper's text is compiled and run, not imitated.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from helpers import device
from helpers.cuda import cache, extension, light
from helpers.cuda.errors import BuildError

# Those of PyTorch's headers that tensors.h stands in for; the translator leaves out CUDA's own.
_STOOD_IN = re.compile(
    r"^([ \t]*#[ \t]*include[ \t]*[<\"](?:torch/(?:extension|types|torch|all)\.h|ATen/ATen\.h|c10/util/Exception\.h|c10/core/\w+\.h)[>\"])",
    re.M,
)
_UNKNOWN = re.compile(
    r"has no member named|is not a member of|was not declared|No such file|no (?:member|type) named|undeclared"
)


def load_inline(
    *,
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | Mapping[str, str],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    with_pytorch_error_handling: bool = True,
    no_implicit_headers: bool = False,
) -> ModuleType:
    """`torch.utils.cpp_extension.load_inline`, by keywords, on every machine.

    Args:
        name: the module's name, a Python identifier.
        cpp_sources: C++ text, at least the declarations of `functions`.
        cuda_sources: CUDA text: kernels and the functions that launch them.
        functions: what to bind to Python.
        extra_cflags: flags for the C++ compiler; on the host -O2 where none is given.
        extra_cuda_cflags: flags for nvcc; on the host those of them that a C++ compiler knows (-O, -D, -I, -std).
        with_pytorch_error_handling: as in torch; it goes with PyTorch's headers.
        no_implicit_headers: leave PyTorch's headers out; torch's own `load_inline` builds it, on every machine that
            needs no nvcc for it, and the text includes what it uses, pybind11 among it.

    Returns:
        The imported module; `helpers.cuda.info` tells seconds and folder.

    Raises:
        BuildError: the compiler's complaint, cut to what matters, or the name of a construct that the host does not run.
        ValueError: a name that is not an identifier, no function, or options that torch cannot combine.
        helpers.device.Missing: no C++ compiler, no ninja, or a GPU without nvcc.
    """
    cpp, cuda = _text(cpp_sources), _text(cuda_sources)
    bound = [functions] if isinstance(functions, str) else list(functions or [])
    if not bound:
        raise ValueError("`functions` names at least one function to bind to Python.")
    if no_implicit_headers and with_pytorch_error_handling:
        raise ValueError(
            "PyTorch's error handling needs PyTorch's headers: with no_implicit_headers=True "
            "pass with_pytorch_error_handling=False, too."
        )
    on_gpu = device.has_gpu()
    flags = {"extra_cflags": list(extra_cflags or []), "extra_cuda_cflags": list(extra_cuda_cflags or [])}
    if no_implicit_headers and (on_gpu or not cuda):
        return extension.load_with_torch(name, bound, cpp, cuda, flags, headers="none")
    if on_gpu:
        return extension.load_with_torch(name, bound, cpp, cuda, flags, headers="torch")
    headers = "none" if no_implicit_headers else "stand-in" if light.suits(cpp, cuda) else "torch"
    if headers == "stand-in":
        cpp, cuda = (_STOOD_IN.sub("", text) for text in (cpp, cuda))
    host = flags["extra_cuda_cflags"] if cuda else flags["extra_cflags"]
    host = host if any(flag.startswith("-O") for flag in host) else ["-O2", *host]
    try:
        if cuda:
            return extension.load_on_host(name, cuda, bound, cpp_source=cpp, headers=headers, flags=host)
        return extension.load_plain(name, cpp, bound, headers=headers, flags=host)
    except BuildError as error:
        if headers == "stand-in" and _UNKNOWN.search(str(error)):
            raise BuildError(
                f"{error}\nWithout a GPU a small stand-in takes the place of PyTorch's headers. Is this name spelled "
                'right and part of PyTorch, then cuda.load_cuda(…, device="host") builds with the real ones.'
            ) from None
        raise


def load(
    *,
    name: str,
    sources: str | Path | Sequence[str | Path],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
) -> ModuleType:
    """`torch.utils.cpp_extension.load`, by keywords, on every machine; torch's own does the work on each of them.

    Args:
        name: the module's name, a Python identifier.
        sources: files: .cpp for the C++ compiler, .cu for nvcc. Where there is no GPU, each .cu is put into words that
            the C++ compiler knows, and its kernels run on the host, checked.
        extra_cflags: flags for the C++ compiler.
        extra_cuda_cflags: flags for nvcc.

    Returns:
        The imported module. One of its files has the pybind11 lines.

    Raises:
        BuildError: as in `load_inline`.
        FileNotFoundError: no such file.
        ValueError: no file, a name that is not an identifier, or, without a GPU, more than one .cu.
        helpers.device.Missing: no C++ compiler, no ninja, or a GPU without nvcc.
    """
    from torch.utils import cpp_extension

    files = [Path(one).resolve() for one in ([sources] if isinstance(sources, (str, Path)) else sources)]
    if not files:
        raise ValueError("`sources` names at least one file.")
    texts = {str(file): file.read_text() for file in files}
    kernels = [file for file in files if file.suffix == ".cu"]
    on_host = bool(kernels) and not device.has_gpu()
    device.require("c++", "ninja", *(["nvcc"] if kernels and not on_host else []))
    if on_host and len(kernels) > 1:
        raise ValueError("Without a GPU, load() takes one .cu file: put the kernels into one.")
    flags = {"extra_cflags": list(extra_cflags or []), "extra_cuda_cflags": list(extra_cuda_cflags or [])}
    what: dict = {"files": texts, "flags": flags}
    translated = ""
    if on_host:
        translated = extension.translated(texts[str(kernels[0])], kernels[0].name)
        flags["extra_cflags"] += extension.host_flags([])
        what |= {"host_text": translated, "host_headers": extension.host_headers()}
    elif kernels:
        what |= extension.gpu_identity()

    def make(folder: Path, output: io.StringIO) -> tuple[ModuleType, dict]:
        given = [str(file) for file in files if file.suffix != ".cu" or not on_host]
        if on_host:
            (folder / f"{kernels[0].stem}_on_host.cpp").write_text(translated)
            given.append(str(folder / f"{kernels[0].stem}_on_host.cpp"))
        with extension.building_with_torch(what.get("arch", ""), output):
            return cpp_extension.load(name, given, build_directory=str(folder), **flags), {}

    shown = {file.name: texts[str(file)] for file in files}
    module = cache.load_cached(name, what, make, shown, host=on_host)
    if on_host:
        bound = [one for one in dir(module) if not one.startswith("_") and callable(getattr(module, one))]
        source = texts[str(kernels[0])]
        takes_tensors = any("torch" in text for text in texts.values())
        extension.checked_once(module, bound, source, takes_tensors=takes_tensors)
    return module


def _text(sources: str | Sequence[str] | None) -> str:
    return sources if isinstance(sources, str) else "\n".join(sources or [])

"""torch's `load_inline` and `load`, which you can call in the same way without a GPU.

With a GPU and nvcc, both are torch's own. `extension` adds one folder per version of the sources, a lock that
a killed build can't leave behind, and shorter error messages. Without a GPU, the C++ compiler builds the same
sources, and their kernels run in the emulator on CPU tensors. To make that a matter of seconds, `load_inline`
then uses a small stand-in for PyTorch's headers (`emulator/include/tensors.h`): `torch::Tensor` and the
functions that a wrapper needs, which call PyTorch through Python. The wrapper's source is compiled and run,
not imitated.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from helpers import device
from helpers.cuda import cache, extension, fast_build
from helpers.cuda.errors import UNKNOWN_NAME, BuildError, UnknownName

# The includes of PyTorch's headers that tensors.h replaces; the translator removes CUDA's own.
_REPLACED_INCLUDES = re.compile(
    r"^([ \t]*#[ \t]*include[ "
    r"\t]*[<\"](?:torch/(?:extension|types|torch|all)\.h|ATen/ATen\.h|c10/util/Exception\.h|c10/core/\w+\.h)[>\"])",
    re.M,
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
    """`torch.utils.cpp_extension.load_inline` with keyword arguments, on every machine.

    Args:
        name: the module's name, a Python identifier.
        cpp_sources: C++ source, at least the declarations of `functions`.
        cuda_sources: CUDA source: the kernels and the functions that launch them.
        functions: the functions to bind to Python.
        extra_cflags: options for the C++ compiler; without a GPU the default is -O2.
        extra_cuda_cflags: options for nvcc. The emulator uses -D, -I and -std of them.
        with_pytorch_error_handling: as in torch. It requires PyTorch's headers.
        no_implicit_headers: leave PyTorch's headers out. On every machine that doesn't need nvcc for it,
            torch's own `load_inline` builds the source, which must include everything that it uses, such as
            pybind11.

    Returns:
        The imported module. `helpers.cuda.info` has its build time and folder.

    Raises:
        BuildError: the build failed, or the source uses a construct that the emulator doesn't support.
        ValueError: the name isn't an identifier, `functions` is empty, or torch can't combine the options.
        helpers.device.Missing: there is no C++ compiler, no ninja, or a GPU without nvcc.
    """
    cpp, cuda = _text(cpp_sources), _text(cuda_sources)
    function_names = [functions] if isinstance(functions, str) else list(functions or [])
    if not function_names:
        raise ValueError("`functions` names at least one function to bind to Python.")
    if no_implicit_headers and with_pytorch_error_handling:
        raise ValueError(
            "PyTorch's error handling needs PyTorch's headers: with no_implicit_headers=True "
            "pass with_pytorch_error_handling=False, too."
        )
    on_gpu = device.has_gpu()
    flags = {"extra_cflags": list(extra_cflags or []), "extra_cuda_cflags": list(extra_cuda_cflags or [])}
    if no_implicit_headers and (on_gpu or not cuda):
        return extension.load_with_torch(name, function_names, cpp, cuda, flags, headers="none")
    if on_gpu:
        return extension.load_with_torch(name, function_names, cpp, cuda, flags, headers="torch")
    headers = "none" if no_implicit_headers else "stand-in" if fast_build.supports(cpp, cuda) else "torch"
    if headers == "stand-in":
        cpp, cuda = (_REPLACED_INCLUDES.sub("", text) for text in (cpp, cuda))
    try:
        if cuda:
            nvcc_flags = flags["extra_cuda_cflags"]
            return extension.load_in_emulator(
                name, cuda, function_names, cpp_source=cpp, headers=headers, flags=nvcc_flags
            )
        cpp_flags = flags["extra_cflags"]
        if not any(flag.startswith("-O") for flag in cpp_flags):
            cpp_flags = ["-O2", *cpp_flags]
        return extension.load_plain(name, cpp, function_names, headers=headers, flags=cpp_flags)
    except BuildError as error:
        if headers == "stand-in" and UNKNOWN_NAME.search(str(error)):
            raise UnknownName(
                f"{error}\nWithout a GPU, a small stand-in replaces PyTorch's headers. If this name is "
                "spelled correctly and is part of PyTorch, use "
                'cuda.load_cuda(…, device="emulator"), which builds with the real headers.'
            ) from None
        raise


def load(
    *,
    name: str,
    sources: str | Path | Sequence[str | Path],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
) -> ModuleType:
    """`torch.utils.cpp_extension.load` with keyword arguments, on every machine. torch's own does the work.

    Args:
        name: the module's name, a Python identifier.
        sources: files: .cpp for the C++ compiler, .cu for nvcc. Without a GPU, the .cu file is translated to
            C++ and its kernels run in the emulator.
        extra_cflags: options for the C++ compiler.
        extra_cuda_cflags: options for nvcc.

    Returns:
        The imported module. One of the files must contain the pybind11 lines.

    Raises:
        BuildError: as in `load_inline`.
        FileNotFoundError: a file doesn't exist.
        ValueError: no file, a name that isn't an identifier, or several .cu files without a GPU.
        helpers.device.Missing: there is no C++ compiler, no ninja, or a GPU without nvcc.
    """
    from torch.utils import cpp_extension

    files = [Path(one).resolve() for one in ([sources] if isinstance(sources, (str, Path)) else sources)]
    if not files:
        raise ValueError("`sources` names at least one file.")
    texts = {str(file): file.read_text() for file in files}
    kernels = [file for file in files if file.suffix == ".cu"]
    emulated = bool(kernels) and not device.has_gpu()
    device.require("c++", "ninja", *(["nvcc"] if kernels and not emulated else []))
    if emulated and len(kernels) > 1:
        raise ValueError("Without a GPU, load() takes one .cu file: put the kernels into one.")
    flags = {"extra_cflags": list(extra_cflags or []), "extra_cuda_cflags": list(extra_cuda_cflags or [])}
    build_inputs: dict = {"files": texts, "flags": flags}
    translated = ""
    if emulated:
        translated = extension.translated(texts[str(kernels[0])], kernels[0].name)
        flags["extra_cflags"] += extension.emulator_flags([])
        build_inputs |= {"emulator_text": translated, "emulator_headers": extension.emulator_headers()}
    elif kernels:
        build_inputs |= extension.gpu_identity()

    def make(folder: Path, output: io.StringIO) -> tuple[ModuleType, dict]:
        source_files = [str(file) for file in files if file.suffix != ".cu" or not emulated]
        if emulated:
            (folder / f"{kernels[0].stem}_emulated.cpp").write_text(translated)
            source_files.append(str(folder / f"{kernels[0].stem}_emulated.cpp"))
        with extension.building_with_torch(build_inputs.get("arch", ""), output):
            return cpp_extension.load(name, source_files, build_directory=str(folder), **flags), {}

    texts_by_name = {file.name: texts[str(file)] for file in files}
    module = cache.load_cached(name, build_inputs, make, texts_by_name, emulated=emulated)
    if emulated:
        function_names = [
            one for one in dir(module) if not one.startswith("_") and callable(getattr(module, one))
        ]
        source = texts[str(kernels[0])]
        takes_tensors = any("torch" in text for text in texts.values())
        extension.checked_once(module, function_names, source, takes_tensors=takes_tensors)
    return module


def _text(sources: str | Sequence[str] | None) -> str:
    return sources if isinstance(sources, str) else "\n".join(sources or [])

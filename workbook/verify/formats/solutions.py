"""Read a solution of FlashInfer-Trace, or of SOL-ExecBench's dialect of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from workbook.usage import UsageError
from workbook.verify.formats.files import field_of
from workbook.verify.problem import Candidate

_PYTHON = ("python", "pytorch", "triton")
_COMPILED = ("cpp", "cuda", "cuda_cpp", "cublas")
# What SOL-ExecBench compiles with if a solution names no options.
_SOL_FLAGS = {"cuda_cflags": ["-O3", "--use_fast_math"], "ld_flags": ["-lcuda"]}
_FLAGS = {"cflags": "extra_cflags", "cuda_cflags": "extra_cuda_cflags", "ld_flags": "extra_ldflags"}
_PRESENT = ("torch", "triton", "numpy", "cublas")


def candidate_of(
    solution: Mapping[str, Any], where: str, definition: str, outputs: tuple[str, ...]
) -> tuple[Candidate, tuple[str, ...]]:
    """The candidate that a solution describes.

    Args:
        solution: the JSON object.
        where: what messages call it.
        definition: the definition's name.
        outputs: the names of the definition's outputs.

    Returns:
        The candidate, and sentences about what we ignore.

    Raises:
        UsageError: the solution is malformed, solves another definition, or can't run here.
    """
    solves = field_of(solution, "definition", str, where)
    if solves != definition:
        raise UsageError(f'{where} solves "{solves}", but the definition is "{definition}".')
    spec = field_of(solution, "spec", dict, where)
    sources = _sources(solution, where)
    entry = field_of(spec, "entry_point", str, f"spec of {where}")
    file, separator, name = entry.partition("::")
    if not (separator and name) or file not in sources:
        raise UsageError(
            f'The entry_point of {where} is "{entry}"; it must be "file::function", with one of its files: '
            f"{', '.join(sources)}."
        )
    is_compiled = _is_compiled(spec, where, sources)
    in_place = spec.get("destination_passing_style", True)
    if not isinstance(in_place, bool):
        raise UsageError(f"destination_passing_style of {where} is {in_place!r}; it must be true or false.")
    candidate = Candidate(
        name=str(solution.get("name") or where),
        sources=sources,
        entry=entry,
        kind="destination" if in_place else "function",
        options=_options(spec) if is_compiled else {},
        results=outputs,
    )
    return candidate, tuple(_notes(spec))


def _sources(solution: Mapping[str, Any], where: str) -> dict[str, str]:
    sources: dict[str, str] = {}
    for number, one in enumerate(field_of(solution, "sources", list, where), 1):
        path, text = (one.get("path"), one.get("content")) if isinstance(one, dict) else (None, None)
        if not isinstance(path, str) or not isinstance(text, str):
            raise UsageError(f'Source {number} of {where} needs a "path" and a "content", both strings.')
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise UsageError(f'Source {number} of {where} has the path "{path}"; it must stay in its folder.')
        if path in sources:
            raise UsageError(f"{where} has two sources with the path {path}.")
        sources[path] = text
    return sources


def _is_compiled(spec: Mapping[str, Any], where: str, sources: Mapping[str, str]) -> bool:
    """Whether a C++ compiler is needed.

    Raises:
        UsageError: the languages or the binding can't be run.
    """
    given = spec.get("languages") or spec.get("language") or ()
    languages = [given] if isinstance(given, str) else list(given)
    if not languages:
        raise UsageError(f'spec of {where} names no language; give it as "language".')
    if strange := [one for one in languages if one not in (*_PYTHON, *_COMPILED)]:
        raise UsageError(
            f"{where} is written in {', '.join(map(str, strange))}; Python, PyTorch, Triton, C++ and CUDA "
            "can be verified."
        )
    is_compiled = languages[0] in _COMPILED
    if any((one in _COMPILED) != is_compiled for one in languages):
        raise UsageError(f"{where} mixes Python and C++: {', '.join(languages)}.")
    if is_compiled:
        uses_tvm = any("tvm/ffi" in text or "TVM_FFI" in text for text in sources.values())
        if uses_tvm or spec.get("binding") not in (None, "torch"):
            raise UsageError(f'{where} has the binding "tvm-ffi"; only "torch" can be verified.')
    return is_compiled


def _options(spec: Mapping[str, Any]) -> dict[str, list[str]]:
    """The build options by the names that `torch.utils.cpp_extension` has for them."""
    given = spec.get("compile_options") or {}
    flags = {**(_SOL_FLAGS if "languages" in spec else {}), **given}
    return {_FLAGS[name]: list(values) for name, values in flags.items() if name in _FLAGS and values}


def _notes(spec: Mapping[str, Any]) -> list[str]:
    notes = []
    needed = [*(spec.get("dependencies") or ()), *(spec.get("pip_packages") or ())]
    if others := [str(one) for one in needed if not str(one).lower().startswith(_PRESENT)]:
        notes.append(f"The solution asks for {', '.join(others)}; the verifier installs nothing.")
    if spec.get("build_commands"):
        notes.append("The solution has build commands, which the verifier doesn't run.")
    return notes

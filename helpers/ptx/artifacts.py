"""A kernel at every stage of compilation, and what the disassemblers bundled with Triton report about it."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from helpers import device
from helpers.ptx.loops import Loop, product_loop
from helpers.ptx.read import PtxReading, read_ptx
from helpers.ptx.sass import SassReading, read_sass


class CompileError(RuntimeError):
    """A kernel doesn't compile. The message has the kernel, the target, the error and its line."""


def plain_name(name: str) -> str:
    """Returns a kernel's unmangled name: `square` for `_Z6squarePKfPfi`."""
    match = re.match(r"_Z(\d+)(.+)", name)
    return match[2][: int(match[1])] if match else name


@dataclass(frozen=True)
class Stages:
    """A kernel at every stage of compilation for one target.

    Attributes:
        kernel: the kernel's name as the linker sees it; `name` is the unmangled one.
        language: "triton" or "cuda".
        target: such as "sm_90".
        num_warps: warps per block for Triton; None for CUDA C++, where the launch decides.
        source: the kernel's source; `first_line` is the number of its first line in its file or cell.
        ttir, ttgir, llir: text; None for CUDA C++, whose compiler doesn't expose them.
        ptx: text, with every kernel of the module.
        cubin: the ELF file that the GPU loads.
        metadata: Triton's metadata (num_stages, shared, ...); for CUDA C++ the compiler flags.
    """

    kernel: str
    language: str
    target: str
    num_warps: int | None
    source: str = field(repr=False)
    first_line: int = field(repr=False)
    ttir: str | None = field(repr=False)
    ttgir: str | None = field(repr=False)
    llir: str | None = field(repr=False)
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)
    metadata: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The kernel's name in its source."""
        return plain_name(self.kernel)

    @functools.cached_property
    def sass(self) -> str:
        """The kernel's machine code with source lines, disassembled by the nvdisasm that comes
        with Triton.
        """
        text = _tool("nvdisasm", self.cubin, "--print-code", "--print-line-info")
        at = text.find(f".text.{self.kernel}:")
        if at < 0:
            raise CompileError(f"nvdisasm found no code of {self.kernel} in the cubin for {self.target}.")
        end = text.find("//-----", at)
        return text[at : end if end > 0 else len(text)].rstrip() + "\n"

    @functools.cached_property
    def reading(self) -> PtxReading:
        """The parsed PTX."""
        return read_ptx(self.ptx, self.kernel)

    @functools.cached_property
    def sass_reading(self) -> SassReading:
        """The parsed SASS."""
        return read_sass(self.sass, self.ptx)

    @functools.cached_property
    def product_loop(self) -> Loop | None:
        """One iteration of the loop in which the kernel multiplies, in SASS; None if no loop does."""
        return product_loop(self.sass, self.sass_reading)

    @functools.cached_property
    def resources(self) -> Mapping[str, int]:
        """The kernel's resource usage from cuobjdump: REG, STACK, SHARED, LOCAL, ..."""
        text = _tool("cuobjdump", self.cubin, "--dump-resource-usage")
        match = re.search(rf"Function {re.escape(self.kernel)}:\s*\n(.*)", text)
        if match is None:
            raise CompileError(
                f"cuobjdump found no resources of {self.kernel} in the cubin for {self.target}."
            )
        return MappingProxyType(
            {name: int(n) for name, n in re.findall(r"([A-Z]+)(?:\[\d+\])?:(\d+)", match[1])}
        )

    @property
    def n_registers(self) -> int:
        """Registers per thread, as allocated by the assembler."""
        return self.resources["REG"]

    @property
    def shared_bytes(self) -> int:
        """Shared memory per block in bytes: the cubin's own plus what Triton requests at launch."""
        return self.resources.get("SHARED", 0) + int(self.metadata.get("shared", 0))

    @property
    def local_bytes(self) -> int:
        """Local memory per thread in bytes, for any purpose: spilled registers, arrays, a debug build's
        variables.

        The driver reports the same figure. Triton calls it `n_spills`, in words of 4 bytes.
        """
        return self.resources.get("STACK", 0) + self.resources.get("LOCAL", 0)

    @functools.cached_property
    def spill_bytes(self) -> int:
        """Upper bound of the local memory per thread that spilled registers use, in bytes; 0 if ptxas spilled
        none.

        ptxas assembles the kernel again to report it. It counts the bytes of all spill stores in the code,
        and several stores may use the same location.
        """
        if not self.local_bytes:
            return 0
        text = self._cuda_report() if self.language == "cuda" else self._triton_report()
        match = re.search(
            rf"Function properties for {re.escape(self.kernel)}\s*\n.*?(\d+) bytes spill stores", text
        )
        if match is None:
            raise CompileError(f"ptxas reported nothing about the spills of {self.kernel} for {self.target}.")
        return min(self.local_bytes, int(match[1]))

    def _cuda_report(self) -> str:
        """Runs `ptxas -v` with NVRTC's own assembler, because NVRTC may write newer PTX than Triton's can
        read.
        """
        from helpers.cuda import nvrtc

        return nvrtc.assembler_report(self.source, target=self.target, flags=self.metadata["flags"])

    def _triton_report(self) -> str:
        """Runs `ptxas -v` with the assembler that made the cubin, called as Triton calls it.

        Triton bundles two: up to 3.7 the newer one was for sm_100 and later, in 3.9 it is for sm_90 too.
        """
        from triton.backends.nvidia.compiler import get_ptxas

        arch = self.reading.target.partition(",")[0]
        fmad = () if self.metadata["enable_fp_fusion"] else ("--fmad=false",)
        options = ("-v", f"-arch={arch}", *fmad, "-o", os.devnull)
        path = get_ptxas(int(re.sub(r"\D", "", arch))).path
        try:  # as newer releases of Triton call it
            return _tool("ptxas", self.ptx.encode(), "--regAllocOptLevel=2", *options, bundled=path)
        except CompileError:
            return _tool("ptxas", self.ptx.encode(), *options, bundled=path)

    def text(self, kind: str) -> str:
        """Returns the text of a stage: "source", "ttir", "ttgir", "llir", "ptx" or "sass".

        Raises:
            ValueError: no such stage, or this kernel's compiler doesn't expose it.
        """
        kinds = ("source", "ttir", "ttgir", "llir", "ptx", "sass")
        if kind not in kinds:
            raise ValueError(f"There is no stage {kind!r}; choose from {', '.join(kinds)}.")
        found = getattr(self, kind)
        if found is None:
            raise ValueError(
                f"{self.kernel} is CUDA C++, and NVRTC shows no {kind}; ask for source, ptx or sass."
            )
        return found

    def __repr__(self) -> str:
        row = facts(self)
        warps = f", {self.num_warps} warp{'s' * (self.num_warps > 1)}" if self.num_warps else ""
        memory = ", ".join(
            f"{row[what + 's']} {what}{'s' * (row[what + 's'] != 1)}"
            + (f" of up to {row[what + '_bytes']} bytes" if row[what + "s"] else "")
            for what in ("load", "store")
        )
        return (
            f"{self.name} for {self.target}{warps}: {memory} a thread; {self.n_registers} registers, "
            f"{self.shared_bytes} bytes of shared memory, {self.local_bytes} bytes of local memory"
        )

    def _repr_html_(self) -> str:
        return f"<p>{repr(self).replace(self.name, f'<b><code>{self.name}</code></b>', 1)}</p>"


def _tool(name: str, code: bytes, *options: str, bundled: str = "") -> str:
    """Runs a tool on machine code or PTX: the one bundled with Triton, else the toolkit's, which may be
    newer.

    Args:
        name: "nvdisasm", "cuobjdump" or "ptxas".
        code: the machine code or the PTX.
        options: options for the tool.
        bundled: the path of the bundled tool, if Triton has several.
    """
    import triton

    bundled = bundled or getattr(triton.knobs.nvidia, name).path
    message = ""
    with tempfile.NamedTemporaryFile(suffix=".ptx" if name == "ptxas" else ".cubin") as file:
        file.write(code)
        file.flush()
        for path in filter(None, (bundled, device.find_tool(name))):
            done = subprocess.run([path, *options, file.name], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return done.stdout or done.stderr  # ptxas prints its report to stderr
            # The first line has the cause; the last one only reports that the tool failed.
            message = message or (done.stderr.strip().splitlines() or ["no reason given"])[0]
    raise CompileError(f"{name}, which comes with Triton, could not read the kernel: {message}")


def facts(stages: Stages) -> dict[str, Any]:
    """Returns the columns of `summary` that need no disassembler."""
    reading = stages.reading
    widest = lambda found: max((i.n_bytes or 0 for i in found), default=0)  # noqa: E731
    limit = reading.reqntid or reading.maxntid
    return {
        "kernel": stages.name,
        "language": stages.language,
        "target": stages.target,
        "num_warps": stages.num_warps,
        "threads": f"{'exactly' if reading.reqntid else 'up to'} {limit[0] * limit[1] * limit[2]}"
        if limit
        else "any",
        "loads": len(reading.loads),
        "load_bytes": widest(reading.loads),
        "stores": len(reading.stores),
        "store_bytes": widest(reading.stores),
        "predicated": len(reading.predicated),
        "ptx_instructions": len(reading.instructions),
        "registers_declared": reading.n_registers_declared,
    }

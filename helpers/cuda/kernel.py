"""Compiles a single CUDA kernel with NVRTC and makes it callable: `load_kernel`.

This is the quick way to run a kernel that needs no C++ wrapper: after an edit, the new kernel runs a tenth of
a second later. Without a GPU the same source is built for the emulator, as in `load_cuda`.
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers import device, toolkit
from helpers.cuda import extension, nvrtc

# The ctypes of C++ types that are passed by value, and the torch dtypes of pointers.
_VALUES: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "char": ctypes.c_int8,
    "signed char": ctypes.c_int8,
    "int8_t": ctypes.c_int8,
    "unsigned char": ctypes.c_uint8,
    "uint8_t": ctypes.c_uint8,
    "short": ctypes.c_int16,
    "int16_t": ctypes.c_int16,
    "unsigned short": ctypes.c_uint16,
    "uint16_t": ctypes.c_uint16,
    "int": ctypes.c_int32,
    "int32_t": ctypes.c_int32,
    "unsigned": ctypes.c_uint32,
    "unsigned int": ctypes.c_uint32,
    "uint32_t": ctypes.c_uint32,
    "long": ctypes.c_int64,
    "long long": ctypes.c_int64,
    "int64_t": ctypes.c_int64,
    "unsigned long": ctypes.c_uint64,
    "unsigned long long": ctypes.c_uint64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
_POINTER_DTYPES = {
    "float": "float32",
    "double": "float64",
    "__half": "float16",
    "half": "float16",
    "__nv_bfloat16": "bfloat16",
    "int": "int32",
    "int32_t": "int32",
    "int64_t": "int64",
    "long long": "int64",
    "uint8_t": "uint8",
    "unsigned char": "uint8",
    "bool": "bool",
}


@dataclass(frozen=True)
class KernelParameter:
    """A parameter of a kernel: its C++ `type`, such as "const float*", and its `name`."""

    type: str
    name: str

    @property
    def plain(self) -> str:
        """The type without const and `*`."""
        words = [w for w in re.findall(r"\w+", self.type) if w not in ("const", "volatile", "struct")]
        return " ".join(words)

    def value(self, given: Any, where: str, kernel: str) -> Any:
        """Returns the ctypes value of an argument. `where` is the device of the tensors, "cuda" or "cpu"."""
        import torch

        description = f"{kernel}: {self.type} {self.name}"
        if "*" in self.type:
            if isinstance(given, torch.Tensor):
                expected = _POINTER_DTYPES.get(self.plain)
                if given.device.type != where:
                    raise TypeError(
                        f"{description} was given a tensor on {given.device}; this kernel runs on {where} "
                        "tensors."
                    )
                if expected and given.dtype != getattr(torch, expected):
                    raise TypeError(
                        f"{description} was given a {given.dtype} tensor; pass torch.{expected}, or change "
                        "the kernel."
                    )
                return ctypes.c_void_p(given.data_ptr())
            if given is None or type(given) is int:
                return ctypes.c_void_p(given)
            raise TypeError(f"{description} takes a tensor, an address or None; it was given {given!r}.")
        kind = _VALUES[self.plain]
        if kind in (ctypes.c_float, ctypes.c_double):
            if isinstance(given, (int, float)):
                return kind(given)
            raise TypeError(f"{description} takes a number; it was given {_short(given)}.")
        try:
            number = operator.index(given)
        except TypeError:
            raise TypeError(f"{description} takes an integer; it was given {_short(given)}.") from None
        converted = kind(number)
        if converted.value != number:
            raise TypeError(f"{description} was given {number}, which does not fit.")
        return converted


def _short(value: Any) -> str:
    text = repr(value).split("\n")[0]
    return text if len(text) < 60 else f"a {type(value).__name__}"


def parameters(source: str, name: str) -> tuple[KernelParameter, ...]:
    """Returns the parameters of the kernel `name` in a CUDA source.

    Raises:
        ValueError: no such kernel, a template, or a parameter type that can't be passed from Python.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.S)
    kernels = re.findall(
        r"__global__[^;{]*?\b(\w+)\s*\(", re.sub(r"__launch_bounds__\s*\([^)]*\)", " ", text)
    )
    match = re.search(rf"__global__[^;{{]*?\b{re.escape(name)}\s*\(([^)]*)\)", text)
    if match is None:
        known = f"it has {', '.join(dict.fromkeys(kernels))}" if kernels else "it has no __global__ function"
        raise ValueError(f"There is no kernel {name!r} in this source; {known}.")
    if re.search(r"template\s*<[^;{}]*$", text[: match.start()]):
        raise ValueError(f"{name} is a template; write a kernel with fixed types that calls it.")
    found = []
    for one in filter(None, (part.strip() for part in match[1].split(","))):
        declared = re.sub(r"\b__restrict__\b|\b__restrict\b|\b__grid_constant__\b", " ", one).split("=")[0]
        type_and_name = re.fullmatch(r"(.*?)(\w+)", " ".join(declared.split()))
        if type_and_name is None or not type_and_name[1].strip():
            raise ValueError(
                f"{name}: the parameter {one!r} is not of the form `type name`, such as `float* x`."
            )
        parameter = KernelParameter(type_and_name[1].strip(), type_and_name[2])
        if "*" not in parameter.type and parameter.plain not in _VALUES:
            raise ValueError(
                f"{name}: {one!r} cannot be passed from Python; parameters are pointers, integers, float, "
                "double, bool."
            )
        found.append(parameter)
    return tuple(found)


@dataclass(frozen=True)
class LoadedKernel:
    """A callable kernel: `kernel(x, y, n, grid=…, block=…)`.

    Attributes:
        name: its name in the source.
        parameters: its parameters.
        where: the device of its tensors: "cuda", or "cpu" in the emulator.
        seconds: the time to compile and load it.
        source: the CUDA source.
        flags: the options for NVRTC.
    """

    name: str
    parameters: tuple[KernelParameter, ...]
    where: str
    seconds: float
    _launch: Callable = field(repr=False)
    source: str = field(default="", repr=False)
    flags: tuple[str, ...] = field(default=(), repr=False)

    def __call__(
        self,
        *args: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared_bytes: int = 0,
    ) -> None:
        """Launches the kernel on the current stream.

        Args:
            *args: tensors (or addresses) for pointers, numbers for everything else, in the kernel's order.
            grid: the number of blocks, one to three numbers.
            block: threads per block, one to three numbers.
            shared_bytes: dynamic shared memory per block, for `extern __shared__`.

        Raises:
            TypeError: the number of arguments is wrong, or one doesn't fit its parameter. Nothing was
                launched.
            ValueError: no GPU can launch this grid or block.
            RuntimeError: the driver refused the launch.
        """
        if len(args) != len(self.parameters):
            expected = ", ".join(f"{p.type} {p.name}" for p in self.parameters)
            raise TypeError(
                f"{self.name} takes {len(self.parameters)} arguments ({expected}); it was given {len(args)}."
            )
        blocks, threads = _as_three(grid, "grid"), _as_three(block, "block")
        if threads[0] * threads[1] * threads[2] > 1024:
            raise ValueError(f"{self.name}: a block has at most 1,024 threads; {threads} are more.")
        values = [
            p.value(given, self.where, self.name) for p, given in zip(self.parameters, args, strict=True)
        ]
        allowed = [watcher(self, blocks, threads, shared_bytes) for watcher in _watchers]
        if all(allowed):
            self._launch(values, blocks, threads, shared_bytes)


_watchers: list[Callable[[LoadedKernel, tuple, tuple, int], bool]] = []


@contextlib.contextmanager
def watched(watcher: Callable[[LoadedKernel, tuple, tuple, int], bool]) -> Iterator[None]:
    """Calls `watcher(kernel, grid, block, shared_bytes)` before each launch of a `LoadedKernel`; False
    cancels the launch.
    """
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def _as_three(value: int | Sequence[int], what: str) -> tuple[int, int, int]:
    sizes = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(s, int) and s > 0 for s in sizes):
        raise ValueError(f"{what} must be one to three positive integers, not {value!r}.")
    return (*sizes, *(1,) * (3 - len(sizes)))


def load_kernel(source: str, name: str, *, flags: Sequence[str] = (), device: str = "auto") -> LoadedKernel:
    """Compiles one kernel with NVRTC and loads it.

    Args:
        source: CUDA C++ with the kernel; device code only.
        name: the kernel's name. It can be a plain C++ function or `extern "C"`, but not a template.
        flags: options for NVRTC, such as "--use_fast_math". The emulator uses -D and -I.
        device: "cuda", "emulator" or "auto" ("cuda" if torch can use a GPU, else "emulator"). In the emulator
            the same source is built by the C++ compiler and runs on CPU tensors, for correctness, never for
            timing.

    Returns:
        A `LoadedKernel`. Calling it launches the kernel on the current stream.

    Raises:
        BuildError: the compilation failed. The message has the source line.
        ValueError: no such kernel, a template, a parameter that can't be passed from Python, or an unknown
            device.
        RuntimeError: the driver refused the compiled kernel. The message names the versions involved.
        helpers.device.Missing: there is no GPU or no NVRTC, or, for the emulator, no C++ compiler.
    """
    where = extension.resolve_device(device)
    kernel_parameters = parameters(source, name)
    start = time.perf_counter()
    if where == "emulator":
        tensors, launch = "cpu", _emulator_launch(source, name, kernel_parameters, flags)
    else:
        tensors, launch = "cuda", _gpu_launch(source, name, flags)
    return LoadedKernel(
        name, kernel_parameters, tensors, time.perf_counter() - start, launch, source, tuple(flags)
    )


def _gpu_launch(source: str, name: str, flags: Sequence[str]) -> Callable:
    device.require("gpu")
    target = device.gpu_spec().target
    launch = _GpuLaunch(nvrtc.compile_kernel(source, name, target=target, flags=flags), target)
    # Load it now, so that an error of the driver is raised here and not at the first launch.
    launch.function()
    return launch


class _GpuLaunch:
    """A cubin's kernel, loaded once per GPU that it is launched on."""

    def __init__(self, compiled: nvrtc.Compiled, target: str):
        self._compiled, self._target = compiled, target
        self._functions: dict[int, Any] = {}
        self._shared: dict[int, int] = {}

    def function(self) -> Any:
        """The driver's handle of the kernel on torch's current GPU."""
        import torch
        from cuda.bindings import driver

        index = torch.cuda.current_device()
        # A thread that torch did not start has no context yet.
        if not int(_driver(driver.cuCtxGetCurrent(), "the GPU's context")):
            context = _driver(driver.cuDevicePrimaryCtxRetain(index), "the GPU's context")
            _driver(driver.cuCtxSetCurrent(context), "the GPU's context")
        if index not in self._functions:
            loaded = driver.cuModuleLoadData(self._compiled.code)
            if loaded[0].name in _INCOMPATIBLE_CODE:
                known = _driver(driver.cuDriverGetVersion(), "its version")
                here = "sm_{}{}".format(*torch.cuda.get_device_capability(index))
                made_by = self._compiled.nvrtc
                raise RuntimeError(refusal(loaded[0].name, made_by, self._target, here, known))
            module = _driver(loaded, "loading the kernel")
            name = self._compiled.lowered.encode()
            self._functions[index] = _driver(driver.cuModuleGetFunction(module, name), "finding the kernel")
        return self._functions[index]

    def __call__(self, values: list, grid: tuple, block: tuple, shared_bytes: int) -> None:
        import torch
        from cuda.bindings import driver

        function = self.function()
        index = torch.cuda.current_device()
        # Above 48 KiB, a kernel must opt in first.
        if shared_bytes > max(48 << 10, self._shared.get(index, 0)):
            most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _driver(driver.cuFuncSetAttribute(function, most, shared_bytes), f"{shared_bytes:,} shared bytes")
            self._shared[index] = shared_bytes
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        stream = torch.cuda.current_stream().cuda_stream
        result = driver.cuLaunchKernel(
            function, *grid, *block, shared_bytes, stream, ctypes.addressof(pointers), 0
        )
        _driver(result, f"the launch with grid {grid} and block {block}")


# The driver's errors for code that another CUDA version or another GPU would accept.
_INCOMPATIBLE_CODE = (
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "CUDA_ERROR_NO_BINARY_FOR_GPU",
    "CUDA_ERROR_INVALID_IMAGE",
)


def refusal(error: str, made_by: toolkit.Nvrtc, target: str, here: str, driver_cuda: int) -> str:
    """Explains why a driver refused a compiled kernel, and what to do.

    Args:
        error: the driver's name for the error.
        made_by: the NVRTC.
        target: the target of the compilation, such as "sm_90".
        here: what the GPU is.
        driver_cuda: the newest CUDA that the driver supports, as reported by cuDriverGetVersion: 12080 for
            12.8.
    """
    known = (driver_cuda // 1000, driver_cuda % 1000 // 10)
    problem = (
        f"The driver, which knows CUDA up to {toolkit.named(known)}, refused what {made_by} made for "
        f"{target} ({error})."
    )
    if here != target:
        return f"{problem} This GPU is {here}: a kernel runs on the kind of GPU that it was loaded for."
    if made_by.problem:
        return f"{problem} {made_by.problem}"
    if made_by.version > known:
        line = toolkit.install_line(toolkit.named(known))
        return f"{problem} Update the driver, or take its CUDA's NVRTC: {line}"
    return f"{problem} Update the driver."


def _driver(result: tuple, doing: str) -> Any:
    """Returns the value of a driver call, or raises."""
    from cuda.bindings import driver

    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise RuntimeError(f"The driver refused {doing}: {status.name}, {text.decode() if text else ''}.")
    return values[0] if values else None


def _emulator_launch(
    source: str, name: str, kernel_parameters: tuple[KernelParameter, ...], flags: Sequence[str]
) -> Callable:
    """Builds the source and a launcher for the emulator."""
    declarations = [
        f"int64_t a{i}" if "*" in p.type else f"{p.type} a{i}" for i, p in enumerate(kernel_parameters)
    ]
    passed = ", ".join(f"({p.type})a{i}" for i, p in enumerate(kernel_parameters))
    sizes = "int gx, int gy, int gz, int bx, int by, int bz, int64_t shared"
    signature = f"void workbook_launch({', '.join([sizes, *declarations])})"
    body = f"{name}<<<dim3(gx, gy, gz), dim3(bx, by, bz), shared>>>({passed});"
    module = extension.load_cuda(
        f"{name}_emulated",
        f"{source}\n{signature} {{ {body} }}\n",
        ["workbook_launch"],
        cpp_source=f"{signature};\n",
        torch_headers=False,
        flags=flags,
        device="emulator",
    )

    def launch(values: list, grid: tuple, block: tuple, shared_bytes: int) -> None:
        module.workbook_launch(*grid, *block, shared_bytes, *(v.value or 0 for v in values))

    return launch

"""Lab 02's kernels: the launchers that are added to a learner's text, one guarded run, one traced run.

The learner writes only the kernel. The launcher takes addresses and doesn't need PyTorch's headers, so that a
build takes seconds. If a GPU is available the text is built for it; the traced run is always made on the
host.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from helpers import cuda
from helpers.exercises import cuda_text, guarded_run

if TYPE_CHECKING:
    import torch

    from helpers.cuda.emulator import checked
    from helpers.lessons import grid


@dataclass(frozen=True)
class Launcher:
    """The host's side of one exercise.

    Attributes:
        name: of the module, and `<name>_kernel` of the kernel.
        text: the C++ function `<name>_launch`, which takes addresses and integers and last the stream.
        tensors: how many addresses it takes, the output's last.
    """

    name: str
    text: str
    tensors: int

    @property
    def function(self) -> str:
        return f"{self.name}_launch"

    @property
    def declaration(self) -> str:
        return self.text.strip().partition(" {")[0] + ";\n"


DIFFERENCE = Launcher(
    "difference",
    r"""
const char* difference_launch(
    int64_t input, int64_t output, int height, int width, int block_x, int block_y, int64_t stream
) {
    const dim3 block(block_x, block_y);
    const dim3 grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
    difference_kernel<<<grid, block, 0, (cudaStream_t)stream>>>(
        (const float*)input, (float*)output, height, width);
    return cudaGetErrorString(cudaGetLastError());
}
""",
    2,
)
SCALE_ROWS = Launcher(
    "scale_rows",
    r"""
const char* scale_rows_launch(
    int64_t input, int64_t factor, int64_t output, int height, int width, int64_t stream
) {
    const long long n = static_cast<long long>(height) * width;
    scale_rows_kernel<<<dim3((n + 255) / 256), dim3(256), 0, (cudaStream_t)stream>>>(
        (const float*)input, (const float*)factor, (float*)output, height, width);
    return cudaGetErrorString(cudaGetLastError());
}
""",
    3,
)
TRANSPOSE = Launcher(
    "transpose",
    r"""
const char* transpose_launch(int64_t input, int64_t output, int height, int width, int64_t stream) {
    const dim3 block(32, 8), grid((width + 31) / 32, (height + 31) / 32);
    transpose_kernel<<<grid, block, 0, (cudaStream_t)stream>>>(
        (const float*)input, (float*)output, height, width);
    return cudaGetErrorString(cudaGetLastError());
}
""",
    2,
)
CENTER_ROWS = Launcher(
    "center_rows",
    r"""
const char* center_rows_launch(int64_t input, int64_t output, int height, int width, int64_t stream) {
    center_rows_kernel<<<dim3(height), dim3(256), 0, (cudaStream_t)stream>>>(
        (const float*)input, (float*)output, height, width);
    return cudaGetErrorString(cudaGetLastError());
}
""",
    2,
)
_ARRAY = r"float\s+\w+\s*((?:\[\s*\d+\s*\])+)"
_EIGHT = (
    r"blockIdx\s*\.\s*[xy]\s*\*\s*blockDim\s*\.\s*y\b(?!\s*\*)"
    r"|(?<!\* )\bblockDim\s*\.\s*y\s*\*\s*blockIdx\s*\.\s*[xy]\b(?!\s*\*)"
)
LAUNCHERS = {launcher.name: launcher for launcher in (DIFFERENCE, SCALE_ROWS, TRANSPOSE, CENTER_ROWS)}


@dataclass(frozen=True)
class Built:
    """A learner's kernel with its launcher, built for this machine's GPU or, without one, for the host."""

    launcher: Launcher
    text: str
    module: ModuleType

    def on_host(self) -> ModuleType:
        """The same text built for the host; with a GPU, it is built on the first call."""
        return self.module if cuda.info(self.module).emulated else _load(self.launcher, self.text, "emulator")

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The kernel's result in a new tensor, with blocks of 16 × 16 if the launcher takes a block shape."""
        import torch

        height, width = inputs[0].shape
        shape = (width, height) if self.launcher is TRANSPOSE else (height, width)
        out = torch.empty(shape, dtype=torch.float32, device=inputs[0].device)
        block = (16, 16) if self.launcher is DIFFERENCE else ()
        self.launch(*inputs, out, numbers=(height, width, *block))
        return out

    def launch(self, *tensors: torch.Tensor, numbers: tuple[int, ...]) -> None:
        """Launch on the tensors' device, on its current stream.

        Raises:
            RuntimeError: the launch was not accepted.
            helpers.cuda.emulator.checked.EmulatorError: on the host, if the kernel does something that it
            must not do.
        """
        import torch

        on_gpu = tensors[0].is_cuda
        stream = torch.cuda.current_stream().cuda_stream if on_gpu else 0
        module = self.module if on_gpu else self.on_host()
        status = getattr(module, self.launcher.function)(*(t.data_ptr() for t in tensors), *numbers, stream)
        if status != "no error":
            raise RuntimeError(f"the launch was not accepted: {status}")


def kernel(name: str) -> Callable[[Any], Built]:
    """The `prepare` of an exercise: CUDA text -> `Built`.

    Args:
        name: of a launcher, such as "transpose".
    """
    return lambda text: load(name, text)


def as_text(answer: Any) -> str:
    """The answer's CUDA text.

    Raises:
        helpers.cuda.BuildError: it isn't a text.
    """
    if isinstance(answer, str):
        return answer
    raise cuda.BuildError(f"The answer is CUDA text, a string; this one is of type {type(answer).__name__}.")


def load(name: str, text: Any) -> Built:
    """Build a learner's kernel.

    Args:
        name: of a launcher, such as "transpose".
        text: CUDA C++ with `<name>_kernel`.

    Raises:
        helpers.cuda.BuildError: not a text, no such kernel in it, more in it than kernels, or the compiler's
            error.
    """
    launcher, text = LAUNCHERS[name], as_text(text)
    if problem := cuda_text.problem(text):
        raise cuda.BuildError(problem)
    plain = _without_comments(text)
    if "#error" not in plain and not re.search(rf"__global__[^;{{]*\b{name}_kernel\s*\(", plain):
        raise cuda.BuildError(f"The text has no kernel `__global__ void {name}_kernel(…)`.")
    return Built(launcher, text, _load(launcher, text, "auto"))


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def _load(launcher: Launcher, text: str, device: str) -> ModuleType:
    return cuda.load_cuda(
        f"lab02_{launcher.name}",
        text + launcher.text,
        [launcher.function],
        cpp_source=launcher.declaration,
        torch_headers=False,
        device=device,
    )


def run(built: Built, inputs: list, shape: tuple, numbers: list) -> dict:
    """Run once into an output of NaN between guard bands.

    Args:
        built: the kernel.
        inputs: float32 tensors.
        shape: of the output.
        numbers: the launcher's integers.

    Returns:
        "out", "outside": elements written next to it, "changed": whether an input changed, and "tile"
            (`of_tile`).
        Or "trouble", "cause", "argument", "block", "thread", "has_barrier", "function" and "tile" of what the
        host found,
        or "refused": the launch's error.
    """
    found = guarded_run.into_new_memory(
        lambda out: built.launch(*inputs, out, numbers=tuple(numbers)), inputs, shape
    )
    return found | _about(built) if "refused" not in found else found


def _trouble(built: Built, error: checked.EmulatorError) -> dict:
    return guarded_run.trouble(error) | _about(built)


def of_tile(text: str) -> str:
    """What is wrong with the tile in a transpose's text (without comments): "not-shared", "tile-too-small",
    "eight-rows", or "".
    """
    shared = "__shared__" in text
    arrays = re.findall(("__shared__\\s+" if shared else r"") + _ARRAY, text)
    if arrays and not shared:
        return "not-shared"
    for sizes in arrays:
        numbers = [int(n) for n in re.findall(r"\d+", sizes)]
        if len(numbers) > 1 and min(numbers) < 32:
            return "tile-too-small"
    return "eight-rows" if re.search(_EIGHT, text) else ""


def _about(built: Built) -> dict:
    plain = _without_comments(built.text)
    return {
        "has_barrier": "__syncthreads" in plain,
        "function": built.launcher.name,
        "tile": of_tile(plain),
    }


def traced(built: Built, height: int, width: int, numbers: tuple[int, ...] = ()) -> grid.GridTrace:
    """Run the kernel on the host on a (height, width) matrix and record every access.

    Raises:
        helpers.cuda.emulator.checked.EmulatorError, helpers.cuda.BuildError: as in any run and build for the
        host.
    """
    import torch

    from helpers.lessons import grid

    x = torch.rand(height, width)
    out = torch.empty(width, height) if built.launcher is TRANSPOSE else torch.empty(height, width)
    inputs = [x, torch.rand(height)] if built.launcher is SCALE_ROWS else [x]
    return grid.trace(lambda: built.launch(*inputs, out, numbers=(height, width, *numbers)))


def memory_use(run: grid.GridTrace) -> dict[str, tuple[float, float]]:
    """For "input" and "output": sectors per request, and the percentage of the sectors' bytes that were
    requested.
    """
    found = {}
    for argument in ("input", "output"):
        table = run.sectors()
        accesses = table[table["argument"] == argument]
        n = accesses["n_requests"].sum()
        sectors = accesses["sectors_per_request"] * accesses["n_requests"]
        used = float((sectors * accesses["bytes_used_percent"]).sum() / sectors.sum())
        found[argument] = (float(sectors.sum() / n), used)
    return found


def writers(built: Built, height: int, width: int, *numbers: int) -> dict:
    """How many threads at most wrote one element of the output in a traced run, or "trouble" as
    in `count`.
    """
    from helpers.cuda.emulator import checked

    try:
        a = traced(built, height, width, numbers).accesses
    except checked.EmulatorError as error:
        return _trouble(built, error)
    except cuda.BuildError as error:
        return {"trouble": str(error), "cause": "not traced"}
    writes = a[(a["argument"] == "output") & (a["access"] != "read")]
    thread_columns = [f"{of}_{axis}" for of in ("block", "thread") for axis in "xyz"]
    return {
        "writers": int(writes.drop_duplicates(["element", *thread_columns]).groupby("element").size().max())
    }


def count(built: Built, height: int, width: int) -> dict:
    """`memory_use` of a traced run, or "trouble", "cause" and more, as in `run`."""
    from helpers.cuda.emulator import checked

    try:
        return memory_use(traced(built, height, width))
    except checked.EmulatorError as error:
        return _trouble(built, error)
    except cuda.BuildError as error:
        return {"trouble": str(error), "cause": "not traced"}

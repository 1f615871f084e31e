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

    from helpers.lessons import grid


@dataclass(frozen=True)
class Launcher:
    """The host's side of one exercise.

    Attributes:
        name: of the module, and `<name>_kernel` of the kernel.
        grid, block: arguments of `dim3`, C++ expressions of the launcher's integers.
        tensors: the kernel's pointers to float, the output last.
        numbers: the launcher's integers. The kernel gets height and width.
    """

    name: str
    grid: str
    block: str
    tensors: tuple[str, ...] = ("input", "output")
    numbers: tuple[str, ...] = ("height", "width")

    @property
    def function(self) -> str:
        return f"{self.name}_launch"

    @property
    def declaration(self) -> str:
        """The C++ function `<name>_launch`, which takes addresses and integers and last the stream."""
        parameters = [
            *(f"int64_t {name}" for name in self.tensors),
            *(f"int {name}" for name in self.numbers),
        ]
        return f"const char* {self.function}({', '.join(parameters)}, int64_t stream)"

    @property
    def text(self) -> str:
        pointers = ", ".join(f"({'const ' * (name != 'output')}float*){name}" for name in self.tensors)
        return f"""
{self.declaration} {{
    const dim3 grid({self.grid}), block({self.block});
    {self.name}_kernel<<<grid, block, 0, (cudaStream_t)stream>>>({pointers}, height, width);
    return cudaGetErrorString(cudaGetLastError());
}}
"""


DIFFERENCE = Launcher(
    "difference",
    grid="(width + block_x - 1) / block_x, (height + block_y - 1) / block_y",
    block="block_x, block_y",
    numbers=("height", "width", "block_x", "block_y"),
)
SCALE_ROWS = Launcher(
    "scale_rows",
    grid="(static_cast<long long>(height) * width + 255) / 256",
    block="256",
    tensors=("input", "factor", "output"),
)
TRANSPOSE = Launcher("transpose", grid="(width + 31) / 32, (height + 31) / 32", block="32, 8")
CENTER_ROWS = Launcher("center_rows", grid="height", block="256")
_THREAD = [f"{of}_{axis}" for of in ("block", "thread") for axis in "xyz"]
LAUNCHERS = {launcher.name: launcher for launcher in (DIFFERENCE, SCALE_ROWS, TRANSPOSE, CENTER_ROWS)}
_ARRAY = r"float\s+\w+\s*((?:\[\s*\d+\s*\])+)"
_EIGHT = (
    r"blockIdx\s*\.\s*[xy]\s*\*\s*blockDim\s*\.\s*y\b(?!\s*\*)"
    r"|(?<!\* )\bblockDim\s*\.\s*y\s*\*\s*blockIdx\s*\.\s*[xy]\b(?!\s*\*)"
)


@dataclass(frozen=True)
class Built:
    """A learner's kernel with its launcher, built for this machine's GPU or, without one, for the host."""

    launcher: Launcher
    text: str
    module: ModuleType

    def on_host(self) -> ModuleType:
        """The same text built for the host; with a GPU, it is built on the first call."""
        return self.module if cuda.info(self.module).emulated else _load(self.launcher, self.text, "emulator")

    def __call__(self, *inputs: torch.Tensor, block: tuple[int, ...] = ()) -> torch.Tensor:
        """The kernel's result in a new tensor; a block that its launcher takes is 16 × 16 by default."""
        import torch

        height, width = inputs[0].shape
        shape = (width, height) if self.launcher is TRANSPOSE else (height, width)
        out = torch.empty(shape, dtype=torch.float32, device=inputs[0].device)
        block = block or ((16, 16) if self.launcher is DIFFERENCE else ())
        self.launch(*inputs, out, numbers=(height, width, *block))
        return out

    def launch(self, *tensors: torch.Tensor, numbers: tuple[int, ...]) -> None:
        """Launch on the tensors' device, on its current stream.

        Raises:
            RuntimeError: the launch failed.
            helpers.cuda.emulator.checked.EmulatorError: on the host, if the kernel does something that it
            must not do.
        """
        import torch

        on_gpu = tensors[0].is_cuda
        stream = torch.cuda.current_stream().cuda_stream if on_gpu else 0
        module = self.module if on_gpu else self.on_host()
        status = getattr(module, self.launcher.function)(*(t.data_ptr() for t in tensors), *numbers, stream)
        if status != "no error":
            raise RuntimeError(f"the launch failed: {status}")


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
    raise cuda.BuildError(
        f"The answer must be CUDA text, a string, but it is of type {type(answer).__name__}."
    )


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
    plain = without_comments(text)
    if "#error" not in plain and not re.search(rf"__global__[^;{{]*\b{name}_kernel\s*\(", plain):
        raise cuda.BuildError(f"The text has no kernel `__global__ void {name}_kernel(…)`.")
    return Built(launcher, text, _load(launcher, text, "auto"))


def without_comments(text: str) -> str:
    """A C++ text without its comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def _load(launcher: Launcher, text: str, device: str) -> ModuleType:
    return cuda.load_cuda(
        f"lab02_{launcher.name}",
        text + launcher.text,
        [launcher.function],
        cpp_source=f"{launcher.declaration};",
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
        Or "trouble", "cause", "argument", "block", "thread", "has_barrier" and "tile" of what the host found,
        or "refused": the launch's error.
    """

    def launch(out: torch.Tensor) -> None:
        built.launch(*inputs, out, numbers=tuple(numbers))

    found = guarded_run.into_new_memory(launch, inputs, shape)
    return found | _about(built) if "refused" not in found else found


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
    plain = without_comments(built.text)
    return {"has_barrier": "__syncthreads" in plain, "tile": of_tile(plain)}


def traced(built: Built, height: int, width: int, numbers: tuple[int, ...] = ()) -> grid.GridTrace:
    """Run the kernel on the host on a (height, width) matrix and record every access.

    Raises:
        helpers.cuda.emulator.checked.EmulatorError, helpers.cuda.BuildError: as in any run and build for the
        host.
    """
    import torch

    from helpers.lessons import grid

    inputs = [torch.rand(height, width)] + [torch.rand(height)] * (built.launcher is SCALE_ROWS)
    return grid.trace(lambda: built(*inputs, block=numbers))


def memory_use(run: grid.GridTrace) -> dict[str, tuple[float, float]]:
    """For "input" and "output": sectors per request, and the percentage of the sectors' bytes that were
    requested.
    """
    found = {argument: requests(run, argument) for argument in ("input", "output")}
    return {argument: (sectors / n, used) for argument, (n, sectors, used) in found.items()}


def requests(run: grid.GridTrace, *arguments: str) -> tuple[int, float, float]:
    """The warps' requests for these arguments, the sectors that they touch, and the percentage of these
    sectors' bytes that were requested.
    """
    table = run.sectors()
    table = table[table["argument"].isin(arguments)]
    sectors = table["sectors_per_request"] * table["n_requests"]
    used = (sectors * table["bytes_used_percent"]).sum() / sectors.sum()
    return int(table["n_requests"].sum()), float(sectors.sum()), float(used)


def writers(built: Built, height: int, width: int, *numbers: int) -> dict:
    """How many threads at most wrote one element of the output in a traced run, or the "trouble"."""

    def most(run: grid.GridTrace) -> dict:
        a = run.accesses
        writes = a[(a["argument"] == "output") & (a["access"] != "read")]
        writes = writes.drop_duplicates(["element", *_THREAD])
        return {"writers": int(writes.groupby("element").size().max())}

    return _of_trace(most, built, height, width, numbers)


def count(built: Built, height: int, width: int) -> dict:
    """`memory_use` of a traced run, or the "trouble"."""
    return _of_trace(memory_use, built, height, width)


def _of_trace(measure: Callable[[grid.GridTrace], dict], built: Built, *how: Any) -> dict:
    """What is measured on a traced run, or "trouble", "cause" and more, as in `run`."""
    from helpers.cuda.emulator import checked

    try:
        return measure(traced(built, *how))
    except checked.EmulatorError as error:
        return guarded_run.trouble(error) | _about(built)
    except cuda.BuildError as error:
        return {"trouble": str(error), "cause": "not traced"}

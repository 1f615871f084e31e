"""Two Triton kernels that square a tensor: one with one program per row, one with one program per block of a
flat array.

The module also loads the CUDA kernel of lesson 02 (`square.cu`) as a function of a tensor:
`load_square_matrix`.

The Triton kernels are correct for any number of elements (offsets are 64-bit), for empty tensors, and for
every real dtype that Triton can multiply (float64, float32, float16, bfloat16, and the integers, which wrap
around as in PyTorch). They never copy their input implicitly: for a layout that a kernel can't process, the
function raises a `ValueError` that explains what to pass instead.

Set `TRITON_INTERPRET=1` before you import this module to run the kernels in Triton's interpreter, on CPU
tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl

MAX_BLOCK = 1 << 20  # elements: the largest block that Triton allows
MAX_GRID_Y = 65_535  # blocks: the limit of a CUDA grid in y; in x the limit is 2**31 - 1


def _require_dtype(x: torch.Tensor) -> None:
    if x.dtype.is_complex or (x.dtype.is_floating_point and x.element_size() == 1):
        raise ValueError(
            f"x is {x.dtype}, which Triton can't multiply; convert it to a real dtype of at least 16 bits."
        )


def require_rows(x: torch.Tensor, out: torch.Tensor) -> None:
    """Raises a ValueError unless a kernel with one program per row can process `x` and `out`.

    The row stride may be anything (slices and expanded rows are fine as inputs), but the columns of a row
    must be contiguous, a row must fit in one block of `MAX_BLOCK` elements, and `out` must have the shape,
    dtype and device of `x`.
    """
    _require_dtype(x)
    for name, t in (("x", x), ("out", out)):
        if t.ndim != 2 or (t.shape[1] > 1 and t.stride(1) != 1):
            raise ValueError(
                f"{name} has shape {tuple(t.shape)} and strides {t.stride()}, but a program per row needs a "
                "2-D tensor with column stride 1; reshape it or pass a .contiguous() copy."
            )
    if (out.shape, out.dtype, out.device) != (x.shape, x.dtype, x.device):
        raise ValueError(
            f"out is {tuple(out.shape)} {out.dtype} on {out.device}; make it like x, which is "
            f"{tuple(x.shape)} {x.dtype} on {x.device}."
        )
    if x.shape[1] > MAX_BLOCK:
        raise ValueError(
            f"A row of {x.shape[1]:,} columns does not fit one block of {MAX_BLOCK:,} elements; use "
            "square_flat."
        )


def require_flat(x: torch.Tensor) -> None:
    """Raises a ValueError unless `x` is contiguous and has a real dtype."""
    _require_dtype(x)
    if not x.is_contiguous():
        raise ValueError(
            f"x has shape {tuple(x.shape)} and strides {x.stride()}, but a flat kernel needs it contiguous; "
            "pass x.contiguous()."
        )


# [kernel:square_rows_kernel]
@triton.jit
def square_rows_kernel(
    output_ptr, input_ptr, input_row_stride, output_row_stride, n_cols, BLOCK_SIZE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)  # 64 bits: row * stride can exceed 2**31
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(input_ptr + row * input_row_stride + cols, mask=mask)
    tl.store(output_ptr + row * output_row_stride + cols, x * x, mask=mask)


# [/kernel:square_rows_kernel]


# [kernel:square_rows]
def warps_for(block_size: int) -> int:
    """Returns the warps per program: 16 elements per thread, but at least 4 and at most 16 warps."""
    return max(4, min(16, block_size // 512))


def square_rows(
    x: torch.Tensor, *, num_warps: int | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Squares a 2-D tensor, one program per row. Rows may have any stride; columns must be contiguous."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    require_rows(x, out)
    n_rows, n_cols = x.shape
    block_size = triton.next_power_of_2(n_cols)
    if x.numel():
        square_rows_kernel[(n_rows,)](
            out, x, x.stride(0), out.stride(0), n_cols,
            BLOCK_SIZE=block_size, num_warps=num_warps or warps_for(block_size),
        )  # fmt: skip
    return out


# [/kernel:square_rows]


# [kernel:square_flat_kernel]
@triton.jit
def square_flat_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x * x, mask=mask)


# [/kernel:square_flat_kernel]


# [kernel:square_flat]
def square_flat(x: torch.Tensor, *, block_size: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """Squares a contiguous tensor of any shape, one program per `block_size` elements."""
    require_flat(x)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_elements = x.numel()
    if n_elements:
        grid = (triton.cdiv(n_elements, block_size),)
        square_flat_kernel[grid](x, y, n_elements, BLOCK_SIZE=block_size, num_warps=num_warps)
    return y


# [/kernel:square_flat]


_LAUNCH = r"""
const char* launch(int64_t input, int64_t output, int height, int width, int bx, int by, int64_t stream) {
    const dim3 block(bx, by), grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
    square_matrix_kernel<<<grid, block, 0, reinterpret_cast<cudaStream_t>(stream)>>>(
        reinterpret_cast<const float*>(input), reinterpret_cast<float*>(output), height, width);
    return cudaGetErrorString(cudaGetLastError());
}
"""


def require_grid(n_rows: int, n_cols: int, block: tuple[int, int]) -> None:
    """Raises a ValueError unless a CUDA grid of `block` (columns, rows) can cover the matrix."""
    if min(block) < 1:
        raise ValueError(
            f"A block needs at least one thread in x and in y; this one is {block[0]} × {block[1]}."
        )
    blocks_y = -(-n_rows // block[1])
    if blocks_y > MAX_GRID_Y:
        raise ValueError(
            f"{n_rows:,} rows in blocks of {block[1]} need {blocks_y:,} blocks in y, but a grid has at most "
            f"{MAX_GRID_Y:,} there; use taller blocks, fewer rows at a time, or square_flat."
        )
    if n_cols > 2**31 - block[0]:  # the kernel computes column numbers as int, even past the end of the row
        raise ValueError(
            f"A row of {n_cols:,} columns is too long, because the kernel computes column "
            "numbers as 32-bit int; use square_flat."
        )


def square_matrix_source() -> str:
    """Returns the CUDA C++ source of the kernel in lesson 02, exactly as its cell shows it."""
    text = Path(__file__).with_name("square.cu").read_text()
    return text.split("// [kernel:square_matrix]\n")[1].split("// [/kernel:square_matrix]")[0]


def load_square_matrix() -> Callable[..., torch.Tensor]:
    """Builds the CUDA kernel of lesson 02 and returns it as `square_matrix(x, block=(16, 16))`.

    The launcher takes addresses instead of tensors, so it's built without PyTorch's headers in a few seconds.
    `x` must be a contiguous 2-D float32 tensor on the GPU, and `block` is the number of threads per block in
    x (columns) and y (rows). The function raises a ValueError for arguments that it doesn't support, and a
    RuntimeError with CUDA's message if the launch fails.

    Raises:
        helpers.device.Missing: There is no GPU, nvcc, C++ compiler or ninja.
    """
    from helpers import cuda

    source, declaration = square_matrix_source() + _LAUNCH, _LAUNCH.split("{")[0].strip() + ";"
    module = cuda.load_cuda("square_curve", source, ["launch"], cpp_source=declaration, torch_headers=False)

    def square_matrix(x: torch.Tensor, block: tuple[int, int] = (16, 16)) -> torch.Tensor:
        if x.ndim != 2 or x.dtype != torch.float32 or not x.is_cuda or not x.is_contiguous():
            raise ValueError(
                f"square_matrix takes a contiguous 2-D float32 tensor on the GPU; x is {tuple(x.shape)} "
                f"{x.dtype} "
                f"on {x.device} with strides {x.stride()}."
            )
        require_grid(*x.shape, block)
        y = torch.empty_like(x)
        if x.numel():
            with torch.cuda.device_of(x):  # x may not be on the current GPU
                stream = torch.cuda.current_stream().cuda_stream
                status = module.launch(x.data_ptr(), y.data_ptr(), *x.shape, *block, stream)
            if status != "no error":
                raise RuntimeError(
                    f"square_matrix, {tuple(x.shape)} in blocks of {block[0]} × {block[1]}: CUDA reports "
                    f"{status!r}."
                )
        return y

    return square_matrix

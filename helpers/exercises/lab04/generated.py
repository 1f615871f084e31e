"""The code that torch.compile generates for torch.square, for any shape; for lab 04's `output-code`.

It is the text recorded on a GPU for (1823, 781), with the numbers of another shape filled in. The second
record, for (4096, 12672), shows what else depends on the shape, and a test compares the two: a size that is a
multiple of 4096, the largest XBLOCK, needs no mask, and a multiple of 16 is noted in `configs`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from pathlib import Path
from typing import Any

from helpers import atomic, device, ptx, records

_RECORD = Path(records.__file__).parent / "h100" / "triton" / "output-code-781-1823.py"
_LARGEST_XBLOCK = 4096
_POINTERS_16 = "(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]"


def code_for(n_rows: int, n_cols: int) -> str:
    """The text that torch.compile generates for torch.square on a contiguous float32 tensor of this shape."""
    n = n_rows * n_cols
    text = _RECORD.read_text()
    text = text.replace("1423763", str(n)).replace("17085156", str(12 * n))
    text = text.replace("2097152", str(1 << (n - 1).bit_length()))
    text = re.sub(r"\b1823, 781\b", f"{n_rows}, {n_cols}", text)
    text = text.replace("(781, 1)", f"({n_cols}, 1)").replace("[781, 1]", f"[{n_cols}, 1]")
    if n % 16 == 0:
        text = text.replace(_POINTERS_16, _POINTERS_16 + ", (2,): [['tt.divisibility', 16]]")
    if n % _LARGEST_XBLOCK == 0:
        text = text.replace("xmask = xindex < xnumel", "xmask = tl.full([XBLOCK], True, tl.int1)[:]")
        text = text.replace("(x0), xmask)", "(x0), None)").replace("tmp1, xmask)", "tmp1, None)")
    return text


def kernel_text(code: str) -> str:
    """The Triton function in the generated text, without the decorator that chooses XBLOCK at launch."""
    return re.search(r"^@triton\.jit\n(?:.+\n)+?(?=''')", code, re.MULTILINE)[0]


def kernel_of(code: str) -> Any:
    """The generated kernel as a `@triton.jit` function, to compile or to launch."""
    text = f"import triton\nimport triton.language as tl\n\n\n{kernel_text(code)}"
    name = f"generated_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path = device.cache_folder() / "generated" / f"{name}.py"
    with atomic.atomic_write(path) as file:  # two processes may write the same kernel
        file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.triton_poi_fused_pow_0


def generated_stages(code: str, xblock: int, target: str = "sm_90") -> ptx.Stages:
    """The generated kernel, compiled with 4 warps and the hints that torch.compile noted for it."""
    noted = re.search(r"'configs': \[\{(.*?)\}\]", code)[1]
    names = ("in_ptr0", "out_ptr0", "xnumel")
    return ptx.stages(
        kernel_of(code),
        signature={"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32"},
        constexprs={"XBLOCK": xblock},
        target=target,
        num_warps=4,
        divisible_by_16=[
            name for i, name in enumerate(names) if f"({i},): [['tt.divisibility', 16]]" in noted
        ],
    )


def rows_stages(n_cols: int, target: str = "sm_90", num_warps: int = 4) -> ptx.Stages:
    """`square_rows` of lesson 03, as a launch on contiguous rows of `n_cols` floats compiles it."""
    from helpers.kernels.square import square_rows_kernel

    pointers, integers = ["output_ptr", "input_ptr"], ["input_row_stride", "output_row_stride", "n_cols"]
    return ptx.stages(
        square_rows_kernel,
        signature=dict.fromkeys(pointers, "*fp32") | dict.fromkeys(integers, "i32"),
        constexprs={"BLOCK_SIZE": 1 << (n_cols - 1).bit_length()},
        target=target,
        num_warps=num_warps,
        divisible_by_16=[*pointers, *(integers if n_cols % 16 == 0 else [])],
    )


def widest(stages: ptx.Stages) -> int:
    """The bytes that a kernel's widest load moves per thread."""
    return max(load.n_bytes for load in stages.reading.loads)

"""Compiles and runs the learner's kernel of lab 04's `wide-loads`, which is built from its text.

Neither the PTX nor the results are enough to judge it: when Triton compiles a hint such as
`tl.max_constancy`, it believes the hint, but its interpreter ignores it. So the kernel is compiled for an
unknown size and run between guard bands, and every hint is compared with the actual values.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from helpers.exercises import triton_text

SIGNATURE = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n_elements": "i32"}
_GUARD = 4096  # elements before and after: more than the last program's block can reach past the end
_CLAIMS = {
    "tt.divisibility": "multiple_of",
    "tt.contiguity": "max_contiguous",
    "tt.constancy": "max_constancy",
}


def build(text: str) -> Any:
    """Build the learner's text and return its kernel.

    Raises:
        NoKernel, NotAlone: as `triton_text.build`; NoKernel also if the kernel has other arguments.
    """
    kernel = triton_text.build(text)
    arguments = list(inspect.signature(kernel.fn).parameters)
    if arguments != [*SIGNATURE, "BLOCK_SIZE"]:
        raise triton_text.NoKernel(f"a kernel of {', '.join(arguments)}")
    return kernel


def compiled(
    kernel: Any, block_size: int, num_warps: int, target: str, n: int | None = None
) -> dict[str, str]:
    """The kernel's PTX, for pointers that are multiples of 16 bytes and a size that may be anything.

    If `n` is given, it is a constant size, so the PTX has no branches that this size never takes. The result
    is empty if the kernel can't be compiled like this, for example because it calls
    `n_elements.to(tl.int64)`, which a constant doesn't have.
    """
    from helpers import ptx

    constant = {} if n is None else {"n_elements": n}
    try:
        made = ptx.stages(
            kernel,
            signature={name: kind for name, kind in SIGNATURE.items() if name not in constant},
            constexprs={"BLOCK_SIZE": block_size} | constant,
            target=target,
            num_warps=num_warps,
            divisible_by_16=("x_ptr", "y_ptr"),
        )
    except ptx.CompileError:
        if constant:
            return {}
        raise
    return {"ptx": made.ptx}


def run(kernel: Any, n: int, block_size: int, num_warps: int, seed: int) -> dict[str, Any]:
    """Square n random floats with the kernel: on the CPU, with its hints checked, and on the GPU if one is
    available.
    """
    from helpers import device, ptx

    with _hints_watched() as false_hints:
        facts = _square(ptx.interpreted(kernel), n, block_size, num_warps, seed, "cpu")
    facts["false_hint"] = next(iter(false_hints), "")
    wrong = facts["false_hint"] or facts["wrong"] or facts["outside"]
    if wrong or not device.has_gpu() or not hasattr(kernel, "cache_key"):
        return facts
    return {**_square(kernel, n, block_size, num_warps, seed, "cuda"), "false_hint": ""}


def far(kernel: Any, n: int, block_size: int, num_warps: int) -> dict[str, Any]:
    """Where the last two programs of a launch over n elements read and write, without allocating that much
    memory.

    The programs run in Triton's interpreter with their real numbers. The addresses of their loads and stores
    are recorded, but not accessed.

    Returns:
        "loads" and "stores": for each of the two programs its number, how many of its own elements it leaves
            out, and the first element that isn't its own, or None.
    """
    import torch

    from helpers import ptx

    x, y = torch.zeros(16), torch.zeros(16)
    last = -(-n // block_size) - 1
    found: dict[str, Any] = {"loads": [], "stores": []}
    for program in (last - 1, last):
        with _record_addresses(program, last + 1) as addresses:
            ptx.interpreted(kernel)[(1,)](x, y, n, BLOCK_SIZE=block_size, num_warps=num_warps)
        own_elements = set(range(program * block_size, min((program + 1) * block_size, n)))
        for what, tensor in (("loads", x), ("stores", y)):
            elements = {(address - tensor.data_ptr()) // 4 for address in addresses[what]}
            other = min(elements - own_elements, default=None)
            found[what].append((program, len(own_elements - elements), other))
    return found


@contextlib.contextmanager
def _record_addresses(program: int, n_programs: int) -> Iterator[dict[str, list[int]]]:
    """Let Triton's interpreter run one program of many, and record the addresses of its loads and stores."""
    import numpy as np
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    addresses: dict[str, list[int]] = {"loads": [], "stores": []}

    def note(what: str, pointers: Any, mask: Any) -> None:
        active = np.broadcast_to(mask.data, pointers.data.shape).astype(bool)
        addresses[what] += pointers.data[active].astype(np.int64).tolist()

    def load(pointers: Any, mask: Any, other: Any, *how: Any) -> Any:
        note("loads", pointers, mask)
        values = np.zeros(pointers.data.shape, dtype=np.float32)
        return interpreter.TensorHandle(values, pointers.get_element_ty())

    def store(pointers: Any, value: Any, mask: Any, *how: Any) -> None:
        note("stores", pointers, mask)

    def place(*_: int) -> None:
        builder.grid_dim, builder.grid_idx = (n_programs, 1, 1), (program, 0, 0)

    # Attributes of the builder object take precedence over those of its class.
    for name, instead in {
        "create_masked_load": load,
        "create_masked_store": store,
        "set_grid_idx": place,
    }.items():
        setattr(builder, name, instead)
    try:
        yield addresses
    finally:
        for name in ("create_masked_load", "create_masked_store", "set_grid_idx"):
            delattr(builder, name)


def _square(kernel: Any, n: int, block_size: int, num_warps: int, seed: int, device: str) -> dict[str, Any]:
    """One launch between guard bands: NaN around the input, and around the output a value that no
    square has.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(n, generator=generator).to(device)
    memory = torch.full((n + 2 * _GUARD,), float("nan"), device=device)
    memory[_GUARD : _GUARD + n] = values
    result = torch.full_like(memory, -1.0)
    x, y = memory[_GUARD : _GUARD + n], result[_GUARD : _GUARD + n]
    n_programs = -(-n // block_size)
    kernel[(n_programs,)](x, y, n, BLOCK_SIZE=block_size, num_warps=num_warps)
    wrong = (y != values * values).nonzero().flatten().tolist()
    band = torch.cat([result[:_GUARD], result[_GUARD + n :]])
    return {
        "wrong": len(wrong),
        "first_wrong": wrong[:3],
        "got": [y[i].item() for i in wrong[:3]],
        "want": [(values[i] ** 2).item() for i in wrong[:3]],
        "unwritten": int((y == -1.0).sum()),
        "outside": int((band != -1.0).sum()),
        "input_changed": not torch.equal(x, values),
        "where": "on the GPU" if device == "cuda" else "in the interpreter",
    }


@contextlib.contextmanager
def _hints_watched() -> Iterator[list[str]]:
    """Compare each hint with its values while Triton's interpreter runs a kernel; yields the hints that are
    false.
    """
    from triton.runtime import interpreter

    handle = interpreter.TensorHandle
    original = handle.set_attr
    false: list[str] = []

    def set_attr(self: Any, key: str, value: Any) -> None:
        if key in _CLAIMS and not _holds(key, self, value):
            false.append(f"tl.{_CLAIMS[key]}(…, {value[0] if len(value) == 1 else list(value)})")
        original(self, key, value)

    handle.set_attr = set_attr
    try:
        yield false
    finally:
        handle.set_attr = original


def _holds(claim: str, handle: Any, groups: list[int]) -> bool:
    """Whether a value of the interpreter has groups along each axis: equal values, neighbors, or
    multiples.
    """
    import numpy as np

    data = np.asarray(handle.data)
    pointee = getattr(handle.dtype, "element_ty", None)
    neighbor = 1 if pointee is None else pointee.primitive_bitwidth // 8  # pointers count bytes
    if data.dtype == bool:
        data = data.astype(np.int8)
    data = np.atleast_1d(data).astype(np.int64)
    for axis, group in enumerate(groups):
        lines = np.moveaxis(data, axis, -1)
        if claim == "tt.divisibility":
            if (lines[..., 0] % group).any():
                return False
            continue
        width = min(int(group), lines.shape[-1])
        pieces = lines[..., : lines.shape[-1] // width * width].reshape(*lines.shape[:-1], -1, width)
        step = neighbor if claim == "tt.contiguity" else 0
        if (np.diff(pieces, axis=-1) != step).any():
            return False
    return True

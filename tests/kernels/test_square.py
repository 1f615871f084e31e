"""helpers.kernels.square, in Triton's interpreter and, where there is a GPU, compiled.

Whether a kernel is interpreted is decided when its module is imported, so each way runs in a process of its
own: this file is also the script that the process runs. It prints one JSON object, name of the case to
"right" or what went wrong.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import kernel_cases
import pytest

DTYPES = ("float64", "float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
# (whole shape, the part of it that is squared): rows further apart than they are long, one row, expanded rows
VIEWS = {
    "slice": ((6, 1000), (slice(1, 5), slice(100, 881))),
    "every second row": ((9, 33), (slice(None, None, 2), slice(None))),
    "one column": ((7, 5), (slice(None), slice(3, 4))),
    "no row": ((7, 5), (slice(0, 0), slice(None))),
}
REFUSED = {
    "rows: transposed": ("square_rows", "transposed", "column stride 1"),
    "rows: 1-D": ("square_rows", "1-D", "2-D"),
    "rows: too wide": ("square_rows", "too wide", "use square_flat"),
    "rows: complex": ("square_rows", "complex", "convert it to a real dtype"),
    "rows: float8": ("square_rows", "float8", "convert it to a real dtype"),
    "flat: transposed": ("square_flat", "transposed", "pass x.contiguous()"),
    "flat: complex": ("square_flat", "complex", "convert it to a real dtype"),
    "rows: out of another shape": ("square_rows", "out", "make it like x"),
}


def run_cases(where: str, seed: int) -> dict[str, str]:
    """Every case on one device; called in a process of its own."""
    import torch

    from helpers import check
    from helpers.kernels import square

    random.seed(seed)
    torch.manual_seed(seed)
    functions = {"square_rows": square.square_rows, "square_flat": square.square_flat}
    results: dict[str, str] = {}

    def case(name, run):
        try:
            results[name] = run() or "right"
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"

    def agrees(f, **how):
        check.assert_matches(f, torch.square, device=where, **how)

    def equal(got, expected):
        return "" if torch.equal(got, expected) else f"differs in {int((got != expected).sum())} elements"

    for name, f in functions.items():
        case(f"{name}: awkward shapes", lambda f=f: agrees(f, block_size=1024))
        case(f"{name}: the lecture's shape", lambda f=f: agrees(f, shapes=[(1823, 781)]))
        for dtype in DTYPES:
            given = getattr(torch, dtype)
            case(
                f"{name}: {dtype}",
                lambda f=f, given=given: agrees(f, shapes=[(3, 781), (0, 5), (1, 1)], dtype=given),
            )
    for name, (shape, part) in VIEWS.items():
        x = torch.randn(shape, device=where)[part]
        case(f"square_rows: {name}", lambda x=x: equal(square.square_rows(x), x * x))
    x = torch.randn(1, 9, device=where).expand(4, 9)
    case("square_rows: expanded rows", lambda: equal(square.square_rows(x), x * x))

    def leaves_the_rest_alone():
        whole = torch.full((4, 20), -1.0, device=where)
        source = torch.randn(4, 11, device=where)
        back = square.square_rows(source, out=whole[:, 3:14])
        untouched = (whole[:, :3] == -1).all() and (whole[:, 14:] == -1).all()
        return equal(back, source * source) or ("" if untouched else "wrote outside out")

    case("square_rows: out is a slice of something wider", leaves_the_rest_alone)
    in_place = torch.arange(12.0, device=where).reshape(3, 4)
    case(
        "square_rows: in place",
        lambda: equal(square.square_rows(in_place.clone(), out=in_place), in_place**1),
    )
    for warps in (1, 2, 8, 32):
        case(
            f"square_rows: {warps} warps",
            lambda w=warps: agrees(lambda x: square.square_rows(x, num_warps=w)),
        )
    for block in (1, 32, 4096):
        case(
            f"square_flat: blocks of {block}",
            lambda b=block: agrees(
                lambda x: square.square_flat(x, block_size=b), shapes=[(1,), (33,), (4097,)]
            ),
        )

    def far_rows():
        """Offsets past 2**31 with a stride that fits 32 bits: only three short rows of the memory are
        touched.
        """
        stride = 2**30 + 8
        memory = torch.empty(2 * stride + 16, dtype=torch.int8, device=where)
        x = memory.as_strided((3, 5), (stride, 1))
        x.copy_(torch.arange(15, device=where).reshape(3, 5) % 11)
        return equal(square.square_rows(x), x * x)

    case("square_rows: offsets past 2**31", far_rows)
    if where == "cuda":

        def long_array():
            x = torch.ones(2**31 + 1000, dtype=torch.int8, device=where)
            x[-1000:] = 3
            y = square.square_flat(x)
            return "" if bool((y[-1000:] == 9).all() and (y[:1000] == 1).all()) else "wrong past 2**31"

        case("square_flat: offsets past 2**31", long_array)

    def fixed_block(x):
        y = torch.empty_like(x)
        strides = (x.stride(0), y.stride(0)) if x.numel() else (1, 1)
        if x.numel():
            square.square_rows_kernel[(x.shape[0],)](y, x, *strides, x.shape[1], BLOCK_SIZE=1024)
        return y

    for attempt in range(3):  # the stale answer of an earlier attempt must not help a later one
        case(
            f"BLOCK_SIZE 1024 on 4096 columns, attempt {attempt}",
            lambda: agrees(fixed_block, shapes=[(4, 4096)]),
        )

    bad = {
        "transposed": torch.randn(9, 4, device=where).T,
        "1-D": torch.randn(9, device=where),
        "too wide": torch.zeros(1, (1 << 20) + 1, device=where),
        "complex": torch.zeros(2, 2, dtype=torch.complex64, device=where),
        "float8": torch.zeros(2, 2, device=where).to(torch.float8_e4m3fn),
    }
    for name, (function, which, _) in REFUSED.items():
        if which == "out":
            case(
                name,
                lambda: square.square_rows(
                    torch.ones(2, 3, device=where), out=torch.ones(3, 2, device=where)
                ),
            )
        else:
            case(name, lambda f=functions[function], x=bad[which]: f(x))
    return results


@pytest.fixture(scope="module", params=kernel_cases.ways())
def results(request) -> dict[str, str]:
    return {"way": request.param, **kernel_cases.results_of(__file__, request.param)}


@pytest.mark.seeded
def test_every_valid_case_is_right(results):
    wrong = {
        name: result
        for name, result in results.items()
        if name != "way" and name not in REFUSED and not name.startswith("BLOCK_SIZE") and result != "right"
    }
    # Triton's interpreter multiplies bfloat16 as integers: lesson 03 shows it.
    if results["way"] == "interpreted":
        assert {name for name in wrong if "bfloat16" in name} == {
            f"{f}: bfloat16" for f in ("square_rows", "square_flat")
        }
        wrong = {name: result for name, result in wrong.items() if "bfloat16" not in name}
    assert not wrong
    assert len(results) > 40


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_inputs_are_refused(results, name):
    message = results[name]
    assert message.startswith("ValueError: ") and REFUSED[name][2] in message and "\n" not in message


def test_a_fixed_block_on_wider_rows_never_passes(results):
    for attempt in range(3):
        message = results[f"BLOCK_SIZE 1024 on 4096 columns, attempt {attempt}"]
        assert message.startswith("Mismatch") and "writes only the first 1,024 of 4,096 columns" in message


def test_the_marked_blocks_stand_alone():
    """Each block that a lesson shows is whole Python, with its kernel's or function's name."""
    from helpers.kernels import source

    blocks = source.read_kernels(Path(__file__).parents[2] / "helpers" / "kernels")
    for name in ("square_rows_kernel", "square_rows", "square_flat_kernel", "square_flat"):
        suffix, text = blocks[name]
        compile(text, name, "exec")
        assert suffix == ".py" and f"def {name}(" in text


def test_a_grid_that_cuda_cannot_launch_is_refused():
    from helpers.kernels import square

    for n_rows, n_cols, block in [(65_535, 5, (256, 1)), (65_535 * 16, 5, (16, 16)), (0, 0, (16, 16))]:
        square.require_grid(n_rows, n_cols, block)
    for n_rows, n_cols, block, words in [
        (65_536, 5, (256, 1), "65,536 blocks in y, but a grid has at most 65,535"),
        (65_535 * 16 + 1, 5, (16, 16), "use taller blocks"),
        (1, 2**31, (16, 16), "too long"),
        (1, 5, (0, 16), "at least one thread"),
    ]:
        with pytest.raises(ValueError, match=words) as refusal:
            square.require_grid(n_rows, n_cols, block)
        assert "\n" not in str(refusal.value)


def test_the_cuda_launcher_returns_the_launch_error():
    """The launcher of `load_square_matrix`, on the host: right, and its error is not lost."""
    import torch

    from helpers import cuda
    from helpers.kernels import square

    text = square.square_matrix_source() + square._LAUNCH
    launch = cuda.load_cuda("square_said", text, ["launch"], torch_headers=False, device="emulator").launch
    x = torch.randn(5, 37)
    y = torch.full_like(x, float("nan"))
    assert launch(x.data_ptr(), y.data_ptr(), 5, 37, 16, 4, 0) == "no error" and torch.equal(y, x * x)
    for height, block in [(5, (64, 32)), (65_536, (256, 1))]:  # too many threads; too many blocks in y
        assert launch(x.data_ptr(), y.data_ptr(), height, 37, *block, 0) == "invalid configuration argument"


@pytest.mark.gpu
def test_square_matrix_on_a_gpu_is_right_or_refuses():
    import torch

    from helpers import check
    from helpers.kernels import square

    square_matrix = square.load_square_matrix()
    check.assert_matches(square_matrix, torch.square, shapes=[(0, 5), (1, 1), (257, 1025)])
    with pytest.raises(ValueError, match="65,536 blocks in y"):
        square_matrix(torch.ones(65_536, 1, device="cuda"), (256, 1))
    with pytest.raises(RuntimeError, match="'invalid"):
        square_matrix(torch.ones(5, 5, device="cuda"), (64, 32))


if __name__ == "__main__":
    print(json.dumps(run_cases(sys.argv[1], int(sys.argv[2]))))

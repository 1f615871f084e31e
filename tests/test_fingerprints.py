"""A kernel's hash: independent of comments, docstrings, layout and module paths, and of nothing else."""

from __future__ import annotations

import linecache

import pytest

from helpers import records

KERNEL = """
def square(x_ptr, n):
    from helpers.kernels.square import SIZE
    y = 2 * n
    return f"{y} elements of {x_ptr}"
"""
SAME_KERNEL = """
# what this is for
def square(
    x_ptr, n,
):
    '''Squares.'''
    from workbook.elsewhere.square import SIZE  # moved

    y = (2 *
         n)
    return f"{y} elements " f"of {x_ptr}"
"""
CUDA = '#define N 4\n__global__ void square(float* x) { x[0] = a+ +b; puts("a // b"); }'
SAME_CUDA = """// squares
#define N   4   // four
__global__ void square(float *x)
{
    /* one */ x[ 0 ] = a + +b;
    puts("a // b");
}
"""


@pytest.mark.parametrize(("one", "other"), [(KERNEL, SAME_KERNEL), (CUDA, SAME_CUDA)], ids=["python", "cuda"])
def test_comments_docstrings_layout_and_module_paths_do_not_count(one, other):
    assert records.fingerprint(one) == records.fingerprint(other)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (KERNEL, "2 * n", "3 * n"),
        (KERNEL, "elements of", "elements  of"),
        (KERNEL, "import SIZE", "import SIZES"),
        (KERNEL, "kernels.square import", "kernels.cube import"),
        (KERNEL, "(x_ptr, n)", "(n, x_ptr)"),
        (CUDA, "x[0]", "x[1]"),
        (CUDA, "a+ +b", "a++b"),
        (CUDA, "a // b", "a //b"),
        (CUDA, "N 4", "N 8"),
        (CUDA, "N 4\n", "N 4 "),
    ],
)
def test_what_a_kernel_does_counts(text, old, new):
    assert old in text
    assert records.fingerprint(text)[1] != records.fingerprint(text.replace(old, new))[1]


def test_a_function_and_its_text_have_the_same_hash():
    text = "def double(x):\n    return 2 * x\n"
    namespace: dict = {}
    exec(compile(text, "<double>", "exec"), namespace)
    linecache.cache["<double>"] = (len(text), None, text.splitlines(keepends=True), "<double>")
    assert records.fingerprint(namespace["double"])[1] == records.fingerprint(text)[1]

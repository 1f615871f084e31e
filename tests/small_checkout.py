"""The kernels, badge and cells of the small checkout that `workbook/conftest.py` creates."""

from __future__ import annotations

import nbformat

KERNELS = """\
import torch

# [kernel:double_it]
def double_it(x):
    return x + x
# [/kernel:double_it]
"""
CUDA = """\
// [kernel:triple_it]
__global__ void triple_it(float* x) {
    x[0] *= 3;
}
// [/kernel:triple_it]
"""
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({})"
GOOD_BADGE = BADGE.format(
    "https://colab.research.google.com/github/ada/kernels/blob/main/notebooks/01_x.ipynb"
)


def code(
    source: str, name: str, *tags: str, outputs: tuple = (), count: int | None = None
) -> nbformat.NotebookNode:
    cell = nbformat.v4.new_code_cell(source, id=name, outputs=list(outputs), execution_count=count)
    if tags:
        cell.metadata["tags"] = list(tags)
    return cell

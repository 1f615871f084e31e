"""What the lessons' prose says of a named GPU is what that GPU's record says."""

import re

import nbformat
import pytest
from commands import LESSONS
from prose_figures import PROSE

GPUS = re.compile(r"\b(?:[AHBLV]\d{2,3}s?|T4)\b")
# A figure with its unit. Sizes, counts and versions are no measurements.
FIGURE = re.compile(r"\d[\d,.]*(?:\s?(?:µs|ns|ms|s|TB/s|GB/s|TFLOP/s|%|MHz)(?![\w/])|\s?×(?!\s?\d))")


def prose(stem: str) -> str:
    path = next(path for path in LESSONS if path.stem == stem)
    return "\n\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")


@pytest.mark.parametrize("figure", PROSE, ids=lambda f: f"{f.notebook} {f.text[:40]}")
def test_a_figure_of_a_named_gpu_agrees_with_its_record(figure):
    assert figure.stated() in prose(figure.notebook)


@pytest.mark.parametrize("stem", [path.stem for path in LESSONS])
def test_no_figure_of_a_named_gpu_is_without_a_record(stem):
    text = prose(stem)
    for figure in PROSE:
        if figure.notebook == stem:
            text = text.replace(figure.stated(), "")
    sentences = re.split(r"(?<=[.:?|])\s+|\n\n", text)
    loose = [s for s in sentences if GPUS.search(s) and FIGURE.search(s)]
    assert not loose, "no entry in tests/prose_figures.py holds the figures of: " + " // ".join(loose)

"""helpers.cuda.highlight: CUDA in colours, in a notebook's output and inside Python."""

from __future__ import annotations

import html
import re

import nbformat
import pytest
from commands import LESSONS
from pygments.token import Comment, Keyword, Name, String

from helpers.cuda import highlight, show
from helpers.cuda.text import is_cuda

CUDA = """\
#include <cuda_fp16.h>
template <typename T>
__global__ void square(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  // mine?
    if (i < n && i >= 0) y[i] = x[i] * 2.0f;
}"""
PTX = ".version 8.7\n.visible .entry square() {\n    ld.global.f32 %f1, [%rd1];  // four bytes\n}"
TRITON = "@triton.jit\ndef square(x_ptr):\n    tl.store(x_ptr, tl.load(x_ptr) * 2)  # in place"


def seen(shown: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", shown))


@pytest.mark.parametrize("text", [CUDA, PTX, TRITON, "int twice(int x) { return 2 * x; }"])
def test_the_listing_shows_the_text_unchanged(text):
    listing = show(f"\n{text}\n\n")
    assert repr(listing) == text and seen(listing._repr_html_()) == text


@pytest.mark.parametrize(
    ("text", "word", "colour"),
    [(CUDA, "__global__", "keyword"), (CUDA, "blockIdx", "builtin"), (CUDA, "template", "keyword"), (CUDA,
        "// mine?\n", "comment"),
     (PTX, "ld", "keyword"), (PTX, "// four bytes\n", "comment"), (TRITON, "def", "keyword"), (TRITON,
         "# in place", "comment")],
)  # fmt: skip
def test_words_have_the_colours_of_the_theme(text, word, colour):
    assert re.search(rf"-{colour}-color, #\w+\)[^>]*>{re.escape(word)}", show(text)._repr_html_()), word


def test_without_a_theme_colours_read_on_white_and_on_black():
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    found = set(re.findall(r", (#\w{6})\)", show(CUDA)._repr_html_() + show(TRITON)._repr_html_()))
    assert len(found) >= 5
    for colour in found:
        assert 1.05 / (light(colour) + 0.05) > 3 and (light(colour) + 0.05) / (light("#212121") + 0.05) > 3, (
            colour
        )


def kinds(source: str) -> dict[str, object]:
    return {text.strip(): kind for kind, text in highlight.InPython().get_tokens(source)}


@pytest.mark.parametrize("literal", ['r"""{}"""', "r'''{}'''", 'f"""{}"""'])
def test_a_string_that_holds_cuda_is_read_as_cuda(literal):
    source = f"CUDA = {literal.format(CUDA)}\nplain = 'if it returns'  # after"
    found = kinds(source)
    assert found["__global__"] in Keyword and found["blockIdx"] in Name.Builtin
    assert found["// mine?"] in Comment and found["# after"] in Comment
    assert found["if it returns"] in String and found["plain"] in Name


@pytest.mark.parametrize(
    "source",
    [
        '"""doc __global__ {"""',
        'x = "a __global__ kernel"',
        'x = "open {',
        "x = rb'y' + f'{n}'",
        "%timeit x\n!ls 'a'",
    ],
)
def test_other_code_is_read_as_it_was(source):
    mine, plain = highlight.InPython(), highlight.IPython3Lexer()
    assert list(mine.get_tokens(source)) == list(plain.get_tokens(source))


def test_one_line_of_cpp_is_cuda_too():
    assert kinds('f(cpp_sources="torch::Tensor f(int x);")')["int"] in Keyword.Type


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_the_lexer_keeps_every_character_of_a_lesson(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            tokens = list(highlight.InPython().get_tokens_unprocessed(cell.source))
            assert "".join(text for _, _, text in tokens) == cell.source
            assert all(cell.source.startswith(text, place) for place, _, text in tokens)


@pytest.mark.parametrize(
    ("text", "yes"),
    [(CUDA, True), ("torch::Tensor f();", True), ('extern "C" int f();', True),
        ("What does __global__ mark?", False), (TRITON, False), (PTX, False)],
)  # fmt: skip
def test_what_is_cuda(text, yes):
    assert is_cuda(text) == yes

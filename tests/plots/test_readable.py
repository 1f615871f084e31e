"""Figures in a real browser, on a light and on a dark page: every word can be read, and no ceiling's line
strikes one out.

What lies behind a word is read off a picture without words, so that bars, cells and paper count as they are
drawn.
"""

import io

import numpy as np
import pandas as pd
import pytest
from browser import browser
from PIL import Image

from helpers import plots
from helpers.lessons import fusion

PAGES = ("#FFFFFF", "#111111")
STRUCK = (255, 0, 255)  # the colour that dashed lines get for the picture
_WORDS = """() => Object.fromEntries([...document.body.children].map(one => [one.id,
    [...one.querySelectorAll('.js-plotly-plot text')].map(e => {
        const at = e.getBoundingClientRect(), look = getComputedStyle(e)
        return {text: e.textContent.trim(), fill: look.fill, opacity: look.fillOpacity * look.opacity,
                box: [at.left + scrollX, at.top + scrollY, at.right + scrollX, at.bottom + scrollY]}
    }).filter(e => e.text && e.opacity > 0 && e.box[2] > e.box[0])]))"""
_WITHOUT_WORDS = """() => {
    const style = document.createElement('style')
    style.textContent = '.js-plotly-plot text, .modebar {visibility: hidden !important}'
    document.head.append(style)
    for (const line of document.querySelectorAll('.js-plotly-plot path'))
        if (getComputedStyle(line).strokeDasharray.match(/[1-9]/)) line.style.stroke = 'rgb(255,0,255)'
}"""


def measured(values) -> pd.DataFrame:
    df = pd.DataFrame({"kernel": ["torch.square", "Triton rows", "tiny", "CUDA 2-D"], "gb_per_s": values})
    return df.assign(median_us=10.0, ci_low_us=9.5, ci_high_us=10.4)


def ratios() -> pd.DataFrame:
    return pd.DataFrame({"pair": list("abcd"), "ratio": [1.0, 1.02, 0.97, 1.005]})


def swept() -> pd.DataFrame:
    points = [(b, w) for b in (64, 128, 256, 512) for w in (1, 2, 4)]
    return pd.DataFrame(
        {
            "block_size": b,
            "num_warps": w,
            "gb_per_s": 1.9 * b * w,
            "verdict": "wrong" if b * w == 64 else "ok",
        }
        for b, w in points
    )


COPY = {"copy": 2957.0, "peak": 3350.0}
DRAWN = {
    "bars under ceilings": lambda: plots.bars(
        measured([2920.0, 2661, 90, 1564]), "kernel", "gb_per_s", ceilings=COPY
    ),
    "bars past a low ceiling": lambda: plots.bars(
        measured([2920.0, 2661, 90, 1564]), "kernel", "gb_per_s", ceilings={"floor": 150.0}
    ),
    "short bars": lambda: plots.bars(
        measured([500.0, 300, 90, 600]), "kernel", "gb_per_s", ceilings={"copy": 900.0, "far": 4000.0}
    ),
    "lying bars": lambda: plots.bars(
        measured([2920.0, 600, 90, 1564]), "kernel", "gb_per_s", ceilings=COPY, horizontal=True
    ),
    "lying bars near a line": lambda: plots.bars(
        measured([290.0, 100, 90, 2000]), "kernel", "gb_per_s", ceilings={"a": 700.0}, horizontal=True
    ),
    "logarithmic bars": lambda: plots.bars(
        measured([2920.0, 2661, 90, 1564]), "kernel", "gb_per_s", ceilings=COPY, log_y=True
    ),
    "groups of bars": lambda: plots.bars(
        measured([2920.0, 2661, 90, 1564]).assign(of="a"), "kernel", "gb_per_s", "of", ceilings=COPY
    ),
    "dots": lambda: plots.dots(ratios(), "ratio", "pair", reference=1.0, value_format=".3f"),
    "dots with intervals": lambda: plots.dots(
        ratios().assign(low=lambda t: t.ratio - 0.01, high=lambda t: t.ratio + 0.02),
        "ratio",
        "pair",
        "low",
        "high",
        reference=1.0,
        value_format=".3f",
    ),
    "throughput": lambda: plots.throughput(
        swept(), "block_size", "num_warps", ceilings=COPY, title="A title"
    ),
    "heat map": lambda: plots.heatmap(swept(), "block_size", "num_warps", title="A title"),
    "roofline": lambda: plots.roofline(
        pd.DataFrame({"name": ["k"], "flop_per_byte": [0.125], "gflop_per_s": [300.0]}),
        COPY,
        {"fp32": 66_900},
    ),
    "programs of a softmax": fusion.draw_holders,
}


@pytest.fixture(scope="module")
def chrome():
    with browser() as running:
        yield running


@pytest.fixture(scope="module", params=PAGES)
def page(chrome, request, tmp_path_factory):
    """All figures on one page of this background: their words, and the picture without words."""
    made = {name: draw() for name, draw in DRAWN.items()}
    inside = "".join(
        f'<div id="{_id(name)}">{fig.to_html(full_html=False, include_plotlyjs=i == 0)}</div>'
        for i, (name, fig) in enumerate(made.items())
    )
    file = tmp_path_factory.mktemp("figures") / "page.html"
    file.write_text(f'<meta charset="utf-8"><body style="background:{request.param}; margin:0">{inside}')
    opened = chrome.new_page(viewport={"width": 1000, "height": 800})
    opened.goto(file.as_uri())
    opened.wait_for_function(f"document.querySelectorAll('.js-plotly-plot .infolayer').length >= {len(made)}")
    opened.evaluate("() => document.fonts.ready")
    words = opened.evaluate(_WORDS)
    opened.evaluate(_WITHOUT_WORDS)
    picture = np.asarray(Image.open(io.BytesIO(opened.screenshot(full_page=True))).convert("RGB"))
    opened.close()
    return words, picture


def _id(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


def _behind(picture: np.ndarray, box) -> np.ndarray:
    """The colours behind a word, (pixels, 3); a pixel of the box's edge left out."""
    left, top, right, bottom = (round(one) for one in box)
    return picture[top + 1 : bottom - 1, left + 1 : right - 1].reshape(-1, 3)


@pytest.mark.parametrize("name", DRAWN)
def test_text_is_readable_and_no_line_crosses_it(page, name):
    words, picture = page
    assert len(words[_id(name)]) > 3
    for word in words[_id(name)]:
        behind = _behind(picture, word["box"])
        struck = (np.abs(behind.astype(int) - STRUCK).max(axis=1) < 60).sum()
        assert not struck, f"a line lies across {word['text']!r}"
        fill = [int(float(one)) for one in word["fill"].removeprefix("rgb(").rstrip(")").split(",")]
        ink = "#" + "".join(f"{one:02X}" for one in fill)
        colours, counts = np.unique(behind, axis=0, return_counts=True)
        most = ["#" + "".join(f"{one:02X}" for one in colour) for colour in colours]
        readable = sum(n for c, n in zip(most, counts, strict=True) if plots.contrast(ink, c) >= 4.5)
        assert readable >= 0.9 * counts.sum(), f"{word['text']!r} in {ink} on {most[counts.argmax()]}"

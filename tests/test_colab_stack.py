"""The sliders on Colab's versions: ipywidgets 7.7, plotly 5.24, IPython 7.34, ipykernel 6.17, laid over this
environment.

They go into build/colab-stack once (pip, without their dependencies, which this environment has). A kernel
started with that folder first on its path runs the sliders' cells; the figures that it puts out are drawn by
plotly 5.24's own script in the browser.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import browser as harness
import colab
import nbformat
import pytest
from commands import ROOT
from nbclient import NotebookClient

STACK = ROOT / "build" / "colab-stack"
VERSIONS = {name: str(colab.versions()[name]) for name in ("ipywidgets", "plotly", "ipython", "ipykernel")}
# What only these old versions need: IPython's own, and the widgets' old names for their browser half.
ALSO = {
    "backcall": "0.2.0",
    "pickleshare": "0.7.5",
    "decorator": "5.2.1",
    "ipython_genutils": "0.2.0",
    "widgetsnbextension": "3.6.10",
    "jupyterlab_widgets": "1.1.11",
}
LOOK = """
import json
from importlib.metadata import version
print(json.dumps({name: version(name) for name in ("ipywidgets", "plotly", "ipython", "ipykernel")}))
from helpers import widgets
print(widgets.frontend())
"""
PTX = """
shown = widgets.explore_ptx(aligned=True)
shown.widget._hear(None, {"kind": "code", "at": [6, 2, 2, 1]}, None)
print([one["facts"][0] for one in shown.widget.data["positions"].values()] == [2, 8])
shown
"""
PREDICT = """
from helpers import predict
from helpers.predict import session
predict.ask("sectors", "How many sectors?", unit="sectors")
predict.ask("which", "Which element?", choices=["m[0, 1]", "m[0, 2]"])
predict.ask("share", "What share?", unit="%", measured=True)
field = {key: session._asked[key].field for key in ("sectors", "which", "share")}
for key, typed in {"sectors": ["8"], "which": ["m[0, 2]"], "share": ["60", "80"]}.items():
    field[key].receive({"typed": typed})
predict.reveal("sectors", 4)
predict.reveal("which", "m[0, 2]")
predict.reveal("share", 90.0)
predict.review()
"""
COLAB = """
import sys, types
sys.modules["google.colab"] = types.ModuleType("google.colab")
import os
os.environ.pop("WORKBOOK_WIDGETS", None)
print(widgets.frontend())
predict.ask("lines", "How many lines?")
predict.reveal("lines", 2)
widgets.explore_grid()
"""


@pytest.fixture(scope="module")
def stack() -> Path:
    """The folder with Colab's versions."""
    wanted = [f"{name}=={version}" for name, version in (VERSIONS | ALSO).items()]
    done = STACK / "installed.json"
    if not done.exists() or json.loads(done.read_text()) != wanted:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--upgrade",
            "--target",
            str(STACK),
        ]
        result = subprocess.run([*pip, *wanted], capture_output=True, text=True)
        assert result.returncode == 0, f"pip could not get Colab's versions: {result.stderr[-500:]}"
        done.write_text(json.dumps(wanted))
    return STACK


@pytest.fixture(scope="module")
def outputs(stack: Path) -> list[list[dict]]:
    """The outputs of the cells LOOK, explore, explore_grid, PTX, PREDICT, COLAB, run by Colab's versions."""
    cells = [LOOK, "widgets.explore()", "widgets.explore_grid()", PTX, PREDICT, COLAB]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    path = os.pathsep.join([str(stack), str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("WORKBOOK_WIDGETS", None)
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", store_widget_state=False)
    client.execute(env=environment)
    return [cell.outputs for cell in notebook.cells]


def data(outputs: list[dict]) -> dict:
    """What the cell showed as its result."""
    return next(o["data"] for o in outputs if o["output_type"] == "execute_result")


def text(outputs: list[dict]) -> str:
    return "".join(o["text"] for o in outputs if o["output_type"] == "stream")


def test_the_plain_figure_is_chosen_by_itself(outputs):
    versions, frontend = text(outputs[0]).splitlines()
    assert json.loads(versions) == VERSIONS and frontend == "plain"
    for cell in outputs[1:3]:
        shown = data(cell)
        assert "application/vnd.plotly.v1+json" in shown
        assert "application/vnd.jupyter.widget-view+json" not in shown


def test_ptx_has_live_sliders_even_there(outputs):
    assert text(outputs[3]).strip() == "True"
    shown = data(outputs[3])
    assert "application/vnd.jupyter.widget-view+json" in shown and "kw-position" in shown["text/html"]


def test_questions_have_live_fields_even_there(outputs):
    shown = [one["data"] for one in outputs[4]]
    assert all("application/vnd.jupyter.widget-view+json" in one for one in shown[:3])
    assert [one["text/plain"] for one in shown[3:6]] == [
        "You said 8 sectors; it is 4 sectors.",
        "You said m[0, 2]; it is m[0, 2]: ✓ right.",
        "You said 60 to 80 %; it is 90 %: outside the range.",
    ]
    assert shown[6]["text/plain"].startswith("Answered: 3 of 3 questions.")


def test_in_colab_a_question_is_a_widget_and_its_answer_a_fold(outputs):
    asked, revealed = [one["data"] for one in outputs[5] if one["output_type"] == "display_data"][:2]
    assert "application/vnd.jupyter.widget-view+json" in asked and "<input" in asked["text/html"]
    assert "<details>" in revealed["text/html"]


def test_in_colab_the_figure_is_html_with_its_own_slider(outputs):
    assert text(outputs[5]).strip() == "plain"
    shown = data(outputs[5])
    assert "Plotly.newPlot" in shown["text/html"] and "application/vnd.plotly.v1+json" not in shown
    assert "block, x \\u00d7 y: " in shown["text/html"]


def test_plotly_5_draws_the_figures_and_their_sliders(outputs, stack, tmp_path):
    script = (stack / "plotly" / "package_data" / "plotly.min.js").as_uri()
    figures = [data(cell)["application/vnd.plotly.v1+json"] for cell in outputs[1:3]]
    divs = "".join(f'<div id="figure{i}" style="width:1000px"></div>' for i in range(2))
    calls = "".join(
        f"Plotly.newPlot('figure{i}', {json.dumps(figure)});".replace("</", "<\\/")
        for i, figure in enumerate(figures)
    )
    page_file = tmp_path / "figures.html"
    page_file.write_text(
        f'<meta charset="utf-8"><script src="{script}"></script>{divs}<script>{calls}</script>'
    )
    with harness.browser() as chrome:
        page = harness.Page(chrome.new_page(viewport={"width": 1100, "height": 1000}))
        page.page.goto(page_file.as_uri())
        kernels, grid = page.page.locator("#figure0"), page.page.locator("#figure1")
        before = kernels.evaluate("p => p.data.find(t => t.name === 'Triton flat' && t.visible).y")
        harness.click_step(page, kernels, 0, "64")
        shown = "document.querySelector('#figure0').data.find(t => t.name === 'Triton flat' && t.visible).y"
        page.page.wait_for_function(f"before => String({shown}) !== String(before)", arg=before)
        assert len(page.page.evaluate(shown)) == len(before)
        harness.click_step(page, grid, 0, "256 × 1")
        grid.locator(".gtitle", has_text="Blocks of 256 × 1").wait_for()
        folder = ROOT / "build" / "screenshots"
        folder.mkdir(parents=True, exist_ok=True)
        page.page.screenshot(path=str(folder / "plotly-5.png"), full_page=True)
        assert page.errors == []

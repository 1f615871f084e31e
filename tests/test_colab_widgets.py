"""Widgets in Google's own widget manager, with the versions that Colab publishes: see colab_frontend."""

from __future__ import annotations

import json
from collections.abc import Iterator

import colab
import colab_frontend
import pytest

WIDGET = "application/vnd.jupyter.widget-view+json"
COUNTER = '''
import anywidget, traitlets

class Counter(anywidget.AnyWidget):
    _esm = """
    function render({ model, el }) {
      const button = document.createElement("button");
      const show = () => { button.textContent = `count ${model.get("count")}`; };
      const said = document.createElement("output");
      button.onclick = () => { model.set("count", model.get("count") + 1); model.save_changes(); };
      model.on("change:count", show);
      model.on("msg:custom", (message, buffers) => {
        // A Uint8Array in Colab, a DataView elsewhere.
        said.textContent = `${message.echo} ${new Uint8Array(buffers[0].buffer, buffers[0].byteOffset)[0]}`;
      });
      said.onclick = () => model.send({ say: "hello" }, undefined, [new Uint8Array([41])]);
      said.textContent = "ask";
      show();
      el.append(button, said);
    }
    export default { render };
    """
    count = traitlets.Int(1).tag(sync=True)

counter = Counter()
counter.on_msg(lambda widget, message, buffers:
    widget.send({"echo": message["say"].upper()}, [bytes([bytes(buffers[0])[0] + 1])]))
counter
'''


@pytest.fixture(scope="module")
def notebook(tmp_path_factory) -> Iterator[colab_frontend.Notebook]:
    archive = colab_frontend.source()
    if archive is None:
        pytest.skip(
            f"Google's widget manager is missing: put {colab_frontend.SOURCE} in shared/data next to the "
            "checkout, or set COLAB_WIDGET_MANAGER to its path."
        )
    with colab_frontend.notebook(tmp_path_factory.mktemp("colab"), archive) as opened:
        yield opened
        assert opened.page.errors == [] and opened.refused == []


def test_the_kernel_has_the_versions_that_colab_publishes(notebook):
    names = colab_frontend.TAKEN[:6]
    cell = notebook.run(
        f"import json; from importlib.metadata import version\n"
        f"print(json.dumps({{name: version(name) for name in {names}}}))"
    )
    assert json.loads(cell.text) == {name: str(colab.versions()[name]) for name in names}


def test_traits_and_messages_travel_both_ways(notebook):
    cell = notebook.run(COUNTER)
    _, metadata = cell.bundle()
    assert metadata[WIDGET]["colab"]["custom_widget_manager"]["url"].endswith("/manager.min.js")
    cell.frame.get_by_role("button").click()
    cell.frame.get_by_text("count 2").wait_for()
    assert notebook.run("print(counter.count)").text.strip() == "2"
    notebook.run("counter.count = 7")
    cell.frame.get_by_text("count 7").wait_for()
    cell.frame.locator("output").click()
    cell.frame.get_by_text("HELLO 42").wait_for()


def test_ipywidgets_own_controls_work(notebook):
    cell = notebook.run("""
import ipywidgets
slider = ipywidgets.IntSlider(value=3, max=9)
doubled = ipywidgets.Label()
slider.observe(lambda change: setattr(doubled, "value", f"doubled {2 * change.new}"), "value")
ipywidgets.VBox([slider, doubled])""")
    cell.frame.get_by_role("slider").press("ArrowRight")
    cell.frame.get_by_text("doubled 8").wait_for()


MOVE = """([slider, position]) => new Promise((resolve, fail) => {
  const input = document.querySelectorAll(".kx input[type=range]")[slider];
  const shown = () => document.querySelector(".kx").innerText;
  const before = shown(), start = performance.now();
  input.value = position;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  input.dispatchEvent(new Event("change", { bubbles: true }));
  const look = () => {
    const ms = performance.now() - start;
    if (shown() !== before) resolve(ms);
    else if (ms > 20000) fail(new Error("nothing changed within 20 s"));
    else setTimeout(look, 2);
  };
  setTimeout(look);
})"""
OWN = """
import torch
from helpers import device, widgets

device.prepare()
import triton
import triton.language as tl

@triton.jit
def square_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x * x, mask=i < n)

@widgets.explorable(BLOCK_SIZE=[256, 1024], num_warps=[1, 4])
def square(x, BLOCK_SIZE, num_warps):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK_SIZE),)
    square_kernel[grid](x, out, x.numel(), BLOCK_SIZE, num_warps=num_warps)
    return out

widgets.explore(square, against=torch.square)
"""
ASK = """
from helpers import predict
predict.ask("colab-sectors", "How many sectors?", unit="sectors")
"""


def test_lesson_03s_sliders_show_recorded_points_at_once(notebook):
    notebook.run("from helpers import device, widgets; device.prepare()")
    cell = notebook.run("widgets.explore()")
    cell.frame.locator(".kx input[type=range]").first.wait_for()
    moves = [cell.frame.evaluate(MOVE, [0, position]) for position in (1, 2, 3, 2, 1)]
    print(f"a recorded point appears after {max(moves):.0f} ms at most")
    assert max(moves) < 150, moves


def test_own_kernels_have_sliders(notebook):
    cell = notebook.run(OWN)
    sliders = cell.frame.locator(".kx input[type=range]")
    sliders.first.wait_for()
    assert sliders.count() >= 2
    cell.frame.evaluate(MOVE, [0, 0])
    cell.frame.locator(".kx").get_by_text("registers").first.wait_for()


def test_ptx_follows_the_sliders(notebook):
    cell = notebook.run("widgets.explore_ptx(aligned=True)")
    panes = cell.frame.locator(".kx-panes")
    panes.get_by_text("ld.global").first.wait_for()
    before = panes.inner_text()
    cell.frame.evaluate(MOVE, [0, 2])
    expect = "before => document.querySelector('.kx-panes').innerText !== before"
    cell.frame.wait_for_function(expect, arg=before)


def test_a_new_runtime_offers_the_stored_answer_again(notebook):
    notebook.run("from helpers import device; device.prepare()")
    asked = notebook.run(ASK)
    asked.frame.get_by_role("textbox").fill("8")
    asked.frame.get_by_role("textbox").press("Enter")
    asked.frame.get_by_text("saved: 8 sectors").wait_for()
    notebook.replace_runtime()
    asked = notebook.run(ASK)
    asked.frame.get_by_text("saved: 8 sectors").wait_for()
    revealed = notebook.run("predict.reveal('colab-sectors', 4)")
    revealed.frame.get_by_text("You said 8 sectors").first.wait_for()


def test_a_viewer_without_widgets_shows_html(notebook):
    notebook.run("from helpers import device, predict, widgets; device.prepare()")
    for code in ("widgets.explore()", "widgets.explore_grid()", "widgets.explore_ptx(aligned=True)"):
        cell = notebook.run(code, widgets=False)
        assert "text/html" in cell.bundle()[0], code
        cell.frame.locator("table, svg").first.wait_for()
        assert cell.frame.locator("input[type=range]").count() == 0
    asked = notebook.run(ASK, widgets=False)
    asked.frame.get_by_text("How many sectors?").wait_for()

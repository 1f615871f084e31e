"""Widgets in Google's own widget manager, with the versions that Colab publishes: see colab_frontend."""

from __future__ import annotations

import json
from collections.abc import Iterator

import browser
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
    with (
        browser.browser() as chrome,
        colab_frontend.notebook(chrome, tmp_path_factory.mktemp("colab"), archive) as opened,
    ):
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

"""workbook.batch on notebooks that others wrote, in folders as they are, and on a disk that is full."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from urllib.parse import unquote

import nbformat
import pytest
from batches import printed
from commands import command, environment
from nbformat import v3

from workbook import batch, static_widgets
from workbook.batch import notebook_runs, pages, plan, watch
from workbook.options import RunOptions
from workbook.usage import UsageError


def test_an_unusable_notebook_of_a_folder_is_a_failed_row(make_notebook, tmp_path):
    folder = tmp_path / "notebooks"
    good = make_notebook("good", "print('good')")
    ir = {"kernelspec": {"name": "ir", "display_name": "R", "language": "R"}}
    make_notebook("other_language", "cat(1)", metadata=ir)
    (folder / "broken_link.ipynb").symlink_to("nowhere.ipynb")
    (folder / "latin.ipynb").write_bytes(b'{"a": "\xe4"}')
    (folder / "words.ipynb").write_text("words")
    report = batch.run_course([folder], tmp_path / "out")
    runs = {run.name: run for run in report.runs}
    assert runs.pop("good").status == "ok" and report.exit_status == 1
    assert {(run.status, run.failure.kind) for run in runs.values()} == {("failed", "start")}
    assert "'ir'" in runs["other_language"].failure.message
    assert "nowhere.ipynb" in runs["broken_link"].failure.message
    index = (tmp_path / "out" / "index.html").read_text()
    assert index.count("failed (start)") == 4
    for href in re.findall(r'href="([^"#]+)', index):
        assert (tmp_path / "out" / href).is_file(), href
    for name in ("other_language", "latin", "words"):  # a file that was named is refused
        with pytest.raises(UsageError, match=name):
            plan.plan([good, folder / f"{name}.ipynb"], RunOptions())


def test_notebooks_of_other_programs_run(make_notebook, tmp_path):
    """With the kernel of another environment, a byte order mark, nbformat 4.2 and nbformat 3."""
    other = {"kernelspec": {"name": "conda-env-theirs-py", "display_name": "Theirs", "language": "python"}}
    marked = make_notebook("their notes {draft}", "print('theirs')", metadata=other)
    marked.write_bytes(b"\xef\xbb\xbf" + marked.read_bytes())
    no_ids = make_notebook("no ids", "print('no ids')")
    notebook = json.loads(no_ids.read_text())
    notebook["nbformat_minor"] = 2
    del notebook["cells"][0]["id"]
    no_ids.write_text(json.dumps(notebook))
    old = tmp_path / "notebooks" / "old.ipynb"
    cells = [v3.new_code_cell("print('old')"), v3.new_text_cell("markdown", "text")]
    old.write_text(v3.writes_json(v3.new_notebook(worksheets=[v3.new_worksheet(cells=cells)])))
    report = batch.run_course([marked, no_ids, old], tmp_path / "out")
    assert report.ok, report
    shown = [printed(tmp_path / "out" / f"{run.name}.ipynb") for run in report.runs]
    assert shown == ["theirs\n", "no ids\n", "old\n"]


def test_failures_of_unusual_cells(make_notebook, tmp_path):
    blank = make_notebook("blank", "\n  \n\nx = 1\n1 / 0  # here")
    nameless = make_notebook("nameless", "E = type('', (Exception,), {})\nraise E('what it says')")
    foreign = make_notebook("foreign", "# %md text", "print(1)", "1/0")
    notebook = nbformat.read(foreign, 4)
    notebook.cells[2]["id"] = "3f8a77c1"
    nbformat.write(notebook, foreign)
    loud = make_notebook("loud", "raise ValueError('begin' + 'x' * 5_000_000 + 'end')")
    silent = make_notebook("silent", "raise ValueError('\\n')")
    report = batch.run_course([blank, nameless, foreign, loud, silent], tmp_path / "out")
    failures = [run.failure for run in report.runs]
    assert (failures[0].line, failures[0].source_line) == (5, "1 / 0  # here")
    assert failures[1].message.endswith(": what it says")
    assert failures[2].message == "cell 3 (id 3f8a77c1): ZeroDivisionError: division by zero"
    assert "begin" in failures[3].message and "end" in failures[3].message and len(failures[3].message) < 1000
    assert len(failures[3].traceback) < 30_000
    assert failures[4].message == "cell cell-0: ValueError"
    assert list(report.runs[2].cells) == ["cell-1", "3 (id 3f8a77c1)"]
    assert '"foreign.html#cell-id=3f8a77c1"' in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.parametrize(
    ("cell_id", "name"),
    [
        ("launch-sweep", "launch-sweep"),
        ("5b0aa2ce", "7 (id 5b0aa2ce)"),
        ("xYz_9Qw-e1Lk", "7 (id xYz_9Qw-e1Lk)"),
    ],
)
def test_a_cell_is_named_by_its_id_if_that_has_words(cell_id, name):
    assert watch.cell_name(nbformat.v4.new_code_cell("1", id=cell_id), 7) == name


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("```sh\n# not this\n```\n# This one", "This one"),
        ("~~~\n# not this\n~~~", "name"),
        ("````\n```\n# not this\n````\n#  Spaced ", "Spaced"),
        ("#\nfirst line below an empty heading", "name"),
    ],
)
def test_a_title_is_a_heading_and_not_a_comment_in_code(make_notebook, text, title):
    assert plan.plan([make_notebook("name", f"# %md {text}")], RunOptions())[0].title == title


def test_names_with_special_characters_are_linked(make_notebook, tmp_path):
    odd = make_notebook("a#1 50% ü?", "1/0")
    other = make_notebook("other", "# %md [there](a%231%2050%25%20ü%3F.ipynb) and [file](my%20data.txt)")
    (tmp_path / "notebooks" / "my data.txt").write_text("data")
    batch.run_course([odd, other], tmp_path / "out")
    for page in ("index.html", "other.html", "a#1 50% ü?.html"):
        hrefs = re.findall(r'href="([^"#]+)[^"]*"', (tmp_path / "out" / page).read_text())
        assert hrefs
        for href in hrefs:
            assert (tmp_path / "out" / unquote(href)).is_file(), (page, href)
    assert "a%231" in (tmp_path / "out" / "other.html").read_text()


def test_a_symbolic_link_runs_in_its_own_folder(make_notebook, tmp_path):
    real = make_notebook("real", "print(open('near.txt').read())", folder="elsewhere")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "near.txt").write_text("beside the link")
    link = tmp_path / "here" / "link.ipynb"
    link.symlink_to(real)
    report = batch.run_course([link], tmp_path / "out")
    assert report.ok and printed(tmp_path / "out" / "link.ipynb") == "beside the link\n"
    with pytest.raises(UsageError, match="choose another folder"):  # it would write over what the link shows
        shutil.copy(real, tmp_path / "copied.ipynb")
        (tmp_path / "out2").mkdir()
        (tmp_path / "out2" / "copied.ipynb").symlink_to(tmp_path / "copied.ipynb")
        batch.run_course([tmp_path / "copied.ipynb"], tmp_path / "out2")


@pytest.fixture
def page_of(tmp_path) -> Callable[..., str]:
    """The page of a notebook whose only cell has these outputs."""

    def write(*outputs: nbformat.NotebookNode) -> str:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=list(outputs))])
        run = notebook_runs.NotebookRun("big", str(tmp_path / "big.ipynb"), "Big", "ok", {})
        pages.write_page(notebook, run, tmp_path / "big.html", {})
        return (tmp_path / "big.html").read_text()

    return write


def shown(**data: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_output("display_data", data={f"text/{kind}": text for kind, text in data.items()})


def test_huge_outputs_are_cut_on_the_page_only(page_of):
    text = nbformat.v4.new_output("stream", text="begin " + "x" * 30_000_000 + " end")
    page = page_of(text, shown(html="<p>" + "y" * 30_000_000, plain="p"), shown(html="<p>small</p>"))
    assert len(page) < 3_000_000
    assert "begin xxx" in page and "xxx end" in page and "left out of this page" in page
    assert "30 MB of text/html" in page and "<p>small</p>" in page
    assert len(text.text) > 30_000_000


def test_many_outputs_together_are_cut(page_of):
    texts = [nbformat.v4.new_output("stream", text=f"output {i} " + "x" * 400_000) for i in range(250)]
    page = page_of(*texts, shown(html="<p>the last one</p>", plain="p"))
    assert 40_000_000 < len(page) < 60_000_000 and "output 100 xxx" in page and "output 249 xxx" not in page
    assert "0.4 MB of text" in page and "<p>the last one</p>" in page


WIDGETS = """\
import ipywidgets as w
from IPython.display import display
rows, kind = w.IntSlider(3, max=9, description='rows'), w.Dropdown(options=['a <b>', 'c'], description='kind')
out = w.Output()
display(w.VBox([rows, w.HBox([kind, w.FloatProgress(2.5, max=5)]), out, w.HTML('<i>as HTML</i>')]))
with out:
    print('inside')
rows.value = 7"""
STRANGE = """\
class Mine(w.DOMWidget):
    def __repr__(self): return 'a widget of mine'
Mine()"""


def test_widgets_are_stored_and_static_on_the_page(make_notebook, tmp_path):
    source = make_notebook("widgets", WIDGETS, STRANGE, "1/0")  # a failure does not cost them
    batch.run_course([source], tmp_path / "out")
    notebook = nbformat.read(tmp_path / "out" / "widgets.ipynb", as_version=4)
    kept = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    model = notebook.cells[0].outputs[0].data["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert kept[model]["model_name"] == "VBoxModel"  # JupyterLab shows it again
    page = (tmp_path / "out" / "widgets.html").read_text()
    assert re.search(r'rows <input[^>]* value="7"[^>]*> <span>7</span>', page)
    assert "kind <b>a &lt;b&gt;</b>" in page and '<progress max="5" value="2.5">' in page
    assert "<pre>inside\n</pre>" in page and "<i>as HTML</i>" in page
    assert "a widget of mine" in page and "widget-view" not in page


@pytest.mark.parametrize(
    "states",
    [
        {},
        {"a": {"model_name": "VBoxModel", "state": {"children": ["IPY_MODEL_a"]}}},
        {"a": {"model_name": "IntSliderModel", "state": {"value": 3}}},
        {"a": {"model_name": "StrangeModel", "state": {}}},
        {"a": 3},
    ],
)
def test_a_widget_with_unknown_state_has_no_static_html(states):
    data = {static_widgets.VIEW: {"model_id": "a"}, "text/plain": "a widget"}
    (shown,) = static_widgets.static_outputs(nbformat.v4.new_output("display_data", data=data), states)
    assert shown.data == {"text/plain": "a widget"}


INTERACT = """\
import plotly.graph_objects as go
from ipywidgets import interact

@interact(power=(1, 4))
def curve(power=2):
    return go.Figure(go.Scatter(y=[i**power for i in range(5)]))"""


def test_a_slider_of_ones_own_shows_its_figure_on_a_page(make_notebook, tmp_path):
    batch.run_course([make_notebook("own", INTERACT)], tmp_path / "out")
    page = (tmp_path / "out" / "own.html").read_text()
    assert re.search(r'power <input[^>]* value="2"', page)
    assert page.count("Plotly.newPlot(") == 1 and "Figure(" not in page


IN_A_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
FULL = """\
mount -t tmpfs -o size=1500k none "$1" || exit 77
shift
"$@"
echo "exit $?"
"""


def test_a_full_disk_ends_only_its_point(make_notebook, tmp_path):
    """The outputs are on a tmpfs of 1.5 MB, in a mount namespace of its own."""
    big, small = make_notebook("1_big", "print('x' * 3_000_000)"), make_notebook("2_small", "print('small')")
    out = tmp_path / "out"
    out.mkdir()
    run = [*IN_A_NAMESPACE, FULL, "sh", str(out), *command("run", big, small, "--out", out)]
    done = subprocess.run(run, env=environment(), capture_output=True, text=True)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this machine lets no user mount a tmpfs")
    assert "Traceback" not in done.stdout + done.stderr
    assert re.search(r"1_big: failed, .*No space left on device", done.stderr)
    assert re.search(r"2_small +ok", done.stdout) and done.stdout.endswith("exit 1\n")


def test_a_page_a_log_or_an_index_that_cannot_be_written_is_reported(make_notebook, tmp_path):
    """A folder stands where the file would go."""
    out = tmp_path / "out"
    for name in ("one.html", "one.log", "index.html"):
        (out / name / "in the way").mkdir(parents=True)
    report = batch.run_course([make_notebook("one", "print(1)")], out, log_output=True)
    assert report.runs[0].status == "ok" and report.exit_status == 1
    for part in (
        "one: its page",
        "one: its log could not be written (Is a directory)",
        "index.html could not",
    ):
        assert part in repr(report)
    assert printed(out / "one.ipynb") == "1\n" and not [p for p in out.rglob("*") if ".tmp" in p.name]

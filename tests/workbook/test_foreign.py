"""workbook.batch on notebooks that others wrote, in folders as they are, and on a disk that is full."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
from commands import command, environment
from nbformat import v3

from workbook import batch
from workbook.batch import notebook_runs, pages, plan, static_widgets, watch
from workbook.options import RunOptions
from workbook.usage import UsageError


def printed(path: Path) -> str:
    notebook = nbformat.read(path, as_version=4)
    return "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", []))


def test_one_unusable_notebook_of_a_folder_is_a_row(make_notebook, tmp_path):
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
    assert "needs the kernel 'ir', which is not installed" in runs["other_language"].failure.message
    assert "a link to nowhere.ipynb can't be read" in runs["broken_link"].failure.message
    index = (tmp_path / "out" / "index.html").read_text()
    assert index.count("failed (start)") == 4
    for href in re.findall(r'href="([^"#]+)', index):
        assert (tmp_path / "out" / href).is_file(), href
    assert "words: failed (start), " in notebook_runs.line(runs["words"])
    for name in ("other_language", "latin", "words"):  # a file that was named is refused
        with pytest.raises(UsageError, match=name):
            plan.plan([good, folder / f"{name}.ipynb"], RunOptions())


def test_a_byte_order_mark_and_nbformat_3_are_read(make_notebook, tmp_path):
    marked = make_notebook("marked", "print('marked')")
    marked.write_bytes(b"\xef\xbb\xbf" + marked.read_bytes())
    old = tmp_path / "notebooks" / "old.ipynb"
    cells = [v3.new_code_cell("print('old')"), v3.new_text_cell("markdown", "text")]
    old.write_text(v3.writes_json(v3.new_notebook(worksheets=[v3.new_worksheet(cells=cells)])))
    report = batch.run_course([marked, old], tmp_path / "out")
    assert report.ok, report
    assert printed(tmp_path / "out" / "marked.ipynb") == "marked\n"
    assert printed(tmp_path / "out" / "old.ipynb") == "old\n"


def test_failures_of_unusual_cells_are_named(make_notebook, tmp_path):
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
    assert failures[1].message == "cell cell-0: an error without a name: what it says"
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
        ("setup", "setup"),
        ("5b0aa2ce", "7 (id 5b0aa2ce)"),
        ("xYz_9Qw-e1Lk", "7 (id xYz_9Qw-e1Lk)"),
        ("1f2e0f5c-27a4-4a4e-9f60-2b8f9f0f3f3e", "7 (id 1f2e0f5c-27a4-4a4e-9f60-2b8f9f0f3f3e)"),
    ],
)
def test_ids_that_are_words_name_cells(cell_id, name):
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
def test_a_title_is_a_heading_and_no_comment_of_a_code_fence(make_notebook, text, title):
    assert plan.plan([make_notebook("name", f"# %md {text}")], RunOptions())[0].title == title


def test_names_with_signs_of_an_address_are_linked(make_notebook, tmp_path):
    odd = make_notebook("a#1 50% ü?", "1/0", RECORD)
    other = make_notebook("other", "# %md [there](a%231%2050%25%20ü%3F.ipynb) and [file](my%20data.txt)")
    (tmp_path / "notebooks" / "my data.txt").write_text("data")
    batch.run_course([odd, other], tmp_path / "out")
    for page in ("index.html", "other.html", "a#1 50% ü?.html"):
        hrefs = re.findall(r'href="([^"#]+)[^"]*"', (tmp_path / "out" / page).read_text())
        assert hrefs
        for href in hrefs:
            assert (tmp_path / "out" / unquote(href)).is_file(), (page, href)
    assert "a%231" in (tmp_path / "out" / "other.html").read_text()


RECORD = "print('never')"


def test_a_link_to_a_notebook_runs_where_the_link_lies(make_notebook, tmp_path):
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


def test_huge_outputs_are_cut_on_the_page_and_whole_in_the_notebook(tmp_path):
    outputs = [
        nbformat.v4.new_output("stream", text="begin " + "x" * 30_000_000 + " end"),
        nbformat.v4.new_output(
            "display_data", data={"text/html": "<p>" + "y" * 30_000_000, "text/plain": "p"}
        ),
        nbformat.v4.new_output("display_data", data={"text/html": "<p>small</p>"}),
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=outputs)])
    run = notebook_runs.NotebookRun("big", str(tmp_path / "big.ipynb"), "Big", "ok", {})
    pages.write_page(notebook, run, tmp_path / "big.html", {})
    page = (tmp_path / "big.html").read_text()
    assert len(page) < 3_000_000
    assert "begin xxx" in page and "xxx end" in page and "characters are left out of this page" in page
    assert "30 MB of text/html are left out of this page" in page and "<p>small</p>" in page
    assert len(notebook.cells[0].outputs[0].text) > 30_000_000


def test_many_outputs_together_are_cut_too(tmp_path):
    texts = [nbformat.v4.new_output("stream", text=f"output {i} " + "x" * 400_000) for i in range(250)]
    last = nbformat.v4.new_output(
        "display_data", data={"text/html": "<p>the last one</p>", "text/plain": "p"}
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=[*texts, last])])
    run = notebook_runs.NotebookRun("big", str(tmp_path / "big.ipynb"), "Big", "ok", {})
    pages.write_page(notebook, run, tmp_path / "big.html", {})
    page = (tmp_path / "big.html").read_text()
    assert 40_000_000 < len(page) < 60_000_000 and "output 100 xxx" in page and "output 249 xxx" not in page
    assert "0.4 MB of text are left out of this page" in page and "<p>the last one</p>" in page


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


def test_widgets_are_kept_and_stand_still_on_the_page(make_notebook, tmp_path):
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
def test_a_widget_whose_state_is_not_known_has_no_still(states):
    assert static_widgets.static_html("a", states) is None


IN_A_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
FULL = """\
mount -t tmpfs -o size=1500k none "$1" || exit 77
shift
"$@"
echo "exit $?"
"""


@pytest.fixture
def on_a_small_disk(tmp_path) -> Callable[..., subprocess.CompletedProcess]:
    """Run the command with its outputs on a tmpfs of 1.5 MB, in a mount namespace of its own."""

    def run(*arguments: object) -> subprocess.CompletedProcess:
        out = tmp_path / "out"
        out.mkdir()
        done = subprocess.run(
            [*IN_A_NAMESPACE, FULL, "sh", str(out), *command("run", *arguments, "--out", out)],
            env=environment(),
            capture_output=True,
            text=True,
        )
        if done.returncode == 77 or "unshare" in done.stderr:
            pytest.skip("this machine lets no user mount a tmpfs")
        assert "Traceback" not in done.stdout + done.stderr
        assert (
            "1_big: failed, the executed notebook could not be written (No space left on device)"
            in done.stderr
        )
        return done

    return run


def test_a_full_disk_ends_its_point_and_is_told(make_notebook, on_a_small_disk):
    big = make_notebook("1_big", "print('x' * 3_000_000)")
    done = on_a_small_disk(big, make_notebook("2_small", "print('small')"))
    assert re.search(r"2_small +ok", done.stdout) and done.stdout.endswith("exit 1\n")


def test_a_full_disk_ends_the_batch_where_told(make_notebook, on_a_small_disk):
    big = make_notebook("1_big", "print('x' * 3_000_000)")
    done = on_a_small_disk(big, make_notebook("2_small", "print('small')"), "--fail-fast")
    assert re.search(r"2_small +not run", done.stdout) and done.stdout.endswith("exit 1\n")
    assert "Stopped at the first failure (--fail-fast): 1 of 2 were not run." in done.stdout


def test_a_page_or_an_index_that_cannot_be_written_is_told(make_notebook, tmp_path):
    """A folder stands where the file would go."""
    out = tmp_path / "out"
    for name in ("one.html", "index.html"):
        (out / name / "in the way").mkdir(parents=True)
    report = batch.run_course([make_notebook("one", "print(1)")], out)
    assert report.runs[0].status == "ok" and report.exit_status == 1
    assert "its page could not be made" in repr(report) and "index.html could not be written" in repr(report)
    assert printed(out / "one.ipynb") == "1\n" and not [p for p in out.rglob("*") if ".tmp" in p.name]

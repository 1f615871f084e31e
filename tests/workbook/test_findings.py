"""What a batch's points found: results.csv, the DataFrame, `workbook results`, and the index's drawings."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from pathlib import Path

import nbformat
import pytest

from workbook import batch
from workbook.batch import findings, notebook_runs, report, table
from workbook.usage import UsageError

LESSONS = Path(__file__).parents[2] / "notebooks"
PARAMETERS = (
    """\
n_rows: int = 8
warps: int = 4
n_elements: int = 2**20
kind: str = 'a'
status: str = 'x'""",
    "parameters",
)
HEAD = """\
from IPython.display import publish_display_data as show
def head(label, value, source, **more):
    show({"text/plain": label, "application/vnd.kernel-workbook.headline+json":
          {"label": label, "value": value, "source": source, **more}})"""
FINDS = """\
if (n_rows, warps) == (64, 2):
    head("never", "1 s", "live, Tesla T4", figures={"square_us": 99.0})
    raise ValueError("this point")
found = {"square_us": n_rows / warps, "torch (µs)": 2.0 * n_rows}
head(f"square of {n_rows}", "some", "live, Tesla T4", figures=found)
head("copy", "2,959 GB/s", "replayed, NVIDIA H100")"""


def headline(label: str, value: str, source: str = "live, Tesla T4", **more: object) -> dict:
    return {findings.HEADLINE: {"label": label, "value": value, "source": source, **more}}


def scrap(name: str, data: object, encoder: str = "json") -> dict:
    kind = f"application/scrapbook.scrap.{encoder}+json"
    return {kind: {"name": name, "data": data, "encoder": encoder, "version": 1}}


def point(
    name: str, parameters: dict, *found: findings.Figure, status: str = "ok"
) -> notebook_runs.NotebookRun:
    return notebook_runs.NotebookRun(
        name, "/folder/one.ipynb", "One", status, parameters, figures=found, written=True
    )


def index_of(tmp_path: Path, runs: list[notebook_runs.NotebookRun]) -> str:
    tmp_path.mkdir(exist_ok=True)
    report.write_index(notebook_runs.RunReport(tmp_path, "2026-11-22T10:00:00+00:00", 1.0, tuple(runs)))
    return (tmp_path / "index.html").read_text()


def drawn(index: str) -> list[dict]:
    return [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', index)]


# --- a batch that found things ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Path:
    """A grid of two by two with one failed point, and a notebook that ran once."""
    folder = tmp_path_factory.mktemp("swept")
    code = nbformat.v4.new_code_cell
    cells = [code(PARAMETERS[0], metadata={"tags": ["parameters"]}), code(HEAD), code(FINDS)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "lesson.ipynb")
    once = 'head("once", "1.5 ms", "replayed, NVIDIA H200", figures={"once_ms": 1.5})'
    nbformat.write(nbformat.v4.new_notebook(cells=[code(HEAD), code(once)]), folder / "other.ipynb")
    grid = {"n_rows": ["8", "64"], "warps": ["2", "4"]}
    batch.run_course([folder / "lesson.ipynb", folder / "other.ipynb"], folder / "out", grid=grid, jobs=2)
    return folder / "out"


def test_results_csv_has_a_row_per_point(swept):
    rows = list(csv.DictReader((swept / "results.csv").open()))
    assert [(r["n_rows"], r["warps"], r["status"]) for r in rows] == [
        ("8", "2", "ok"), ("8", "4", "ok"), ("64", "2", "failed"), ("64", "4", "ok"), ("", "", "ok"),
    ]  # fmt: skip
    # Defaults that nobody changed, which the failed point has too.
    assert {(r["n_elements"], r["kind"]) for r in rows[:4]} == {("1048576", "a")}
    assert [r["square_us"] for r in rows] == ["4.0", "2.0", "", "16.0", ""]
    assert [r["torch (µs)"] for r in rows] == ["16.0", "16.0", "", "128.0", ""]
    assert [r["copy (GB/s)"] for r in rows] == ["2959.0", "2959.0", "", "2959.0", ""]
    assert rows[4]["once_ms"] == "1.5" and "ValueError: this point" in rows[2]["failure"]
    assert float(rows[0]["seconds"]) > 0


def test_the_dataframe_has_types(swept):
    frame = batch.load_results(swept)
    ok = frame[frame.status.eq("ok") & frame.n_rows.notna()]
    assert (ok["square_us"] == ok["n_rows"] / ok["warps"]).all() and len(ok) == 3
    assert frame["square_us"].dtype == float and frame["square_us"].isna().sum() == 2


def test_the_command_prints_the_table(swept, cli, refusal):
    said = cli("results", swept).stdout
    assert re.search(r"n_rows +warps +status +seconds +square_us +torch \(µs\)\n", said)
    assert re.search(r" 64 +4 +ok +[\d.]+ +16 +128\n", said)
    assert re.search(r" 64 +2 +failed +[\d.]+\n", said)  # no number behind it
    # The points ran on a GPU, which measured the other figures.
    assert "copy (GB/s) = 2,959 at all 3 points, replayed from NVIDIA H100 (not measured)" in said
    assert "once_ms  1.5" in said and "ValueError: this point" in said
    assert cli("results", swept, "--csv").stdout == (swept / "results.csv").read_text()
    assert "nowhere" in refusal("results", swept / "nowhere")


def test_the_index_draws_each_figure_over_the_grid(swept):
    index = (swept / "index.html").read_text()
    square, torch = drawn(index)
    (cells,) = [t for t in square["data"] if t.get("colorbar")]
    assert (cells["x"], cells["y"]) == (["2", "4"], ["8", "64"])
    assert cells["z"] == [[4.0, 2.0], [None, 16.0]]
    assert any("failed" in str(t.get("text")) for t in square["data"])
    assert square["layout"]["xaxis"]["title"]["text"] == "warps" and "live, Tesla T4" in str(square["layout"])
    assert "torch (µs)" in str(torch["layout"])
    assert index.count("copy (GB/s) = 2,959") == 1
    assert "<td>once</td><td>1.5 ms</td>" in index and "<td>copy</td>" not in index
    assert (swept / "assets" / "plotly.min.js").is_file() and "http" not in index.replace("http-equiv", "")


def test_resume_reads_the_figures_of_an_older_output(swept, tmp_path):
    """Its metadata has none, but its outputs do."""
    saved = swept / "other.ipynb"
    old = nbformat.read(saved, 4)
    assert old.metadata.kernel_workbook.run.pop("figures")
    nbformat.write(old, saved)
    again = batch.run_course([swept.parent / "other.ipynb"], swept, resume=True)
    assert again.runs[0].status == "kept" and again.runs[0].figures[0].value == 1.5


# --- the index of other people's notebooks ------------------------------------------------------------------


def test_titles_of_reports_and_the_column_of_gpus(tmp_path):
    foreign = point("one", {}, findings.Figure("loss", 0.5))
    index = index_of(tmp_path, [foreign])
    assert "<h1>One</h1>" in index and "<th>Figures</th>" not in index
    other = dataclasses.replace(foreign, name="two", source="/folder/two.ipynb", title="Two")
    assert "<h1>2 notebooks in folder</h1>" in index_of(tmp_path, [foreign, other])
    assert table.rows_of([foreign])[1][0]["figures_from"] is None
    live = {"record": "square", "mode": "live", "gpu": "Tesla T4", "date": "2026-11-22", "text": ""}
    with_gpu = index_of(tmp_path, [foreign, dataclasses.replace(other, provenance=(live,))])
    assert "<th>Figures</th>" in with_gpu and "live on Tesla T4" in with_gpu
    lessons = [dataclasses.replace(foreign, source=str(LESSONS / name)) for name in ("a.ipynb", "b.ipynb")]
    assert "<h1>Kernel Workbook</h1>" in index_of(tmp_path, lessons)


def test_a_traceback_shared_by_several_points_is_shown_once(tmp_path):
    failure = notebook_runs.Failure("error", "cell f: ValueError: boom", "Traceback, line 7", "f")
    failed = [dataclasses.replace(point(n, {}, status="failed"), failure=failure) for n in ("p1", "p2")]
    other = dataclasses.replace(failure, traceback="Traceback, line 9")
    runs = [*failed, dataclasses.replace(failed[0], name="p3", failure=other)]
    index = index_of(tmp_path, runs)
    printed = repr(notebook_runs.RunReport(tmp_path, "2026-11-22T10:00:00+00:00", 1.0, tuple(runs)))
    for text in (index, printed):
        assert text.count("Traceback, line 7") == 1 and text.count("Traceback, line 9") == 1
    assert "p1, p2: cell f" in printed
    assert all(f'<a href="{n}.html#cell-id=f">{n}</a>' in index for n in ("p1", "p2", "p3"))


# --- what is drawn ------------------------------------------------------------------------------------------


def us(value: float, **more: str) -> findings.Figure:
    return findings.Figure("square_us", value, **{"source": "live, Tesla T4", **more})


def test_figures_of_one_unit_share_a_line_plot(tmp_path):
    other = [findings.Figure("torch (µs)", v) for v in (5.0, 6.0, 7.0)]
    runs = [
        point(f"p{n}", {"n": n}, us(v), o)
        for n, v, o in zip((4, 1, 100), (3.0, 2.0, 1.0), other, strict=True)
    ]
    (figure,) = drawn(index_of(tmp_path, runs))
    assert [t["x"] for t in figure["data"]] == [[1, 4, 100]] * 2 and figure["data"][0]["y"] == [2.0, 3.0, 1.0]
    assert figure["layout"]["xaxis"]["type"] == "log" and figure["layout"]["yaxis"]["title"]["text"] == "µs"


def test_text_on_the_axis_makes_bars(tmp_path):
    runs = [point(k, {"kind": k}, us(v)) for k, v in (("</script>", 1.0), ("b", 2.0))]
    (figure,) = drawn(index_of(tmp_path, runs))
    assert (figure["data"][0]["type"], figure["data"][0]["y"]) == ("bar", [1.0, 2.0])


def cube(split: str, n: int) -> list[notebook_runs.NotebookRun]:
    """Points over two rows, three columns and `n` values of a third axis, which has the name `split`."""
    at = [{"rows": i % 2, split: i // 6, "columns": i // 2 % 3} for i in range(6 * n)]
    return [point(f"p{i}", where, us(float(i))) for i, where in enumerate(at)]


def test_three_axes_are_a_heat_map_per_value_of_the_shortest(tmp_path):
    runs = cube("layer", 4)
    runs[5] = point("p5", runs[5].parameters, us(5.0), status="failed")
    upper, lower = drawn(index_of(tmp_path, runs))
    assert "rows = 0" in str(upper["layout"]["title"]) and "rows = 1" in str(lower["layout"]["title"])
    assert upper["data"][0]["z"] == [[i, i + 2, i + 4] for i in (0, 6, 12, 18)]
    assert lower["data"][0]["z"][0] == [1.0, 3.0, None] and "failed" in str(lower["data"][1]["text"])
    # They can be compared: their colors mean the same.
    assert [(h["data"][0]["zmin"], h["data"][0]["zmax"]) for h in (upper, lower)] == [(0, 23), (0, 23)]


def test_four_axes_are_a_table(tmp_path):
    axes = [{"a": i & 1, "b": i & 2, "c": i & 4, "d": i & 8} for i in range(16)]
    runs = [point(f"p{i}", at, us(float(i))) for i, at in enumerate(axes)]
    runs[5] = point("p5", axes[5], us(5.0), status="failed")
    index = index_of(tmp_path, runs)
    assert not drawn(index) and "plotly" not in index.split("</p>")[-1]
    assert "<td>2</td><td>4</td><td>8</td>" in index and '<td class="number">7</td>' in index
    assert re.search(r'failed">failed</td><td class="number">–</td>', index)


def test_points_on_a_diagonal_are_not_drawn(tmp_path):
    assert not drawn(index_of(tmp_path, [point(f"p{i}", {"a": i, "b": i}, us(1.0 + i)) for i in range(4)]))


def test_a_record_of_other_parameters_is_not_a_result_of_the_point(tmp_path):
    near = us(3.0, source="replayed, NVIDIA H100", nearest="n=1823")
    exact = us(4.0, source="replayed, NVIDIA H100")
    runs = [point("p1", {"n": 512}, near), point("p2", {"n": 1823}, exact)]
    rows = table.rows_of(runs)[1]
    assert [row["square_us"] for row in rows] == [None, 4.0]
    assert "n=1823" in rows[0]["figures_from"]
    (figure,) = drawn(index_of(tmp_path, runs))
    assert figure["data"][0]["x"] == [1823] and "1 not recorded" in str(figure["layout"]["title"])
    same = [point("p1", {"n": 512}, near), point("p2", {"n": 513}, near)]
    index = index_of(tmp_path, same)
    sentence = (
        "square_us = 3 at all 2 points, replayed from NVIDIA H100, recorded at n=1823 (not measured: no GPU)."
    )
    assert not drawn(index) and sentence in index
    given = [dataclasses.replace(run, gpu="GPU-1", gpu_alone=True) for run in same]
    assert "recorded at n=1823 (not measured)." in index_of(tmp_path / "given", given)


@pytest.mark.parametrize(
    "odd", [float("nan"), float("inf"), None, [1, 2], True, 10**400], ids=lambda v: str(v)[:8]
)
def test_the_index_is_written_for_odd_parameter_values(tmp_path, odd):
    runs = [point("p1", {"n": odd}, us(1.0)), point("p2", {"n": 3}, us(2.0)), point("p3", {"n": -1}, us(2.0))]
    index_of(tmp_path, runs)
    assert len(batch.load_results(tmp_path)) == 3


# --- what is read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("266 µs · 2,959 GB/s", {"L (µs)": 266.0, "L (GB/s)": 2959.0}),
        ("2,959 GB/s, 103 % of torch.square", {"L (GB/s)": 2959.0, "L, of torch.square (%)": 103.0}),
        ("takes 0.983 × as long", {"L, takes, as long (×)": 0.983}),
        ("5.1 µs, 3.6 too many", {"L (µs)": 5.1, "L, too many": 3.6}),
        ("1.5e-3 s", {"L (s)": 0.0015}),
        ("-3", {"L": -3.0}),
        ("2.8 / 2.9 µs", {}),
        ("10,000 × 10,000 fp32", {}),
        ("H100", {}),
        ("", {}),
    ],
)
def test_a_headline_without_numbers_is_read(value, found):
    assert {f.name: f.value for f in findings.figures_of([headline("L", value)])} == found


def test_scraps_of_foreign_notebooks_are_read():
    shown = [
        scrap("loss", 0.5),
        scrap("loss", 0.25),  # scrapbook's last one counts
        scrap("scores", {"train": 1, "test": 0.5, "all": [1, 2]}),
        scrap("model", "resnet", "text"),
        scrap("on", True),
        scrap("long", "x" * 5_000_000, "text"),
        scrap("nan", float("nan")),
        {"application/scrapbook.scrap.json+json": "broken"},
        headline("L", "3 s"),
    ]
    assert {f.name: f.value for f in findings.figures_of(shown)} == {
        "L (s)": 3.0, "loss": 0.25, "scores.train": 1, "scores.test": 0.5, "model": "resnet", "on": "True",
    }  # fmt: skip


def test_repeated_names_and_names_of_columns_are_kept_apart():
    one = findings.figures_of([headline("L", "1 s"), headline("L", "2 s"), scrap("seconds", 3)])
    assert [f.name for f in one] == ["L (s)", "L (s) #2", "seconds"]
    assert findings.unit_of("L (s) #2") == "s"
    columns, rows = table.rows_of([point("p", {"status": "mine", "n": 1}, *one)])
    assert len(set(columns)) == len(columns)
    assert (rows[0]["parameter_status"], rows[0]["status"], rows[0]["figure_seconds"]) == ("mine", "ok", 3)


def test_a_file_that_is_not_a_report_is_refused(tmp_path):
    (tmp_path / "report.json").write_text('{"notebooks": 3}')
    with pytest.raises(UsageError, match=r"report\.json"):
        table.read_report(tmp_path)

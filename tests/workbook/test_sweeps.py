"""Sweeps of workbook.batch: files of points and of parameters, odd values, names of outputs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from batches import printed

from workbook import batch
from workbook.assignments import value_lists
from workbook.batch import plan, point_files
from workbook.batch.parameters import Parameter, parse_value
from workbook.options import RunOptions
from workbook.usage import UsageError

PARAMETERS = """\
n_rows: int = 8
scale: float = 1.5
dtype: str = 'float32'
anything = None"""
SHOW = "print(repr((n_rows, scale, dtype, anything)))"


@pytest.fixture
def lesson(make_notebook) -> Path:
    return make_notebook("lesson", (PARAMETERS, "parameters"), SHOW)


def strict(path: Path) -> dict:
    """A file as JSON has to be: no NaN, no Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{path.name} holds {word}, which is no JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_a_sweep_and_a_parameters_file_from_the_command_line(lesson, tmp_path, workbook):
    (tmp_path / "points.csv").write_text('\ufeffn_rows,dtype\n16,"a, ""b"""\n32,\n')
    (tmp_path / "given.yaml").write_text("scale: 2.5\ndtype: float16\nn_rows: 1\n")
    arguments = ["--sweep", "points.csv", "-f", "given.yaml", "-p", "anything=[1, None]", "--out", "out"]
    result = workbook("run", lesson, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    shown = sorted(printed(path).strip() for path in (tmp_path / "out").glob("*.ipynb"))
    # What a point leaves empty comes from the file; what -p gives comes before it.
    assert shown == [repr((16, 2.5, 'a, "b"', [1, None])), repr((32, 2.5, "float16", [1, None]))]


def test_nan_and_inf_run_and_are_kept(lesson, tmp_path):
    grid = {"scale": ["nan", "inf", "-inf"]}
    first = batch.run_course([lesson], tmp_path / "out", grid=grid)
    assert first.ok, first
    shown = [printed(tmp_path / "out" / f"{run.name}.ipynb").strip() for run in first.runs]
    assert [text.split(", ")[1] for text in shown] == ["nan", "inf", "-inf"]
    again = batch.run_course([lesson], tmp_path / "out", grid=grid, resume=True)
    assert [run.status for run in again.runs] == ["kept"] * 3
    assert math.isnan(again.runs[0].parameters["scale"]) and again.runs[1].parameters["scale"] == math.inf
    saved = strict(tmp_path / "out" / "report.json")["notebooks"]
    assert [n["parameters"]["scale"] for n in saved] == ["nan", "inf", "-inf"]
    for run in again.runs:
        strict(tmp_path / "out" / f"{run.name}.ipynb")


def test_points_from_yaml_and_from_a_grid_make_a_product(make_notebook, lesson, tmp_path):
    path = tmp_path / "points.yaml"
    path.write_text("- {n_rows: 1, dtype: a}\n- {n_rows: 2, dtype: b}\n")
    other = make_notebook("other", ("n_rows: int = 0", "parameters"), "1")
    plain = make_notebook("plain", "1")
    points = point_files.read_points(path)
    jobs = plan.plan([lesson, other, plain], RunOptions(grid={"scale": ["0.5", "1"]}, sweep=points))
    assert [job.name for job in jobs] == [
        "lesson__n_rows=1__dtype=a__scale=0.5", "lesson__n_rows=1__dtype=a__scale=1.0",
        "lesson__n_rows=2__dtype=b__scale=0.5", "lesson__n_rows=2__dtype=b__scale=1.0",
        "other__n_rows=1", "other__n_rows=2", "plain",
    ]  # fmt: skip
    assert jobs[3].parameters == {"n_rows": 2, "dtype": "b", "scale": 1.0}
    # Two points that differ in what a notebook does not have are one point of it.
    points = [{"n_rows": 1, "dtype": "a"}, {"n_rows": 1, "dtype": "b"}]
    jobs = plan.plan([lesson, other], RunOptions(sweep=points))
    assert [job.name for job in jobs] == [
        "lesson__n_rows=1__dtype=a",
        "lesson__n_rows=1__dtype=b",
        "other__n_rows=1",
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("missing.csv", None, "missing.csv .*No such file"),
        ("points.txt", "n_rows\n1\n", "points.txt.*.csv"),
        ("a.csv", "", "a.csv .*no point"),
        ("a.csv", "n_rows\n", "a.csv .*no point"),
        ("a.csv", "n_rows,n_rows\n1,2\n", "a.csv.* 'n_rows' .*twice"),
        ("a.csv", "n rows\n1\n", "a.csv.* 'n rows'"),
        ("a.csv", "n_rows,dtype\n1,a\n1,a,b\n", "a.csv.* row 3 has 3 cells"),
        ("a.csv", 'n_rows\n"1', "a.csv .*CSV"),
        ("a.csv", "n_rows\nx\n", "n_rows .*int.* 'x'"),
        ("a.csv", "n_rowz\n1\n", "n_rowz .*n_rows"),
        ("a.csv", "n_rows\n1\n1\n", "lesson__n_rows=1"),
        ("a.yaml", "n_rows: 1", "a.yaml .*list"),
        ("a.yaml", "- [1", "a.yaml .*YAML"),
        ("a.yaml", "- {1: 2}", "a.yaml.* 1 "),
        ("a.yaml", "- {anything: 2026-11-22}", "anything .*date"),
        ("a.json", '[{"n_rows": 1.5}]', "n_rows .*int.* 1.5"),
    ],
)
def test_a_wrong_sweep_is_refused(lesson, tmp_path, name, text, expected):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=expected) as refused:
        plan.plan([lesson], RunOptions(sweep=tmp_path / name))
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(("text", "expected"), [("[1]", "mapping"), ("a: [", "YAML")])
def test_a_wrong_parameters_file_is_refused(tmp_path, text, expected):
    (tmp_path / "given.yaml").write_text(text)
    with pytest.raises(UsageError, match=expected):
        point_files.read_parameters(tmp_path / "given.yaml")


def test_a_parameter_given_twice_is_refused(lesson):
    with pytest.raises(UsageError, match=r"n_rows .*--grid .*--sweep"):
        plan.plan([lesson], RunOptions(grid={"n_rows": ["1"]}, sweep=[{"n_rows": "2"}]))
    with pytest.raises(UsageError, match=r"n_rows .*-p .*--sweep"):
        plan.plan([lesson], RunOptions(parameters={"n_rows": "1"}, sweep=[{"n_rows": "2"}]))


@pytest.mark.parametrize(
    ("annotation", "default", "text", "expected"),
    [
        ("int", "1", "3j", "is int"),
        ("int", "1", "nan", "is int"),
        ("", "None", "3j", "is complex"),
        ("", "None", "[1, 3j]", "is complex"),
        ("", "None", "b'x'", "is bytes"),
        ("", "None", "{1, 2}", "is set"),
        ("dict", "{}", "{0: 1}", "is a dict with the key 0"),
        ("dict", "{}", "{[]: 1}", "is dict"),
        ("list", "[]", "[" * 5000, "is list"),
    ],
)
def test_values_that_cannot_be_passed_to_a_notebook(annotation, default, text, expected):
    with pytest.raises(ValueError, match=expected):
        parse_value(text, Parameter("name", annotation, default))


@pytest.mark.parametrize(
    ("annotation", "default", "text", "value"),
    [
        ("str", "'a'", "'a,b'", "a,b"),
        ("str", "'a'", '"it\'s"', "it's"),
        ("str", "'a'", "it's", "it's"),
        ("str", "'a'", "'a' and 'b'", "'a' and 'b'"),
        ("Literal['a', 'b']", "'a'", "'b'", "b"),
        ("", "float('inf')", "3", 3.0),
        ("", "math.inf", "inf", math.inf),
        ("", "None", "(1, (2, 3))", [1, [2, 3]]),
    ],
)
def test_quotes_and_infinity_in_values(annotation, default, text, value):
    assert parse_value(text, Parameter("name", annotation, default)) == value


def test_commas_and_quotes_in_a_grid():
    texts = ["a=it's,so", "b='a,b',\"c,d\",e", "c=['a,b', 'c'],f(1,2),:)", "d=1, [2,3]"]
    assert value_lists(texts, "--grid") == {
        "a": ["it's", "so"],
        "b": ["'a,b'", '"c,d"', "e"],
        "c": ["['a,b', 'c']", "f(1,2)", ":)"],
        "d": ["1", "[2,3]"],
    }
    for text, message in [
        ("'a,b", "quote"),
        ("(a,b", "bracket"),
        ("", "empty"),
        ("1,,2", "empty"),
    ]:
        with pytest.raises(UsageError, match=f"--grid lr=.* {message}"):
            value_lists([f"lr={text}"], "--grid")


def test_names_of_outputs_are_short_and_differ(make_notebook, tmp_path):
    long = make_notebook("n" * 200, (PARAMETERS, "parameters"), "1")
    values = ["ü" * 300, "ü" * 301, "a b", "a_b", "c"]
    jobs = plan.plan([long], RunOptions(grid={"dtype": values}))
    names = [job.name for job in jobs]
    assert len(set(names)) == 5 and all(len(name.encode()) <= 200 for name in names)
    assert names == [job.name for job in plan.plan([long], RunOptions(grid={"dtype": values}))]
    short = make_notebook("short", (PARAMETERS, "parameters"), "1")
    first, second, third = (job.name for job in plan.plan([short], RunOptions(grid={"dtype": values[2:]})))
    assert first != second and first.startswith("short__dtype=a_b__") and third == "short__dtype=c"
    assert batch.run_course([long], tmp_path / "out", {"n_rows": 1}, grid={"dtype": values[:1]}).ok


def test_ten_thousand_points_are_planned(lesson):
    points = [{"n_rows": str(i), "scale": "1.5"} for i in range(10_000)]
    jobs = plan.plan([lesson], RunOptions(sweep=points))
    assert len({job.name for job in jobs}) == 10_000 and len({id(job.content) for job in jobs}) == 1

"""`workbook bench`: what is slower than a record beyond the noise, why, and what the command says where it cannot tell."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from commands import ROOT, command, environment

from helpers import device, records
from helpers.timing import league as table
from helpers.timing.changes import Estimate
from helpers.workshop.bench import against, compiled, measure, run, suites, texts
from helpers.workshop.bench import league as league_points
from helpers.workshop.usage import UsageError

TWICE = json.loads(Path(__file__).with_name("league_twice.json").read_text())
PROVENANCE = records.Provenance(
    {"name": "NVIDIA H100 80GB HBM3"}, "580", "13.0", "2.11.0", "3.6.0", 1980, 2619, "2026-11-21", {"k": "1"}
)
LEAGUE = suites.find("fusion/league")


def league_run(which: str, slow: float = 1.0, *, all_slow: float = 1.0) -> list[suites.Measured]:
    """A run of the league on an H100; ours made slower by a factor, or all contestants."""
    rows = [dict(zip(TWICE["columns"], row, strict=True)) for row in TWICE[which]]
    for row in rows:
        factor = all_slow * (slow if row["contestant"] == table.OURS else 1)
        row |= {name: row[name] * factor for name in ("median_us", "ci95_low_us", "ci95_high_us")}
        if row["contestant"] != table.OURS:
            row |= {name: row[name] / slow for name in ("ours_ratio", "ratio_low", "ratio_high")}
    return sorted(LEAGUE.read(rows, ()), key=lambda m: str(m.point))


def report(then, now, *, now_from=PROVENANCE, **options) -> against.Report:
    same = against.is_same_torch(PROVENANCE, now_from)
    pairs = zip(then, now, strict=True)
    found = [against.compare(a, b, n_points=len(then), same_torch=same) for a, b in pairs]
    return against.Report("fusion/league", LEAGUE.reference, PROVENANCE, now_from, found, **options)


# the verdict -----------------------------------------------------------------------------------------------------------


def test_the_same_kernels_measured_twice_are_no_regression():
    """A real pair of runs: over the copy alone, points of 16 MB would have been called slower."""
    then, now = league_run("first"), league_run("second")
    made = report(then, now)
    assert len(then) > 30 and made.exit_status == 0
    assert {f.verdict for f in made.findings} == {"same"}
    assert report(now, then).exit_status == 0
    alone = [against.compare(a, b, n_points=len(then)) for a, b in zip(then, now, strict=True)]
    assert 4194304 in {f.then.point["n_cols"] for f in alone if f.verdict == "slower"}


@pytest.mark.parametrize(("factor", "verdict"), [(1.04, "slower"), (1 / 1.04, "faster")])
def test_a_real_change_of_four_per_cent_is_seen_where_kernels_are_long(factor, verdict):
    made = report(league_run("first"), league_run("second", factor))
    long = [f for f in made.findings if f.then.us.value > 50]
    assert len(long) > 12 and sum(f.verdict == verdict for f in long) >= 0.9 * len(long)
    assert not {"slower", "faster"} - {verdict} & {f.verdict for f in made.findings}
    assert made.exit_status == (1 if verdict == "slower" else 0)
    assert f"{verdict} " in str(made) and "µs then" in str(made)


def test_a_slower_clock_on_another_day_is_no_regression():
    assert report(league_run("first"), league_run("second", all_slow=1.1)).exit_status == 0


def test_what_cannot_be_timed_any_more_is_a_regression():
    then, now = league_run("first"), league_run("second")
    gone = dataclasses.replace(now[0], us=None, ratio=None, note="refused: Mismatch: wrong on (4096,)")
    made = report(then, [gone, *now[1:]])
    assert made.exit_status == 1 and "fails   op " in str(made) and "Mismatch" in str(made)
    never = dataclasses.replace(then[0], us=None, ratio=None, note="refused: too wide")
    assert report([never, *then[1:]], now).exit_status == 0
    assert report([never], [now[0]]).exit_status == 2


def test_a_slower_text_is_a_regression_though_the_compiler_made_up_for_it():
    then, now = league_run("first"), league_run("second")
    now[0] = dataclasses.replace(now[0], over_then=Estimate(1.05, 1.04, 1.06))
    made = report(then, now)
    assert made.exit_status == 1 and "1.050 × (" in str(made) and "in turns" in str(made)


def test_the_report_says_what_changed():
    now = dataclasses.replace(PROVENANCE, torch="2.13.0", triton="3.7.1", sources={"k": "2"})
    said = str(report(league_run("first"), league_run("second", 1.05), now_from=now))
    assert "Changed since: torch 2.11.0 -> 2.13.0; triton 3.6.0 -> 3.7.1; the text of k." in said
    assert "eager, beside it: " in said
    said = str(report(league_run("first"), league_run("second")))
    assert "The versions and the texts of the kernels are the same." in said


# what the compiler made --------------------------------------------------------------------------------------------------

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def scale_kernel(y_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, BODY, mask=offsets < n)
"""


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """Write modules of one's own into a folder on the path, and forget them afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WORKBOOK_CACHE", str(tmp_path / "cache"))
    yield lambda name, text: (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "") and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def compile_kernel(kernel):
    """A kernel as a launch on an H100 would compile it, without a GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    aligned = {(i,): [["tt.divisibility", 16]] for i in (0, 1)}
    signature = {"y_ptr": "*fp32", "x_ptr": "*fp32", "n": "i32", "BLOCK_SIZE": "constexpr"}
    source = ASTSource(kernel, signature, {"BLOCK_SIZE": 1024}, aligned)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})


def test_a_recorded_text_is_compiled_again_beside_todays(on_path):
    """Source and compiler are told apart: the old text by today's compiler, beside what was counted then."""
    import importlib

    on_path("scaled", KERNEL.replace("BODY", "x * 2.0"))
    then = compiled.describe(compile_kernel(importlib.import_module("scaled").scale_kernel))
    kept = {"scaled": Path(sys.modules["scaled"].__file__).read_text()}
    assert then["counts"]["STG"] > 0 and then["counts"]["registers"] > 0
    then = json.loads(json.dumps(then))  # as a record has it
    del sys.modules["scaled"]
    on_path(
        "scaled",
        KERNEL.replace("BODY", "tl.exp(x) / (1.0 + tl.exp(x * x))"),
    )
    importlib.invalidate_caches()
    today = importlib.import_module("scaled")
    now = compiled.describe(compile_kernel(today.scale_kernel))
    assert now["sha256"] != then["sha256"] and now["counts"]["MUFU"] > then["counts"].get("MUFU", 0)

    record = run.Record("kept.json", PROVENANCE, "mine.py", (), (), kept)
    recompile = functools.partial(run._recompile, record)
    assert recompile(then) == then["counts"]
    assert sys.modules["scaled"] is today

    a, b = league_run("first")[-1], league_run("second", 1.05)[-1]
    a, b = dataclasses.replace(a, compiled=[then]), dataclasses.replace(b, compiled=[now])
    said = str(report([a], [b], recompile=recompile))
    assert "scale_kernel" in said
    (line,) = [line.split() for line in said.splitlines() if line.split()[:1] == ["MUFU"]]
    assert line[1:] == [str(n) for n in (0, 0, now["counts"]["MUFU"])]
    (head,) = [line for line in said.splitlines() if line.split() == ["recorded", "recompiled", "now"]]
    same = dataclasses.replace(b, compiled=[then])
    assert head and "the same registers, memory and instructions" in str(report([a], [same]))


def test_a_kernel_of_another_value_for_an_argument_can_be_described():
    """Triton turns an argument that is 1 into a constant: the description repeats that."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from helpers.kernels import elementwise

    kernel = elementwise.square_elements_kernel
    signature = {"y_ptr": "*bf16", "x_ptr": "*bf16", "n_elements": "constexpr"}
    signature |= {"BLOCK_SIZE": "constexpr", "L2_HINT": "constexpr"}
    source = ASTSource(kernel, signature, {"n_elements": 1, "BLOCK_SIZE": 1024, "L2_HINT": "evict_last"})
    made = compiled.describe(
        triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    )
    assert made["request"]["constexprs"]["n_elements"] == 1 and made["request"]["num_warps"] == 8
    assert compiled.compile_again(kernel, made) == made["counts"]
    assert compiled.compile_again(kernel, made | {"request": None}) is None


# texts of another day ----------------------------------------------------------------------------------------------------


def test_the_leagues_entries_can_be_kept_and_loaded_beside_todays():
    from helpers.kernels import softmax

    for op in ("softmax", "gelu", "square"):
        entry = league_points.entry_of_op(op)
        kept = texts.texts_of(entry)
        assert entry.__module__ in kept and "helpers.kernels.ops" not in kept
        modules = texts.load(kept)
        old = texts.function_at(modules, texts.entry_of(entry))
        assert old is not entry and old.__name__ == entry.__name__
    from helpers.kernels import softmax as still

    assert still is softmax and sys.modules["helpers.kernels.softmax"] is softmax


def test_an_old_text_uses_the_old_text_of_what_it_imports(on_path):
    import importlib

    on_path("inner", "FACTOR = 2\n")
    on_path("outer", "import torch\nfrom inner import FACTOR\n\n\ndef scale(x):\n    return FACTOR * x\n")
    outer = importlib.import_module("outer")
    kept = texts.texts_of(outer.scale)
    assert set(kept) == {"outer", "inner"}
    kept = {**kept, "inner": "FACTOR = 3\n"}
    assert texts.function_at(texts.load(kept), "outer:scale")(1) == 3
    assert outer.scale(1) == 2 and importlib.import_module("inner").FACTOR == 2


@pytest.mark.parametrize("function", [lambda x: x, torch.square, len, torch.nn.functional.softmax, None])
def test_what_has_no_text_of_ones_own_is_not_kept(function):
    assert texts.texts_of(function) == {}


def test_a_module_that_registers_operators_is_not_loaded_twice():
    from helpers.kernels import ops

    assert texts.texts_of(ops.square) == {}


# the command, its GPU played ---------------------------------------------------------------------------------------------

BENCH = """
import torch
from helpers.workshop.bench import Case
from my_kernels import square


def cases():
    for n in (1000, 2000):
        x = torch.randn(n)
        yield Case({"n": n}, (x,), square, expected=torch.square, peers={"eager": torch.square})
"""


@pytest.fixture
def played(on_path, tmp_path, monkeypatch):
    """A GPU that is not there: tensors on the CPU, and times by contestant that the test sets."""
    times = {table.COPY: 100.0, table.OURS: 110.0, "eager": 120.0, measure.THEN: 110.0}
    asked: list[list[str]] = []

    def compare_many(functions, *, against, budget_s):
        asked.append(list(functions))
        for function in functions.values():
            function()
        ours = times[against]
        exact = lambda v: (v, v * 0.998, v * 1.002)  # noqa: E731
        return {
            name: table.Standing(name, us, exact(us)[1:], us / ours, exact(us / ours)[1:], 50)
            for name, us in ((name, times[name]) for name in functions)
        }

    monkeypatch.setattr(table, "compare_many", compare_many)
    monkeypatch.setattr(table, "host_us", lambda call, **_: 5.0)
    monkeypatch.setattr(compiled, "described", lambda call: [])
    monkeypatch.setattr(measure, "free_memory", lambda: None)
    monkeypatch.setattr(measure, "wait_for_gpu", lambda: None)
    monkeypatch.setattr(device, "require", lambda *names: None)
    monkeypatch.setattr(device, "gpu_spec", lambda: type("Spec", (), {"name": PROVENANCE.gpu["name"]}))
    monkeypatch.setattr(run, "live_provenance", lambda: PROVENANCE)
    on_path("my_kernels", "def square(x):\n    return x * x\n")
    (tmp_path / "mine.py").write_text(BENCH)
    said: list[str] = []

    def bench(**options) -> int:
        for name in ("my_kernels", "bench_mine"):
            sys.modules.pop(name, None)
        said.clear()
        asked.clear()
        common = {
            "only": {},
            "save": None,
            "baseline": None,
            "least": 0.01,
            "budget_s": 0.1,
            "say": said.append,
        }
        return run.bench(options.pop("file", None), **common | options)

    return bench, times, asked, said, on_path


def test_save_and_compare_a_file_of_ones_own(played, tmp_path):
    bench, times, asked, said, on_path = played
    kept = tmp_path / "kept.json"
    assert bench(file=tmp_path / "mine.py", save=kept) == 0
    assert any("n 2000: 110.00 µs, 1.100 ×" in line for line in said)
    case = json.loads(kept.read_text())["cases"][0]
    assert set(case["texts"]) == {"my_kernels"} and {r["contestant"] for r in case["rows"]} == {
        "copy",
        "eager",
        "ours",
    }
    # nothing changed: nothing to run beside, exit 0
    assert bench(baseline=str(kept)) == 0
    assert asked[0] == ["copy", "eager", "ours"] and "2 points compared: 2 without a change" in said[-1]
    # slower with the same text: each point is measured twice, exit 1
    times[table.OURS] = 121.0
    assert bench(baseline=str(kept)) == 1
    assert len(asked) == 4 and "slower  n 1000: 1.100 × (" in said[-1]
    # another text: the recorded one runs beside it
    on_path("my_kernels", "def square(x):\n    return x.square() + 0 * x\n")
    assert bench(baseline=str(kept), only={"n": [2000]}) == 1
    assert (
        asked[0] == ["copy", "eager", "ours", measure.THEN]
        and "of its recorded text's time in this run" in said[-1]
    )
    assert "1 point compared" in said[-1]
    # a wrong kernel is never timed
    on_path("my_kernels", "def square(x):\n    return x + x\n")
    assert bench(baseline=str(kept)) == 1
    assert "ours" not in str(asked) and "fails   n 1000: refused: Mismatch" in said[-1]


def test_what_cannot_be_measured_or_compared_is_a_sentence(played, tmp_path, monkeypatch):
    bench, _, _, _, _ = played
    kept = tmp_path / "kept.json"
    bench(file=tmp_path / "mine.py", save=kept)
    for options, says in (
        ({"baseline": str(tmp_path / "none.json")}, "There is no file"),
        ({"baseline": "fusion/leage"}, "no record 'fusion/leage' and no file"),
        (
            {"baseline": "lab/transpose"},
            "holds no points that can be measured again; these do: fusion/league",
        ),
        ({"baseline": "fusion/named"}, "holds a file instead of rows"),
        ({"baseline": str(kept), "only": {"n": [3]}}, "has no point with n=3"),
        ({"file": tmp_path / "mine.py", "only": {"m": [3]}}, "has no point with m=3"),
        ({"file": tmp_path / "none.py"}, "There is no file"),
        ({"baseline": "triton/launch-sweep", "save": kept}, "is kept by `make record`"),
        ({"save": tmp_path / "mine.py"}, "must name a .json file"),
    ):
        with pytest.raises(UsageError, match=says) as raised:
            bench(**options)
        assert len(str(raised.value).splitlines()) == 1
    monkeypatch.setattr(device, "gpu_spec", lambda: type("Spec", (), {"name": "NVIDIA B200"}))
    with pytest.raises(
        UsageError, match="was measured on NVIDIA H100 80GB HBM3, and this machine has NVIDIA B200"
    ):
        bench(baseline=str(kept))
    with pytest.raises(
        UsageError, match=r"fusion/league was recorded on .*h100, and this machine has NVIDIA B200"
    ):
        bench(baseline="fusion/league")


def test_another_file_is_never_written_over(played, tmp_path):
    bench, _, _, _, _ = played
    mine = tmp_path / "thesis.json"
    mine.write_text('{"chapters": 7}')
    with pytest.raises(UsageError, match="did not write; name another"):
        bench(file=tmp_path / "mine.py", save=mine)
    assert mine.read_text() == '{"chapters": 7}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", r"mine.py has no function cases\(\)"),
        ("def cases():\n    yield 3\n", "yielded a int instead of a Case"),
        ("import no_such_module\n", "mine.py failed: ModuleNotFoundError"),
        ("def cases():\n    raise RuntimeError('no')\n    yield\n", "mine.py failed: RuntimeError: no"),
    ],
)
def test_a_file_that_does_not_fit_is_named(played, tmp_path, text, says):
    bench, _, _, _, _ = played
    (tmp_path / "mine.py").write_text(text)
    path = list(sys.path)
    with pytest.raises(UsageError, match=says):
        bench(file=tmp_path / "mine.py")
    assert sys.path == path


# sweeps ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["triton/launch-sweep", "load_inline/shape-sweep", "triton/alignment-sweep", "fusion/softmax-sweep"])  # fmt: skip
def test_a_sweeps_record_can_be_measured_again(name):
    """Its points are today's points, and it does not differ from itself; a slower kernel with more registers is told."""
    case = json.loads((records.folder() / f"h200/{name}.json").read_text())["cases"][0]
    suite = suites.find(name)
    then = suite.read(case["rows"], ())
    assert {suites.key(m.point) for m in then} == {suites.key(t.point) for t in suite.tasks()}
    timed = [m for m in then if m.us]
    some = [m for m in then if run._chosen(m.point, {"n_cols": ["4096"], "dtype": ["float32"]})]
    assert some and {int(m.point["n_cols"]) for m in some} == {4096}
    assert len(timed) > 50 and suites.today(suite) == case["provenance"]["sources"]
    assert {against.compare(m, m, n_points=len(then)).verdict for m in timed} == {"same"}

    rows = copy.deepcopy(case["rows"])
    at = next(
        i for i, r in enumerate(rows) if r["verdict"] == "ok" and r["registers"] and r["median_us"] > 20
    )
    for column in ("median_us", "ci_low_us", "ci_high_us"):
        rows[at][column] *= 1.3
    rows[at]["registers"] += 40
    found = [
        against.compare(a, b, n_points=len(then)) for a, b in zip(then, suite.read(rows, ()), strict=True)
    ]
    made = against.Report(name, suite.reference, PROVENANCE, PROVENANCE, found)
    assert [f.verdict for f in found].count("slower") == 1 and made.exit_status == 1
    assert f"{rows[at]['registers']:.0f}" in next(
        line for line in str(made).splitlines() if "registers" in line
    )


# the command itself ------------------------------------------------------------------------------------------------------


def test_without_a_gpu_or_with_wrong_words_it_is_a_sentence_and_2(workbook):
    if device.has_gpu():
        pytest.skip("this machine has a GPU")
    for arguments, says in (
        ((), "An NVIDIA GPU that torch can use is not here"),
        (("--against", "fusion/league"), "An NVIDIA GPU that torch can use is not here"),
        (("--against", "nothing/here"), "There is no record 'nothing/here'"),
        (("--only", "n"), "is not NAME=VALUE"),
        (("--least", "-1"), "must not be negative"),
    ):
        done = workbook("bench", *arguments)
        assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


# on a GPU ----------------------------------------------------------------------------------------------------------------

TRITON_BENCH = """
import torch
import triton
from helpers.workshop.bench import Case
from scaled import scale_kernel


def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](y, x, x.numel(), BLOCK_SIZE=1024)
    return y


def cases():
    x = torch.randn(1 << 26, device="cuda")
    yield Case({"n": x.numel()}, (x,), scale, expected=lambda x: 2 * x, peers={"eager": lambda x: 2 * x})
"""


@pytest.mark.gpu
def test_a_slower_kernel_is_found_on_a_gpu(tmp_path):
    """Saved, unchanged (0), then computing for longer (1): paired, with its instructions beside the recorded ones."""
    (tmp_path / "scaled.py").write_text(KERNEL.replace("BODY", "x * 2.0"))
    (tmp_path / "mine.py").write_text(TRITON_BENCH)

    def bench(*arguments):
        return subprocess.run(
            command("bench", *arguments),
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=300,
        )

    done = bench("mine.py", "--save", "kept.json")
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = json.loads((tmp_path / "kept.json").read_text())["cases"][0]["kernels"]
    (made,) = kept["compiled"]
    assert made["kernel"] == "scale_kernel" and made["counts"]["registers"] > 0
    done = bench("--against", "kept.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The versions and the texts of the kernels are the same." in done.stdout
    wave = "x * 2.0 + 0.0 * (" + " + ".join(f"tl.sin(x * {i}.5) * tl.cos(x + {i})" for i in range(40)) + ")"
    (tmp_path / "scaled.py").write_text(KERNEL.replace("BODY", wave))
    done = bench("--against", "kept.json")
    assert done.returncode == 1, done.stdout + done.stderr
    assert (
        "the text of scale_kernel" in done.stdout
        and "in turns" in done.stdout
        and "recompiled" in done.stdout
    )


@pytest.mark.gpu
def test_what_ours_launches_is_seen_on_a_gpu():
    """Also by the path of `helpers.kernels`, which launches compiled kernels past Triton's own look-up."""
    from helpers.kernels import ops

    x = torch.randn(4096, 4096, device="cuda")
    for _ in range(2):  # compiled anew, then from the table
        for op, kernel in (("square", "square_elements_kernel"), ("softmax", "softmax_split_kernel")):
            (made,) = compiled.described(lambda op=op: getattr(ops, op)(x))
            assert made["kernel"] == kernel and made["counts"]["LDG"] > 0
            assert compiled.compile_again(
                vars(sys.modules[league_points.entry_of_op(op).__module__])[kernel], made
            )


@pytest.mark.gpu
def test_a_point_of_the_league_repeats_on_a_gpu(tmp_path):
    chosen = ("--only", "op=softmax", "--only", "dtype=float32", "--only", "n_cols=8192")
    for arguments in (("--save", tmp_path / "league.json"), ("--against", tmp_path / "league.json")):
        done = subprocess.run(
            command("bench", *chosen, *arguments),
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr

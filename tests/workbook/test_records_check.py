"""`workbook records --check`: the stored sets pass, and each kind of damage is reported."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import ROOT

from helpers import records
from workbook import catalogue
from workbook.records_check import checking, privacy
from workbook.usage import UsageError

HOME = "/home"  # written separately, because no committed text may contain a path in a personal folder
STORED = ROOT / "helpers" / "records"
# One of each kind: tables with and without kernels, a sweep, a report, a trace, generated code.
SMALL = (
    "fusion/padding",
    "profiling/bandwidths",
    "profiling/six-clocks",
    "profiling/steps",
    "triton/launch-sweep",
    "triton/output-code",
    "triton/race",
    "timer/aa",
)
TRACE = "profiling/steps-10000-10000.json.gz"
CODE = "triton/output-code-781-1823.py"


def copy_small(source: Path, target: Path) -> Path:
    for name in SMALL:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        record = source / f"{name}.json"
        shutil.copy(record, target / f"{name}.json")
        for case in json.loads(record.read_text())["cases"]:
            if "file" in case:
                shutil.copy(record.parent / case["file"], (target / name).parent)
    return target


@pytest.fixture(scope="module")
def today():
    return catalogue.current_sources(ROOT)


@pytest.fixture
def small_set(tmp_path, monkeypatch, today) -> Path:
    """A small set of an H200, checked against a small set of an H100."""
    copy_small(STORED / "h100", tmp_path / "stored" / "h100")
    monkeypatch.setenv("WORKBOOK_RECORDS", str(tmp_path / "stored"))
    monkeypatch.setattr(catalogue, "current_sources", lambda root: today)  # reading them takes a second
    return copy_small(STORED / "h200", tmp_path / "checked" / "h200")


def problems(folder: Path, names: tuple[str, ...] = ()) -> list[str]:
    n, report = checking.check(folder, root=ROOT, names=names)
    return report.splitlines()[:n]


def edit(name: str, change: Callable[[dict], object]) -> Callable[[Path], None]:
    """Damage a set: change each case of a record."""

    def damage(folder: Path) -> None:
        path = folder / f"{name}.json"
        record = json.loads(path.read_text())
        for case in record["cases"]:
            change(case)
        path.write_text(json.dumps(record))

    return damage


def gpu(**values) -> Callable[[Path], None]:
    return edit("triton/race", lambda case: case["provenance"]["gpu"].update(values))


def provenance(**values) -> Callable[[Path], None]:
    return edit("triton/race", lambda case: case["provenance"].update(values))


def bandwidth(**values) -> Callable[[Path], None]:
    return edit("profiling/bandwidths", lambda case: case["rows"][0].update(values))


def append(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + content)


def trace(**more) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        events = json.loads(gzip.decompress((folder / TRACE).read_bytes())) | more
        (folder / TRACE).write_bytes(gzip.compress(json.dumps(events).encode()))

    return damage


def forget(sources: dict[str, str]) -> None:
    sources.update(dict.fromkeys(sources, "0" * 64))


# What is done to a set, and the words that a problem must contain.
DAMAGE = {
    "a missing record": (
        lambda f: (f / "profiling/six-clocks.json").unlink(),
        "profiling/six-clocks missing",
    ),
    "other parameters": (
        edit("profiling/bandwidths", lambda case: case["params"].update(n_rows=64)),
        "profiling/bandwidths 10000",
    ),
    "an interrupted sweep": (
        edit("triton/launch-sweep", lambda case: case.update(rows=case["rows"][:100])),
        "triton/launch-sweep 100 1584",
    ),
    "a missing report": (lambda f: (f / "fusion/padding.ncu-rep").unlink(), "missing padding.ncu-rep"),
    "no version of torch": (provenance(torch=None), "triton/race torch None"),
    "an unknown driver": (provenance(driver="unknown"), "triton/race driver 'unknown'"),
    "a date in words": (provenance(date="yesterday"), "triton/race date 'yesterday'"),
    "no hashes": (provenance(sources=None), "triton/race sha256"),
    "a malformed hash": (provenance(sources={"mine": "abc"}), "triton/race sha256"),
    "an edited kernel": (
        edit("triton/launch-sweep", lambda case: forget(case["provenance"]["sources"])),
        "triton/launch-sweep older square",
    ),
    "half a GPU": (
        edit("triton/race", lambda case: case["provenance"]["gpu"].pop("l2_bytes")),
        "triton/race GPU",
    ),
    "no GPU": (provenance(gpu="H200"), "triton/race GPU"),
    "no copy": (gpu(copy_gb_per_s=None), "triton/race GPU"),
    "another GPU": (gpu(name="Tesla T4"), "triton/race Tesla T4 h200"),
    "faster than the memory": (bandwidth(gb_per_s=8000.0, median_us=100.0), "profiling/bandwidths 8,000"),
    "faster than any cache": (bandwidth(gb_per_s=60_000.0, median_us=0.5), "profiling/bandwidths 60,000"),
    "a negative time": (bandwidth(median_us=-3.5), "median_us -3.5"),
    "a word as time": (bandwidth(median_us="fast"), "median_us 'fast'"),
    "NaN": (bandwidth(gb_per_s=float("nan")), "gb_per_s nan"),
    "too much data": (lambda f: (f / "triton/more.py").write_bytes(b"#" * 16_000_000), "MB 16.0 MB"),
    "a path in a table": (
        edit("triton/race", lambda case: case["rows"][0].update(update=f"from\n{HOME}/ada/kernels.py")),
        f"triton/race.json '{HOME}/ada/kernels.py'",
    ),
    "a path with escaped slashes": (
        lambda f: (f / "triton/race.json").write_text(
            (f / "triton/race.json").read_text().replace('"triton/race"', r'"see \/scratch\/ada\/x"')
        ),
        "triton/race.json '/scratch/ada/x'",
    ),
    "a path on Windows": (append(CODE, rb"# C:\Users\Ada\kernels"), f"{CODE} Ada"),
    "a user's cache": (append(CODE, b"# /tmp/torchinductor_ada/x.py\n"), f"{CODE} 'torchinductor_ada'"),
    "a path in a report": (
        append("fusion/padding.ncu-rep", f"\0\x12{HOME}/ada/helpers\0".encode()),
        f"fusion/padding.ncu-rep '{HOME}/ada/helpers'",
    ),
    "a path in UTF-16": (
        append("fusion/padding.ncu-rep", "\xff/Users/ada/course".encode("utf-16-le")),
        "fusion/padding.ncu-rep /Users/ada/course",
    ),
    "a path in a trace": (trace(traceName="/mnt/ada/trace.json"), f"{TRACE} '/mnt/ada/trace.json'"),
    "a host in a trace": (trace(distributedInfo={"hostname": "gpu17.cluster"}), f"{TRACE} gpu17.cluster"),
    "an e-mail address": (trace(by="ada@example.org"), f"{TRACE} 'ada@example.org'"),
}


@pytest.mark.parametrize("name", records.sets())
def test_the_stored_sets_have_no_problems(cli, name):
    shown = cli("records", "--check", STORED / name)
    assert shown.returncode == 0, shown.stdout
    assert f"{name}: " in shown.stdout and "no problems" in shown.stdout


def test_a_good_set_has_no_problems(small_set):
    assert problems(small_set) == []
    (small_set / "timer/aa.json").unlink()  # `make record` doesn't measure it
    assert problems(small_set) == []


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_reported(small_set, name):
    damage, words = DAMAGE[name]
    damage(small_set)
    found = problems(small_set)
    assert len(found) == 1 and found[0].endswith("."), found
    assert all(word in found[0] for word in words.split()), found


def test_the_names_of_the_machine_are_found(small_set):
    edit("triton/race", lambda case: case["rows"][0].update(update="on turing-3 by lovelace"))(small_set)
    (found,) = problems(small_set, ("turing-3", "lovelace"))
    assert "turing-3" in found
    assert not problems(small_set, ("uring", "love"))  # parts of words don't count


def test_generic_names_are_not_private(monkeypatch):
    monkeypatch.setattr(privacy.socket, "gethostname", lambda: "gpu-box-7.example.org")
    monkeypatch.setattr(privacy.Path, "home", classmethod(lambda cls: Path("/root")))
    assert privacy.names_of_this_machine() == ("gpu-box-7", "gpu-box-7.example.org")


def test_a_reason_explains_a_gap_until_the_gap_is_closed(small_set, tmp_path):
    reasons = tmp_path / "stored" / "reasons.yaml"
    gap = {"kind": "missing", "records": ["triton/race"], "why": "This GPU has no atomics."}
    reasons.write_text(json.dumps({"h200": [gap]}))
    (outdated,) = problems(small_set)
    assert "triton/race" in outdated and "remove the entry" in outdated
    (small_set / "triton/race.json").unlink()
    n, report = checking.check(small_set, root=ROOT, names=())
    assert n == 0 and "This GPU has no atomics." in report
    edit("profiling/bandwidths", lambda case: case["rows"][0].update(update=f"{HOME}/ada/x"))(small_set)
    private = {"kind": "private", "records": ["profiling/bandwidths.json"], "why": "I like it."}
    reasons.write_text(json.dumps({"h200": [gap, private]}))
    assert len(problems(small_set)) == 1  # personal data cannot be explained
    reasons.write_text("h200: 3")
    with pytest.raises(UsageError, match=r"reasons\.yaml"):
        problems(small_set)


def test_a_damaged_record_is_named(small_set):
    (small_set / "triton/race.json").write_text("{")
    with pytest.raises(ValueError, match=r"triton/race\.json"):
        problems(small_set)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([STORED / "none"], "none"), ([STORED], str(STORED)), ([STORED / "h200", "fusion/"], "NAME")],
)
def test_wrong_folders_are_refused(refusal, arguments, expected):
    assert expected in refusal("records", "--check", *arguments)


def test_a_problem_is_exit_status_1(small_set, cli):
    (small_set / "triton/race.json").unlink()
    shown = cli("records", "--check", small_set)
    assert shown.returncode == 1 and "triton/race" in shown.stdout and "1 problem." in shown.stdout

"""The versions that were tried: where they are kept, what `workbook doctor` says of others, and who keeps new
ones.
"""

from __future__ import annotations

import shutil
import sys
import tomllib

import latest
import pytest
from commands import ROOT
from packaging.requirements import Requirement
from packaging.version import Version

from helpers import device, tested_versions


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The list in a file of its own."""
    monkeypatch.setattr(tested_versions, "FILE", tmp_path / "tested_versions.json")
    shutil.copyfile(ROOT / "helpers" / "tested_versions.json", tested_versions.FILE)
    return tested_versions.FILE


def test_the_oldest_that_pyproject_admits_and_the_pins_were_tried():
    """So neither can move without a run of everything: `make latest WITH=…`, or `make test` for the pins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if line.count("==") == 1
    )
    assert {name: pins[name] for name in ("torch", "triton")} in tested_versions.pairs()
    for requirement in map(Requirement, project["dependencies"]):
        if requirement.name in ("torch", "triton"):
            (lowest,) = requirement.specifier  # no upper end: what is newer than tried is told, not refused
            assert lowest.operator == ">="
            assert Version(lowest.version) == Version(tested_versions.pairs()[0][requirement.name])


@pytest.mark.parametrize("torch", ["2.11.0+cu128", "2.13.0+cpu", "2.15.0", "2.15.1"])
def test_what_was_tried_is_not_named(torch):
    assert tested_versions.untested({"torch": torch, "triton": "3.6.0"}) is None
    assert tested_versions.untested({"torch": torch, "triton": None}) is None


@pytest.mark.parametrize(
    ("torch", "triton", "said"),
    [
        ("99.1.0+cu140", "3.9.0", "torch 99.1.0+cu140 is newer"),
        ("99.1.0a0+git1234", "42.0", "torch 99.1.0a0+git1234 is newer and triton 42.0 is newer"),
        ("2.13.0", "3.5.1", "triton 3.5.1 is older"),
        ("2.9.0", None, "torch 2.9.0 is older"),
    ],
)  # fmt: skip
def test_doctor_names_what_is_newer_or_older_in_one_sentence(monkeypatch, copied, torch, triton, said):
    copied.write_text('[{"torch": "2.11.0", "triton": "3.6.0"}, {"torch": "2.100.0", "triton": "3.10.0"}]')
    monkeypatch.setattr("torch.__version__", torch)
    monkeypatch.setattr(device, "package_version", {"triton": triton, "numpy": "2.4.6"}.get)
    survey = device.survey()
    (sentence,) = [line for line in survey.problems if "tested versions" in line]
    assert f"!!  {sentence}\n" in survey.doctor() and sentence in repr(survey)
    assert sentence.startswith(said)
    assert "(torch 2.11.0 to 2.100.0, triton 3.6.0 to 3.10.0): " in sentence
    assert ("it may work" in sentence) == ("newer" in said)
    assert "pip install 'torch==2.100.0'" in sentence
    assert survey.ok == (triton is not None)


@pytest.mark.parametrize(
    ("triton", "numpy", "named"),
    [("3.6.0", "2.4.0", True), ("3.6.0", "2.3.5", False), ("3.7.1", "2.4.0", False), (None, "2.4.0", False)],
)
def test_doctor_names_the_interpreter_that_fails_with_a_newer_numpy(monkeypatch, triton, numpy, named):
    monkeypatch.setattr(device, "package_version", {"triton": triton, "numpy": numpy}.get)
    said = [line for line in device.survey().problems if "pip install 'numpy<2.4'" in line]
    assert bool(said) == named


def test_latest_names_the_versions_that_it_took():
    lines = list(latest.versions())
    (torch,) = [line for line in lines if line.startswith("torch ")]
    assert torch.startswith(f"torch {device.package_version('torch')}")
    assert len(lines) > 25


def step(status: int) -> list[str]:
    return [sys.executable, "-c", f"raise SystemExit({status})"]


def test_latest_goes_on_after_a_failure_and_keeps_nothing_of_it(capfd, copied, monkeypatch):
    monkeypatch.setattr(latest, "version", {"torch": "99.0.0+cpu", "triton": "42.0.0"}.get)
    before = copied.read_text()
    assert latest.run({"first": step(3), "second": step(0)}, keep=True) == 1
    said = capfd.readouterr().out
    assert "first: failed (exit status 3)" in said and "second: passed" in said
    assert latest.run({"part": step(0)}, keep=False) == 0
    assert "Only a part of the tests ran" in capfd.readouterr().out
    assert copied.read_text() == before


def test_latest_keeps_the_pair_that_all_passed_with(capfd, copied, monkeypatch):
    pair = {"torch": "99.0.0", "triton": "42.0.0"}
    monkeypatch.setattr(latest, "version", {"torch": "99.0.0+cpu", "triton": "42.0.0"}.get)
    known = tested_versions.pairs()
    assert latest.run({"all": step(0)}, keep=True) == 0
    assert "has torch 99.0.0 with triton 42.0.0 now: commit it" in capfd.readouterr().out
    assert tested_versions.pairs() == [*known, pair] and tested_versions.untested(pair) is None
    kept = copied.read_text()
    assert latest.run({"all": step(0)}, keep=True) == 0
    assert "commit" not in capfd.readouterr().out and copied.read_text() == kept


def test_latest_runs_the_course_the_labs_and_all_tests():
    made = latest.steps(["-x"], ROOT / "build" / "latest")
    assert [" ".join(words[1:4]).replace(f"{ROOT}/", "") for words in made.values()] == [
        "-m workbook run", "-m workbook run", "-m pytest -x",
    ]  # fmt: skip
    assert (
        str(ROOT / "notebooks") in made["course"]
        and str(ROOT / "labs" / "solutions") in made["labs' solutions"]
    )

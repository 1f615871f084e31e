"""`workbook records`: the list of records, and whether their kernels have changed since."""

from __future__ import annotations

import json
import shutil

import pytest
from commands import ROOT

from helpers import records
from workbook import catalogue
from workbook.usage import UsageError


@pytest.fixture(scope="module")
def today():
    return catalogue.current_sources(ROOT)


def test_the_hash_of_a_kernels_text_is_that_in_its_record(today):
    """The source cut out of the file equals what `inspect.getsource` returns for the loaded kernel."""
    from helpers.kernels import elementwise, softmax, square

    kernels = [
        value
        for module in (elementwise, softmax, square)
        for value in vars(module).values()
        if type(value).__name__ in ("JITFunction", "InterpretedFunction")
        and value.fn.__module__ == module.__name__
    ]
    assert len(kernels) > 10
    for kernel in kernels:
        name, sha = records.fingerprint(kernel)
        assert name in today.functions and sha in today.shas, name


def test_an_edited_kernel_makes_its_records_stale(today):
    table = catalogue.summaries([], "", today)
    assert {"h100", "h200"} <= table["triton/launch-sweep"].keys()
    sources = json.loads((records.folder() / "h100/triton/launch-sweep.json").read_text())["cases"][0]
    name, sha = next(iter(sources["provenance"]["sources"].items()))
    edited = catalogue.KernelSources(today.shas - {sha}, today.functions)
    found = catalogue.summaries(["h100"], "triton/launch-sweep", edited)["triton/launch-sweep"]["h100"]
    assert (found.kernels, found.changed) == ("changed", (name,))
    assert name in catalogue.listing({"triton/launch-sweep": {"h100": found}})
    nowhere = catalogue.KernelSources(edited.shas, set())
    found = catalogue.summaries(["h100"], "triton/launch-sweep", nowhere)["triton/launch-sweep"]["h100"]
    assert (found.kernels, found.not_found) == ("unknown", (name,))


def test_a_source_without_a_name_never_counts_as_changed():
    cases = [{"provenance": {"sources": {records.UNNAMED: "0" * 64}}}]
    assert catalogue.changed_kernels(cases, catalogue.KernelSources(set(), {records.UNNAMED})) == []


def test_the_command_lists_every_record_of_both_gpus(cli):
    done = cli("records", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for gpu in ("h100", "h200"):
        for path in (ROOT / "helpers/records" / gpu).rglob("*.json"):
            assert path.relative_to(ROOT / "helpers/records" / gpu).with_suffix("").as_posix() in done.stdout
    head, columns, *_ = done.stdout.splitlines()
    assert head.split() == ["h100", "h200"] and columns.split().count("triton") == 2
    one = cli("records", "launch-sweep", "--gpu", "h200")
    assert (
        "h100" not in one.stdout and "2026-11-" in one.stdout and max(map(len, one.stdout.splitlines())) < 125
    )


@pytest.mark.parametrize("arguments", [["--gpu", "b200"], ["fusion/leage"]])
def test_unknown_records_are_refused(refusal, arguments):
    assert f"'{arguments[-1]}'" in refusal("records", *arguments)


@pytest.mark.parametrize("text", ["{", "[]", '{"cases": [{"rows": []}]}'])
def test_a_damaged_record_is_named(today, tmp_path, monkeypatch, text):
    shutil.copytree(ROOT / "helpers/records/h200/lab", tmp_path / "records/h200/lab")
    (tmp_path / "records/h200/lab/transpose.json").write_text(text)
    monkeypatch.setenv("WORKBOOK_RECORDS", str(tmp_path / "records"))
    with pytest.raises(UsageError, match=r"transpose\.json"):
        catalogue.summaries([], "", today)
    assert "lab/four-clocks" in catalogue.summaries([], "four-clocks", today)

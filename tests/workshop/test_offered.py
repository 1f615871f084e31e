"""`workbook records --check`: a set that somebody made on their GPU, broken in every way, and the sets that are kept."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import ROOT

from helpers import records
from helpers.workshop import catalogue, offered
from helpers.workshop.offered import complete, plausible, private
from helpers.workshop.usage import UsageError

HOME = "/home"  # apart from a name: no committed text may hold a path of a person's folder
KEPT = ROOT / "helpers" / "records"
# One of each kind: tables with and without kernels, a sweep, a report, a trace, generated code.
SMALL = (
    "fusion/padding",
    "profiling/bandwidths",
    "profiling/six-clocks",
    "profiling/steps",
    "triton/fixed-block",
    "triton/launch-sweep",
    "triton/output-code",
    "triton/race",
    "timer/aa",
)


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
    return catalogue.texts_today(ROOT)


@pytest.fixture
def offer(tmp_path, monkeypatch, today) -> Path:
    """A small set of an H200, offered where a small set of an H100 is kept."""
    copy_small(KEPT / "h100", tmp_path / "kept" / "h100")
    monkeypatch.setenv("WORKBOOK_RECORDS", str(tmp_path / "kept"))
    monkeypatch.setattr(catalogue, "texts_today", lambda root: today)  # reading them takes a second
    return copy_small(KEPT / "h200", tmp_path / "offered" / "h200")


def sentences(folder: Path, names: tuple[str, ...] = ()) -> list[str]:
    return list(offered.check(folder, root=ROOT, names=names).problems)


def edit(name: str, change: Callable[[dict], object]) -> Callable[[Path], None]:
    """A break: change each case of a record."""

    def broken(folder: Path) -> None:
        path = folder / f"{name}.json"
        record = json.loads(path.read_text())
        for case in record["cases"]:
            change(case)
        path.write_text(json.dumps(record))

    return broken


def gpu(**values) -> Callable[[dict], None]:
    return lambda case: case["provenance"]["gpu"].update(values)


def provenance(**values) -> Callable[[dict], None]:
    return lambda case: case["provenance"].update(values)


def first_row(**values) -> Callable[[dict], None]:
    return lambda case: case["rows"][0].update(values)


def everywhere(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        for name in SMALL:
            edit(name, change)(folder)

    return broken


def appended(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + content)


def trace(**more) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        path = folder / "profiling" / "steps-10000-10000.json.gz"
        events = json.loads(gzip.decompress(path.read_bytes())) | more
        path.write_bytes(gzip.compress(json.dumps(events).encode()))

    return broken


def zipped(folder: Path) -> None:
    """A report in an archive in the place of a trace: a path two layers deep."""
    inner = folder.parent / "inner.zip"
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.txt", f"made in {HOME}/ada/kernels today")
    (folder / "profiling" / "steps-10000-10000.json.gz").write_bytes(gzip.compress(inner.read_bytes()))


def packed_as(folder: Path) -> None:
    """gzip keeps the name that a file had."""
    path = folder / "profiling" / "steps-10000-10000.json.gz"
    content = gzip.compress(gzip.decompress(path.read_bytes()))
    path.write_bytes(
        content[:3] + b"\x08" + content[4:10] + f"{HOME}/ada/steps.json\0".encode() + content[10:]
    )


BREAKS = {
    # incomplete
    "a record is missing": (
        lambda f: (f / "profiling/six-clocks.json").unlink(),
        "profiling/six-clocks is missing (h100 has it)",
    ),
    "a damaged record": (
        lambda f: (f / "triton/race.json").write_text("{"),
        "triton/race.json is damaged or no record",
    ),
    "a record whose provenance is a word": (
        edit("triton/race", lambda case: case.update(provenance="mine")),
        "triton/race.json is damaged or no record",
    ),
    "a case of other parameters": (
        edit("profiling/bandwidths", lambda case: case["params"].update(n_rows=64)),
        "profiling/bandwidths has no case with n_rows=10000, n_cols=10000",
    ),
    "a column is missing": (
        edit("profiling/bandwidths", lambda case: case["columns"].remove("gb_per_s")),
        "profiling/bandwidths lacks the columns gb_per_s",
    ),
    "a sweep that was broken off": (
        edit("triton/launch-sweep", lambda case: case.update(rows=case["rows"][:100])),
        "triton/launch-sweep has 100 rows where the other sets have 1584",
    ),
    "no rows at all": (
        edit("triton/race", lambda case: case.update(rows=[])),
        "triton/race has a case with neither rows nor a file",
    ),
    # files
    "the report is missing": (lambda f: (f / "fusion/padding.ncu-rep").unlink(), "which is not there"),
    "the report is empty": (lambda f: (f / "fusion/padding.ncu-rep").write_bytes(b""), "which is empty"),
    "a report that is none": (
        lambda f: (f / "fusion/padding.ncu-rep").write_bytes(b"PK\3\4 no report"),
        "padding.ncu-rep does not open (ReportError)",
    ),
    "another GPU's report": (
        lambda f: shutil.copy(KEPT / "h100/fusion/padding.ncu-rep", f / "fusion/padding.ncu-rep"),
        "padding.ncu-rep is a report of NVIDIA H100 80GB HBM3",
    ),
    "a trace that was cut short": (
        lambda f: (f / "profiling/steps-10000-10000.json.gz").write_bytes(
            (f / "profiling/steps-10000-10000.json.gz").read_bytes()[:900]
        ),
        "steps-10000-10000.json.gz does not open",
    ),
    "generated code that is none": (
        appended("triton/output-code-781-1823.py", b"\nthis is no Python\n"),
        "output-code-781-1823.py does not open (SyntaxError)",
    ),
    "a file outside": (
        edit("profiling/steps", lambda case: case.update(file="../../secret")),
        "names the file '../../secret', which is no name of a file beside it",
    ),
    "a file left over": (
        lambda f: (f / "triton/notes.txt").write_text("x"),
        "triton/notes.txt belongs to no record",
    ),
    # provenance
    "no version of torch": (edit("triton/race", provenance(torch=None)), "names no version of torch"),
    "no driver": (edit("triton/race", provenance(driver="unknown")), "names no version of driver"),
    "no triton": (edit("triton/race", lambda case: case["provenance"].pop("triton")), "no version of triton"),
    "a day in words": (edit("triton/race", provenance(date="yesterday")), "its day is 'yesterday'"),
    "a day to come": (edit("triton/race", provenance(date="2999-01-01")), "2999-01-01, which cannot be"),
    "a day before the workbook": (edit("triton/race", provenance(date="1970-01-01")), "which cannot be"),
    "an absurd clock": (edit("triton/race", provenance(sm_clock_mhz=1_980_000)), "sm_clock_mhz is 1980000"),
    "no hashes": (edit("triton/race", provenance(sources=None)), "no hashes of the kernels' texts"),
    "a hash that is none": (
        edit("triton/launch-sweep", lambda case: case["provenance"]["sources"].update(mine="abc")),
        "the hash of mine is no sha256",
    ),
    "an edited kernel": (
        edit(
            "triton/launch-sweep",
            lambda case: case["provenance"].update(sources=dict.fromkeys(case["provenance"]["sources"], "0" * 64)),
        ),
        "triton/launch-sweep is of another text of ",
    ),
    "a kernel that nobody has": (
        edit("triton/launch-sweep", lambda case: case["provenance"]["sources"].update(my_own="0" * 64)),
        "triton/launch-sweep is of a text of my_own that stands neither here nor in another set",
    ),
    "half a GPU": (edit("triton/race", lambda case: case["provenance"]["gpu"].pop("l2_bytes")), "lacking: l2_bytes"),
    "no GPU": (edit("triton/race", provenance(gpu="H200")), "does not describe the GPU"),
    "no SMs": (edit("triton/race", gpu(sm_count=0)), "its GPU's sm_count is 0"),
    "no copy": (edit("triton/race", gpu(copy_gb_per_s=None)), "has no copy_gb_per_s"),
    "a busy GPU's copy": (edit("triton/race", gpu(copy_gb_per_s=900.0)), "its GPU copies 900 GB/s where"),
    "a copy above the memory's peak": (edit("triton/race", gpu(copy_gb_per_s=6000.0)), "copies 6,000 GB/s"),
    "two GPUs": (edit("triton/race", gpu(name="NVIDIA H100")), "The set is of several GPUs, NVIDIA H100, NVIDIA H200"),
    "the folder of another GPU": (everywhere(gpu(name="Tesla T4")), "name it t4"),
    # figures
    "faster than the memory": (
        edit("profiling/bandwidths", first_row(gb_per_s=5200.0, median_us=153.8)),
        "gb_per_s is 5,200, more than 10% above the 4,",
    ),
    "faster than any cache": (
        edit("triton/launch-sweep", first_row(gb_per_s=60_000.0, median_us=0.5)),
        "gb_per_s is 60,000, more than 10% above the 4",
    ),
    "no time": (edit("profiling/bandwidths", first_row(median_us=0)), "median_us is 0, and a kernel takes more"),
    "a negative time": (edit("profiling/bandwidths", first_row(median_us=-3.5)), "median_us is -3.5"),
    "hours": (edit("profiling/bandwidths", first_row(median_us=3.6e9)), "less than a minute"),
    "a word for a time": (edit("profiling/bandwidths", first_row(median_us="fast")), "median_us is 'fast'"),
    "NaN": (edit("profiling/bandwidths", first_row(gb_per_s=float("nan"))), "gb_per_s is nan"),
    "a median outside its interval": (
        edit("profiling/bandwidths", first_row(ci_low_us=400.0, ci_high_us=401.0)),
        "lies outside its own interval",
    ),
    # sizes
    "a large record": (
        edit("triton/race", lambda case: case.update(notes=["x" * 1000] * 1200)),
        "triton/race.json has 1.2 MB, and may have 1",
    ),
    "a large report": (
        appended("fusion/padding.ncu-rep", bytes(6_000_000)),
        "fusion/padding.ncu-rep has 6.4 MB, and may have 6",
    ),
    "a large set": (
        lambda f: [(f / f"triton/more-{n}.py").write_bytes(b"#" * 900_000) for n in range(14)],
        " MB, and may have 12: leave out what is largest",
    ),
    # a person's machine
    "a path in a table": (
        edit("triton/race", first_row(update=f"from {HOME}/ada/kernels.py")),
        f"triton/race.json holds a path of the machine, '{HOME}/ada/kernels.py'",
    ),
    "a path whose slashes are escaped": (
        lambda f: (f / "triton/race.json").write_text(
            (f / "triton/race.json").read_text().replace('"triton/race"', r'"see \/scratch\/ada\/x"')
        ),
        "holds a path of the machine, '/scratch/ada/x'",
    ),
    "a path on Windows": (
        edit("triton/race", first_row(update=r"C:\Users\Ada\kernels")),
        "holds the path of a person's folder",
    ),
    "a path in generated code": (
        appended("triton/output-code-781-1823.py", b"# kernel path: /data/ada/cache/abc.py\n"),
        "holds a path of the machine, '/data/ada/cache/abc.py'",
    ),
    "a user's cache": (
        appended("triton/output-code-781-1823.py", b"# /tmp/torchinductor_ada/x.py\n"),
        "holds a user's name, 'torchinductor_ada'",
    ),
    "a path in a report": (
        appended("fusion/padding.ncu-rep", f"\0\x12{HOME}/ada/course/helpers\0".encode()),
        f"fusion/padding.ncu-rep holds the path of a person's folder, '{HOME}/ada/course/helpers'",
    ),
    "a path in UTF-16 in a report": (
        appended("fusion/padding.ncu-rep", "\xff/Users/ada/course".encode("utf-16-le")),
        "holds the path of a person's folder, '/Users/ada/course",
    ),
    "a path in a trace": (
        trace(traceName="/mnt/ada/trace.json"),
        "(in steps-10000-10000.json) holds a path of the machine, '/mnt/ada/trace.json'",
    ),
    "a host in a trace": (
        trace(distributedInfo={"hostname": "gpu17.cluster"}),
        """holds a machine's or a user's name, '"hostname": "gpu17.cluster"'""",
    ),
    "an address in a trace": (trace(init="tcp://10.12.0.7:29500"), "an address in a private network, '10.12.0.7'"),
    "an e-mail address": (trace(by="ada@example.org"), "an e-mail address, 'ada@example.org'"),
    "a GPU's number": (
        trace(gpu="GPU-0a1b2c3d-1111-2222-3333-444455556666"),
        "holds one GPU's own number",
    ),
    "a path in an archive in an archive": (zipped, f"/notes.txt) holds a path of the machine, '{HOME}/ada/kernels'"),
    "the name that a trace was packed under": (packed_as, f"'s own name) holds a path of the machine, '{HOME}/ada/steps.json'"),
}  # fmt: skip


def test_the_sets_that_are_kept_stand(workbook):
    for name in records.sets():
        shown = workbook("records", "--check", str(KEPT / name))
        assert shown.returncode == 0, shown.stdout
        assert f"{name} stands: " in shown.stdout


def test_a_good_offer_stands(offer):
    verdict = offered.check(offer, root=ROOT, names=())
    assert verdict.problems == () and verdict.known == {}
    assert str(verdict).endswith(f"h200 stands: {len(SMALL)} records.")


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_set_is_named(offer, name):
    damage, expected = BREAKS[name]
    damage(offer)
    found = sentences(offer)
    assert any(expected in one for one in found), found
    assert all(one.endswith((".", ")")) for one in found)


def test_what_scripts_make_may_be_missing(offer):
    (offer / "timer/aa.json").unlink()
    verdict = offered.check(offer, root=ROOT, names=())
    assert not verdict.problems and verdict.left_out == ("timer/aa",)
    assert "need not be (scripts of their own make them): timer/aa." in str(verdict)
    assert complete.optional("triton/launch-sweep-counters") and not complete.optional("wide_rows/counters")


def test_the_names_of_the_machine_that_recorded_are_found(offer):
    edit("triton/race", first_row(update="measured on turing-3 by lovelace"))(offer)
    found = sentences(offer, ("turing-3", "lovelace"))
    assert (
        sum("a name of this machine or its user" in one for one in found) == 1
    )  # one sentence for each kind and file
    assert not sentences(offer, ("uring", "love"))  # a whole word, not a part


def test_names_that_anybody_has_are_no_names(monkeypatch):
    monkeypatch.setattr(private.getpass, "getuser", lambda: "ubuntu")
    monkeypatch.setattr(private.socket, "gethostname", lambda: "gpu-box-7.example.org")
    monkeypatch.setattr(private.Path, "home", classmethod(lambda cls: Path("/root")))
    assert private.this_machine() == ("gpu-box-7", "gpu-box-7.example.org")


def test_a_sentence_a_kind_and_not_a_hundred(offer):
    text = base64.b64encode(bytes(range(200))).decode()
    lines = "\n".join(f"# {HOME}/ada/{text[n]}x/{n}.py" for n in range(100))
    appended("triton/output-code-781-1823.py", lines.encode())(offer)
    assert len(sentences(offer)) == 1


def test_a_reason_explains_a_gap_and_is_named_once_it_is_closed(offer, tmp_path):
    reasons = tmp_path / "kept" / "reasons.yaml"
    gap = {"kind": "missing", "records": ["triton/race"], "why": "This GPU has no atomics."}
    reasons.write_text(json.dumps({"h200": [gap]}))
    assert sentences(offer) == [
        "reasons.yaml explains that triton/race is missing, and it is not: take it out there."
    ]
    (offer / "triton/race.json").unlink()
    verdict = offered.check(offer, root=ROOT, names=())
    assert not verdict.problems and verdict.known == {"This GPU has no atomics.": 1}
    reasons.write_text(json.dumps({"h200": [{**gap, "kind": "private"}]}))
    with pytest.raises(UsageError, match="a kind out of missing, incomplete, text; it has 'private'"):
        sentences(offer)
    reasons.write_text("h200: 3")
    with pytest.raises(UsageError, match="has not its form"):
        sentences(offer)


def test_the_roofline_of_a_copy():
    """Beyond the L2 the copy, in it ten times that, and between the two what the written part allows."""
    assert plausible.roofline_gb_per_s(3000, 1e12, 50e6) == pytest.approx(3000, rel=1e-4)
    assert plausible.roofline_gb_per_s(3000, 100e6, 50e6) == 6000
    assert (
        plausible.roofline_gb_per_s(3000, 50e6, 50e6)
        == plausible.roofline_gb_per_s(3000, None, 50e6)
        == 30_000
    )


def test_the_command_refuses_in_a_sentence(workbook, tmp_path):
    for arguments, said in (
        ([str(tmp_path / "none")], "is no folder"),
        ([str(tmp_path)], "There is no record in"),
        ([str(KEPT)], "is no set of records"),
        ([str(KEPT / "h200"), "fusion/"], "give it without NAME"),
    ):
        shown = workbook("records", "--check", *arguments)
        assert shown.returncode == 2 and said in shown.stderr and len(shown.stderr.splitlines()) == 1


def test_the_command_exits_with_1(offer, workbook):
    (offer / "triton/race.json").unlink()
    shown = workbook("records", "--check", str(offer))
    assert shown.returncode == 1
    assert shown.stdout.splitlines()[-1].endswith(f"h200: 1 problem in {len(SMALL) - 1} records.")

"""Live and kept, or replayed with provenance."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from helpers import device, records
from helpers.records.files import as_text

GPU = {
    "name": "NVIDIA H100 80GB HBM3",
    "compute_capability": [9, 0],
    "sm_count": 132,
    "warp_size": 32,
    "max_threads_per_sm": 2048,
    "max_blocks_per_sm": 32,
    "registers_per_sm": 65536,
    "shared_bytes_per_sm": 233472,
    "l2_bytes": 52428800,
    "memory_bytes": 85017493504,
    "peak_gb_per_s": 3352.3,
    "copy_gb_per_s": 3003.2,
}


@pytest.fixture
def on_gpu(tmp_path, monkeypatch):
    """As on a GPU with recording on, into a folder of the test's own. Returns a switch back to no GPU."""
    provenance = records.Provenance(GPU, "580", "13.0", "2.11.0", "3.6.0", 1980, 2619, "2026-11-21")
    monkeypatch.setenv("WORKBOOK_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("WORKBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WORKBOOK_RECORD", "1")
    monkeypatch.setattr("helpers.records.replay.live_provenance", lambda: provenance)
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(device, "gpu_spec", lambda: device.GpuSpec.from_dict(GPU))

    def leave():
        monkeypatch.setattr(device, "has_gpu", lambda: False)
        monkeypatch.setattr(device, "gpu_spec", lambda: None)

    return leave


@pytest.fixture
def shown(monkeypatch):
    """What was displayed, as mime bundles."""
    import IPython.display

    bundles = []
    monkeypatch.setattr(IPython.display, "publish_display_data", lambda data, **_: bundles.append(data))
    return bundles


def test_the_clock_is_read_after_the_gpu_has_worked(monkeypatch):
    """A GPU that idles runs at a fifth of its clock: what was measured ran at the other."""
    from types import SimpleNamespace

    from helpers.records import origin

    clock = {"mhz": 345}

    def copied():
        clock["mhz"] = 1980
        return device.GpuSpec.from_dict(GPU)

    nvml = SimpleNamespace(
        NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, nvmlDeviceGetClockInfo=lambda handle, which: clock["mhz"]
    )
    monkeypatch.setattr(device, "gpu_spec", copied)
    monkeypatch.setattr(device, "nvml_handle", lambda: (nvml, None))
    assert origin.live_provenance.__wrapped__().sm_clock_mhz == 1980


def never():
    raise AssertionError("the measurement ran without a GPU")


def test_round_trip_keeps_values_and_provenance(on_gpu, shown):
    rows = [
        {"n": 1, "us": 1.234567890123, "name": "a", "ci": [1.0, 2.0]},
        {"n": 2, "us": None, "name": "b", "ci": []},
    ]
    live = records.measured("lesson/what", lambda: rows, sources=["__global__ void square(float* x) {}"])
    on_gpu()
    replayed = records.measured("lesson/what", never, sources=["__global__ void square(float* x) {}"])
    assert replayed.to_dict("records")[0] == live.to_dict("records")[0]
    assert pd.isna(replayed["us"][1]) and replayed["ci"][1] == []
    assert replayed.attrs["provenance"].gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert set(replayed.attrs["provenance"].sources) == {"square"}
    modes = [bundle[records.PROVENANCE_MIME]["mode"] for bundle in shown]
    assert modes == ["live", "replayed"]
    assert "Replayed, not measured here: NVIDIA H100 80GB HBM3, 2026-11-21" in shown[1]["text/plain"]
    assert "changed" not in shown[1]["text/plain"]


SQUARE = "__global__ void square(float* x) {}"
EDITED = "__global__ void square(float* x) { x[0] = 1; }"
CHANGED = "square has changed since the recording"


@pytest.mark.parametrize("recorded", [[SQUARE], [SQUARE, "a text"]])
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ([EDITED], CHANGED),
        ([EDITED, "another text"], "The source measured here and square have changed"),
        ([SQUARE.replace("square", "cube")], "cube has changed"),
    ],
)
def test_an_edited_kernel_gets_no_replayed_time(on_gpu, shown, recorded, asked, says):
    records.measured("lesson/what", lambda: [{"a": 1}], sources=recorded)
    records.measured_file("lesson/file", lambda path: path.write_text("1"), ".txt", sources=recorded)
    on_gpu()
    shown.clear()
    with pytest.raises(records.KernelChanged) as changed:
        records.measured("lesson/what", never, sources=asked)
    assert str(changed.value).startswith(says) and str(changed.value).count(". ") == 0
    assert changed.value._render_traceback_() == [str(changed.value)]
    with pytest.raises(records.NoRecord, match=re.escape(says)):
        records.measured_file("lesson/file", never, ".txt", sources=asked)
    assert not shown
    assert records.measured("lesson/what", never)["a"].tolist() == [1]
    assert records.stored("lesson/what")["a"].tolist() == [1]


def test_a_replay_names_the_kernel_that_it_stands_in_for(on_gpu, shown):
    """A lab times what the learner wrote; without a GPU it shows the times of the solution's kernel."""
    records.measured("lab/mine", lambda: [{"us": 1.0}], stand_in="the solution's kernel")
    assert "solution" not in shown[-1]["text/plain"]
    on_gpu()
    records.measured("lab/mine", never, stand_in="the solution's kernel")
    assert "the solution's kernel" in shown[-1]["text/plain"]


def test_a_gpu_without_the_tool_does_not_replay_an_edited_kernel_either(on_gpu, shown):
    def cannot():
        raise records.CannotMeasure("ncu is not here.")

    records.measured("lesson/tool", lambda: [{"a": 1}], sources=[SQUARE])
    assert records.measured("lesson/tool", cannot, sources=[SQUARE])["a"].tolist() == [1]
    with pytest.raises(records.KernelChanged) as changed:
        records.measured("lesson/tool", cannot, sources=[EDITED])
    assert str(changed.value).startswith(f"ncu is not here. {CHANGED}")


def test_a_set_with_the_same_kernel_is_preferred(on_gpu, shown, monkeypatch):
    records.measured("lesson/long", lambda: [{"a": 1}], sources=[SQUARE])
    old = (records.folder() / "h100/lesson/long.json").read_text()
    records.measured("lesson/long", lambda: [{"a": 2}], sources=[EDITED])
    on_gpu()
    keep("t4", "2027-01-01", old)
    assert records.sets() == ["t4", "h100"]
    assert records.measured("lesson/long", never, sources=[SQUARE])["a"].tolist() == [1]
    assert "another version" not in shown[-1]["text/plain"]
    assert records.measured("lesson/long", never, sources=[EDITED])["a"].tolist() == [2]
    assert "t4 measured another version of square" in shown[-1]["text/plain"]
    with pytest.raises(records.KernelChanged, match="square has changed"):
        records.measured("lesson/long", never, sources=[SQUARE + " int mine;"])


def test_nearest_parameters_are_named_and_never_interpolated(on_gpu, shown):
    for n in (256, 4096):
        records.measured("lesson/n", lambda n=n: [{"n": n}], params={"n": n, "dtype": "float32"})
    on_gpu()
    exact = records.measured("lesson/n", never, params={"n": 4096, "dtype": "float32"})
    records.headline("square", "266 µs", of="lesson/n")
    assert "nearest" not in shown.pop()[records.HEADLINE_MIME]
    assert exact["n"].tolist() == [4096] and "never recorded" not in shown[-1]["text/plain"]
    near = records.measured("lesson/n", never, params={"n": 3000, "dtype": "float32"})
    assert near["n"].tolist() == [4096]
    records.headline("square", "266 µs", of="lesson/n")
    assert shown.pop()[records.HEADLINE_MIME]["nearest"] == "n=4096, dtype=float32"
    assert re.search("n=3000, dtype=float32 .*n=4096", shown[-1]["text/plain"])


def test_a_row_is_a_line(on_gpu, shown):
    rows = [{"a": 1, "text": "two\nlines\u2028"}, {"a": 2, "text": "µs"}]
    records.measured("lesson/lines", lambda: rows)
    text = (records.folder() / "h100/lesson/lines.json").read_text()
    assert '    {"a": 1, "text": "two\\nlines\u2028"},\n    {"a": 2, "text": "µs"}\n' in text
    assert json.loads(text)["cases"][0]["rows"] == rows


@pytest.mark.parametrize("text", ["@rows 0", "@rows 1", '"@rows 0"', "]", '"rows": []'])
def test_a_row_may_hold_any_text(on_gpu, shown, text):
    """Also in a case beside it, in a column's name and in the parameters."""
    for n in (1, 2):
        records.measured("lesson/marks", lambda n=n: [{text: text, "n": n}], params={"n": n, "text": text})
    records.measured("lesson/marks", lambda: [], params={"n": 3})
    on_gpu()
    for n in (1, 2):
        replayed = records.measured("lesson/marks", never, params={"n": n, "text": text})
        assert replayed.to_dict("records") == [{text: text, "n": n}]
    assert records.measured("lesson/marks", never, params={"n": 3}).empty


def test_shipped_records_are_rewritten_byte_for_byte():
    """Recording one case again changes no other line of its file."""
    paths = sorted(Path(records.__file__).parent.rglob("*.json"))
    assert len(paths) > 50
    for path in paths:
        record = json.loads(path.read_bytes())
        assert as_text(record["name"], record["cases"]).encode() == path.read_bytes(), path


def test_recording_again_replaces_the_case(on_gpu, shown):
    for value in (1, 2):
        records.measured("lesson/again", lambda value=value: [{"a": value}])
    path = records.folder() / "h100/lesson/again.json"
    assert len(json.loads(path.read_text())["cases"]) == 1
    on_gpu()
    assert records.measured("lesson/again", never)["a"].tolist() == [2]


def test_file_records(on_gpu, shown):
    path = records.measured_file("lesson/code", lambda path: path.write_text("x = 1\n"), ".py")
    assert path.read_text() == "x = 1\n"
    on_gpu()
    assert records.measured_file("lesson/code", never, ".py").read_text() == "x = 1\n"


def test_a_recorded_file_does_not_name_the_checkout(on_gpu, shown):
    """ncu's reports hold the folder of each kernel's text; their fields keep their lengths."""
    here = Path(records.__file__).resolve().parents[2]
    said = f"\x00{here}/helpers/kernels\x00{here.name}"
    path = records.measured_file("lesson/report", lambda path: path.write_text(said), ".ncu-rep")
    kept = path.read_text()
    assert str(here) not in kept and len(kept) == len(said)
    assert kept.startswith("\x00/notebooks"[: 1 + len(str(here))])
    assert kept.endswith(f"/helpers/kernels\x00{here.name}")


def test_failed_file_leaves_nothing(on_gpu, shown):
    def fails(path):
        path.write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        records.measured_file("lesson/half", fails, ".txt")
    with pytest.raises(RuntimeError, match="wrote no file"):
        records.measured_file("lesson/nothing", lambda path: None, ".txt")
    assert not [p for p in records.folder().rglob("*") if p.is_file()]


def test_live_without_recording_writes_no_record(on_gpu, shown, monkeypatch):
    monkeypatch.delenv("WORKBOOK_RECORD")
    assert records.measured("lesson/live", lambda: [{"a": 1}])["a"].tolist() == [1]
    assert not list(records.folder().rglob("*.json"))


def test_a_missing_record_is_an_error(on_gpu, shown):
    on_gpu()
    with pytest.raises(records.NoRecord, match="no record of 'lesson/none'"):
        records.measured("lesson/none", never)
    with pytest.raises(records.NoRecord, match="make record"):
        records.gpu_spec()
    with pytest.raises(ValueError, match="lesson/what"):
        records.measured("No Name", never)


def test_an_optional_record_may_be_missing(on_gpu, shown, capsys):
    """Without a GPU, a lesson says so and goes on; a record of another kernel still counts as an error."""
    records.measured("lesson/known", lambda: [{"a": 1}], sources=[SQUARE])
    on_gpu()
    assert records.measured("lesson/none", never, optional=True).empty
    assert capsys.readouterr().out == "Not measured yet on this course's GPUs; run this cell on one.\n"
    assert records.measured("lesson/known", never, sources=[SQUARE], optional=True)["a"].tolist() == [1]
    with pytest.raises(records.KernelChanged):
        records.measured("lesson/known", never, sources=[EDITED], optional=True)


def test_gpu_spec_is_the_recorded_one(on_gpu, shown):
    records.measured("lesson/a", lambda: [{"a": 1}])
    on_gpu()
    assert records.gpu_spec().copy_gb_per_s == 3003.2


def test_a_headline_names_the_gpu_of_its_value(on_gpu, shown, monkeypatch):
    records.measured("lesson/a", lambda: [{"a": 1}])
    records.measured_file("lesson/file", lambda path: path.write_text("1"), ".txt")
    records.headline("square", "266 µs", of="lesson/a")
    assert shown[-1][records.HEADLINE_MIME] == {
        "label": "square",
        "value": "266 µs",
        "source": "live, NVIDIA H100 80GB HBM3",
        "record": "lesson/a",
    }
    text = (records.folder() / "h100/lesson/a.json").read_text()
    records.stored("lesson/a")
    records.headline("square", "266 µs", of="lesson/a")  # also where a GPU is
    assert shown[-1][records.HEADLINE_MIME]["source"] == "replayed, NVIDIA H100 80GB HBM3"
    on_gpu()
    keep("t4", "2026-11-01", text.replace("NVIDIA H100 80GB HBM3", "Tesla T4"), name="lesson/a")
    monkeypatch.setenv("WORKBOOK_REPLAY", "t4")
    records.measured("lesson/a", never)
    records.measured_file("lesson/file", never, ".txt")
    for name, gpu in (("lesson/a", "Tesla T4"), ("lesson/file", "NVIDIA H100 80GB HBM3")):
        records.headline("square", "266 µs", of=name)
        assert shown[-1]["text/plain"] == f"square: 266 µs (replayed, {gpu})"
    half = pd.Series([0.5], dtype="float32")[0]
    records.headline("square", "266 µs", of="lesson/a", figures={"square_us": half})
    assert shown[-1][records.HEADLINE_MIME]["figures"] == {"square_us": 0.5}
    for wrong in ({"square_us": float("nan")}, {"square_us": "fast"}, {"": 1.0}, {"a\nb": 1.0}):
        with pytest.raises(ValueError, match="'square'"):
            records.headline("square", "266 µs", of="lesson/a", figures=wrong)
    with pytest.raises(ValueError, match="lesson/b"):
        records.headline("square", "266 µs", of="lesson/b")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("Tesla T4", "t4"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("NVIDIA L4", "l4"),
    ],
)
def test_folder_names(name, folder):
    assert records.gpu_folder_name(name) == folder


def test_fingerprints():
    name, one = records.fingerprint("__global__ void square(float* x) {}")
    assert name == "square" and len(one) == 64
    assert records.fingerprint(never)[0] == "never"


def test_stored_records_are_also_read_on_a_gpu(on_gpu, shown, monkeypatch):
    records.measured("lesson/long", lambda: [{"a": 1}])
    assert records.stored("lesson/long")["a"].tolist() == [1]
    assert shown[-1]["text/plain"].startswith("Too long for a lesson. Replayed")
    text = (records.folder() / "h100/lesson/long.json").read_text()
    keep("t4", "2027-01-01", text.replace('"a": 1', '"a": 2'))
    assert records.stored("lesson/long")["a"].tolist() == [1]  # this GPU's own goes before a newer one
    on_gpu()
    assert records.stored("lesson/long")["a"].tolist() == [2]
    with pytest.raises(records.NoRecord, match="lesson/none"):
        records.stored("lesson/none")


def keep(gpu: str, date: str, text: str, name: str = "lesson/long", lessons: tuple[str, ...] = ()) -> None:
    """Put a record into a set, as measured on that day, and begin the given lessons' folders."""
    for file in (name, *(f"{lesson}/any" for lesson in lessons)):
        path = records.folder() / gpu / f"{file}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("2026-11-21", date))


def test_the_default_or_else_the_newest_complete_set_is_replayed(on_gpu, shown, monkeypatch):
    records.measured("lesson/long", lambda: [{"a": 1}])
    text = (records.folder() / "h100/lesson/long.json").read_text()
    on_gpu()
    every = ("profiling", "load_inline", "triton", "ptx", "ncu", "fusion")
    keep("old", "2025-01-01", text.replace('"a": 1', '"a": 2'), lessons=every)
    keep("new", "2026-12-01", text.replace('"a": 1', '"a": 3'), lessons=every)
    keep("begun", "2027-01-01", text.replace('"a": 1', '"a": 4'), lessons=every[:5])
    for more in ("attention/one", "matmul/one", "matmul/two"):  # not of core lessons
        keep("old", "2025-01-01", text, name=more)
    assert records.sets() == ["new", "old", "begun", "h100"]
    assert records.measured("lesson/long", never)["a"].tolist() == [3]
    assert "not this one" not in shown[-1]["text/plain"]
    keep("h200", "2024-01-01", text, lessons=every)  # the lessons quote its figures
    assert records.sets() == ["h200", "new", "old", "begun", "h100"]
    for gpu, value in (("old", 2), ("begun", 4), ("h100", 1)):
        monkeypatch.setenv("WORKBOOK_REPLAY", gpu)
        assert records.measured("lesson/long", never)["a"].tolist() == [value]


def test_a_missing_record_comes_from_another_set_and_is_noted(on_gpu, shown, monkeypatch):
    records.measured("lesson/long", lambda: [{"a": 1}])
    text = (records.folder() / "h100/lesson/long.json").read_text()
    on_gpu()
    keep("t4", "2026-11-01", text, name="lesson/other")
    monkeypatch.setenv("WORKBOOK_REPLAY", "t4")
    assert records.measured("lesson/long", never)["a"].tolist() == [1]
    assert "NVIDIA H100 80GB HBM3, 2026-11-21" in shown[-1]["text/plain"]
    assert "Most records are of the T4, but not this one" in shown[-1]["text/plain"]


def test_an_unknown_set_is_an_error(on_gpu, shown, monkeypatch):
    records.measured("lesson/long", lambda: [{"a": 1}])
    on_gpu()
    monkeypatch.setenv("WORKBOOK_REPLAY", "b300")
    with pytest.raises(records.NoRecord, match=r"WORKBOOK_REPLAY.*'b300'.*h100"):
        records.measured("lesson/long", never)


def test_a_gpu_without_the_tool_replays_and_prints_the_reason(on_gpu, shown):
    def cannot():
        raise records.CannotMeasure("ncu is not here.")

    records.measured("lesson/tool", lambda: [{"a": 1}])
    assert records.measured("lesson/tool", cannot)["a"].tolist() == [1]
    assert shown[-1]["text/plain"].startswith("ncu is not here. Replayed")
    with pytest.raises(records.NoRecord, match=r"ncu is not here.*lesson/none"):
        records.measured("lesson/none", cannot)

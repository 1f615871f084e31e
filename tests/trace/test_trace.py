"""helpers.trace, with profiles taken here on the CPU and a trace with the fields that Kineto writes for a
GPU.
"""

from __future__ import annotations

import gzip
import json

import pytest
import torch

from helpers import trace
from helpers.trace import profile

POW = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::"
    "pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase&, float)::{lambda(float)#1}, "
    "std::array<char*, 2ul> >(int, at::native::(anonymous namespace)::pow_tensor_scalar_kernel_impl<float, "
    "float>"
    "(at::TensorIteratorBase&, float)::{lambda(float)#1}, std::array<char*, 2ul>)"
)
MUL_OF_NSIGHT = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float>>, std::array<char *, (unsigned long)3>>(int, T2, T3)"
)
POW_OF_NSIGHT = (
    "void at::native::vectorized_elementwise_kernel<(int)8, void at::native::<unnamed>::"
    "pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase &, T2)::[lambda(float) (instance "
    "1)], "
    "std::array<char *, (unsigned long)2>>(int, T2, T3)"
)
UNROLLED = (
    "void at::native::unrolled_elementwise_kernel<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, "
    "std::array<char*, 2ul>, "
    "4, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, "
    "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int, int)"
)
LEGACY = (
    "void at::native::elementwise_kernel<128, 2, "
    "at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float, "
    "float, float, at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&, "
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > "
    "const&)::"
    "{lambda(int)#1}>(int, at::native::x)"
)
COPY = "Memcpy HtoD (Pageable -> Device)"
ON_CPU = [torch.profiler.ProfilerActivity.CPU]


# ----------------------------------------------------------------------------------------------------------
# names
@pytest.mark.parametrize(
    ("name", "width", "pointers", "short"),
    [
        (POW, 4, 2, "vectorized_elementwise_kernel<4> · pow_tensor_scalar_kernel_impl"),
        (MUL_OF_NSIGHT, 4, 3, "vectorized_elementwise_kernel<4> · MulFunctor"),
        (POW_OF_NSIGHT, 8, 2, "vectorized_elementwise_kernel<8> · pow_tensor_scalar_kernel_impl"),
        (UNROLLED, 1, 2, "unrolled_elementwise_kernel · direct_copy_kernel_cuda"),
        # 128 is a number of threads and no vector width
        (LEGACY, None, None, "elementwise_kernel<128> · MulFunctor"),
        ("square_rows_kernel", None, None, "square_rows_kernel"),
        ("square_matrix_kernel(float const*, float*, int, int)", None, None, "square_matrix_kernel"),
        (COPY, None, None, COPY),
        (POW[:90] + "...", 4, None, "vectorized_elementwise_kernel<4>"),
    ],
)
def test_a_kernel_name_is_parsed(name, width, pointers, short):
    read = trace.read_kernel_name(name)
    function = short if name == short else short.split("<")[0].split(" ")[0]
    assert (read.function, read.vector_width, read.pointers, read.short) == (function, width, pointers, short)


def test_a_name_is_explained_argument_by_argument():
    read = trace.read_kernel_name(POW)
    assert read.namespace == "at::native"
    assert read.functor == "pow_tensor_scalar_kernel_impl<float, float>, lambda 1"
    text = repr(read)
    assert "the vector width" in text and "functor" in text and "array<char*, 2>" in text
    assert trace.read_kernel_name(UNROLLED).functor == "direct_copy_kernel_cuda, lambda 1"
    functor = trace.read_kernel_name(MUL_OF_NSIGHT).functor
    assert functor == "BinaryFunctor<float, float, float, MulFunctor<float>>"


@pytest.mark.parametrize(
    ("name", "says"), [("", "empty name"), ("  ", "empty name"), ("_Z6squarePf", "c\\+\\+filt")]
)
def test_names_that_cannot_be_read_are_refused(name, says):
    with pytest.raises(ValueError, match=says):
        trace.read_kernel_name(name)
    assert trace.short_name(name) == name


# ---------------------------------------------------------------------------------------------------------
# tables
def test_a_table_of_a_function():
    x = torch.randn(64, 64)
    calls = []

    def square():
        calls.append(1)
        torch.square(x)

    table = trace.profile_table(square, warmup=2, calls=3).set_index("name")
    assert len(calls) == 5
    assert table.loc["aten::square", "calls"] == table.loc["aten::pow", "calls"] == 3
    assert table.loc["aten::square", "cpu_us"] >= table.loc["aten::pow", "cpu_us"] > 0
    assert table.loc["aten::square", "self_cpu_us"] < table.loc["aten::square", "cpu_us"]
    assert set(table.kind) == {"op"}


@pytest.mark.parametrize(
    "profiler",
    [lambda: torch.autograd.profiler.profile(), lambda: torch.profiler.profile(activities=ON_CPU)],
    ids=["autograd", "torch"],
)
def test_a_table_of_a_finished_profiler(profiler):
    with profiler() as prof, torch.profiler.record_function("mine"):
        torch.ones(8) * 2
    kinds = trace.profile_table(prof).set_index("name").kind
    assert kinds["aten::mul"] == "op"
    assert kinds["mine"] == "range"


def test_device_rows_get_their_kind():
    from types import SimpleNamespace

    def row(key, device):
        return SimpleNamespace(key=key, device_type=SimpleNamespace(name=device), is_user_annotation=False)

    kinds = {
        ("aten::mul", "CPU"): "op",
        ("cudaLaunchKernel", "CPU"): "runtime",
        ("cuLaunchKernelEx", "CPU"): "runtime",
        ("custom::op", "CPU"): "op",
        ("Activity Buffer Request", "CPU"): "overhead",
        (POW, "CUDA"): "kernel",
        ("Memcpy HtoD (Pinned -> Device)", "CUDA"): "memcpy",
        ("Memset (Device)", "CUDA"): "memset",
        ("ProfilerStep*", "CUDA"): "range",
    }
    assert {key: profile._kind(row(*key)) for key in kinds} == kinds


def test_objects_without_a_table_are_refused():
    with pytest.raises(ValueError, match="int"):
        trace.profile_table(3)
    with pytest.raises(RuntimeError, match="after its `with` block ends"):
        trace.profile_table(torch.profiler.profile(activities=ON_CPU))


def test_a_second_profiler_is_refused(tmp_path):
    with torch.profiler.profile(activities=ON_CPU):
        with pytest.raises(RuntimeError, match="already running"):
            trace.profile_table(lambda: torch.ones(3))
        with pytest.raises(RuntimeError, match="already running"):
            trace.capture(lambda: torch.ones(3), path=tmp_path / "t.json.gz")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------------
# traces
def test_capture_keeps_the_active_steps_and_their_calls(tmp_path):
    x = torch.randn(32, 32)
    calls = []

    def step():
        calls.append(1)
        torch.square(x)

    path = trace.capture(step, path=tmp_path / "deep" / "t.json.gz", wait=1, warmup=1, active=2)
    assert len(calls) == 4
    assert path.stat().st_size < 300_000
    assert [p.name for p in path.parent.iterdir()] == ["t.json.gz"]
    text = gzip.decompress(path.read_bytes()).decode()
    assert "host_name" not in text and "baseTimeNanoseconds" not in text
    loaded = trace.load_trace(path)
    assert repr(loaded).startswith("t.json.gz: ") and repr(loaded).endswith("2 steps")
    assert min(e["ts"] for e in loaded.events) == 0
    one = "{}\n   └─ aten::square\n      └─ aten::pow"
    assert trace.call_tree(loaded, depth=3) == "\n".join(
        [one.format("ProfilerStep#2"), one.format("ProfilerStep#3")]
    )
    rows = trace.ops(loaded).query("name == 'aten::pow'")
    assert list(rows.parent) == ["aten::square"] * 2 and list(rows.depth) == [2, 2]
    assert trace.kernels(loaded).empty or torch.cuda.is_available()


def test_capture_refuses_what_it_cannot_do(tmp_path):
    def step():
        torch.ones(3)

    with pytest.raises(ValueError, match=r"\.json\.gz, not 't\.json'"):
        trace.capture(step, path=tmp_path / "t.json")
    with pytest.raises(ValueError, match="active=0"):
        trace.capture(step, path=tmp_path / "t.json.gz", active=0)
    with pytest.raises(ValueError, match="100"):
        trace.capture(step, path=tmp_path / "t.json.gz", max_bytes=100)
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_fails_leaves_no_file_and_no_profiler(tmp_path):
    with pytest.raises(ZeroDivisionError):
        trace.capture(lambda: 1 / 0, path=tmp_path / "t.json.gz")
    assert list(tmp_path.iterdir()) == []
    assert not torch.autograd._profiler_enabled()


def test_an_exported_trace_loads(tmp_path):
    with torch.profiler.profile(activities=ON_CPU) as prof:
        torch.square(torch.ones(3))
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    assert "aten::pow" in trace.call_tree(trace.load_trace(tmp_path / "t.json"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "There is no file"),
        (b"hello", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-9], "not valid JSON"),
        (b"{}", "no list of traceEvents"),
        (b"[1, 2]", "no list of traceEvents"),
    ],
)
def test_files_that_are_not_traces_are_refused(tmp_path, content, says):
    path = tmp_path / "t.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=says) as caught:
        trace.load_trace(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------ GPU
# traces
def event(cat, name, ts, dur, tid=7, pid=100, **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args}


@pytest.fixture
def gpu_events():
    """One step: a pageable copy, then a square; the fields as in a trace of torch 2.11 on CUDA."""
    launch = {"External id": 7, "correlation": 3}
    shape = {"grid": [97657, 1, 1], "block": [128, 1, 1], "registers per thread": 22, "shared memory": 0}
    copy = {"External id": 5, "correlation": 1}
    start = 4_363_256_614_000.0
    return [
        {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": start, "args": {"name": "python"}},
        event("user_annotation", "ProfilerStep#2", start, 10_000),
        event("cpu_op", "aten::copy_", start + 10, 8000, **{"External id": 5, "Call stack": "/home/someone"}),
        event("cuda_runtime", "cudaMemcpyAsync", start + 20, 7900, **copy),
        event("gpu_memcpy", COPY, start + 30, 8000, pid=0, stream=7, bytes=4 * 10**8, **copy),
        event("cpu_op", "aten::square", start + 8100, 40, **{"External id": 6}),
        event("cpu_op", "aten::pow", start + 8105, 30, **{"External id": 7}),
        event("cuda_runtime", "cudaLaunchKernel", start + 8110, 6, **launch),
        event("kernel", POW, start + 8200, 265.5, pid=0, stream=7, device=0, **launch, **shape),
        event("gpu_user_annotation", "ProfilerStep#2", start + 30, 8500, pid=0),
        event("python_function", "secret.py(1): main", start, 9000),
        event("overhead", "Buffer Flush", start, 3),
        {"ph": "s", "cat": "ac2g", "id": 3, "pid": 100, "tid": 7, "ts": start + 8110, "name": "ac2g"},
        {
            "ph": "f",
            "bp": "e",
            "cat": "ac2g",
            "id": 3,
            "pid": 0,
            "tid": 7,
            "ts": start + 8200,
            "name": "ac2g",
        },
    ]


@pytest.fixture
def gpu_trace(tmp_path, gpu_events):
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"traceEvents": gpu_events, "host_name": "box"}))
    return trace.load_trace(path)


def test_kernels_and_copies_with_all_their_facts(gpu_trace):
    copy, square = trace.kernels(gpu_trace).to_dict("records")
    expected = {"kind": "memcpy", "op": "aten::copy_", "n_bytes": 4 * 10**8, "gb_per_s": 50.0}
    assert copy.items() >= (expected | {"grid": None, "registers": None}).items()
    expected = {"kind": "kernel", "op": "aten::pow", "name": POW, "start_us": 8200.0, "duration_us": 265.5}
    launch = {"grid": (97657, 1, 1), "block": (128, 1, 1), "registers": 22, "shared_bytes": 0, "stream": 7}
    assert square.items() >= (expected | launch).items()


def test_a_trimmed_trace_has_the_same_kernels(tmp_path, gpu_events, gpu_trace):
    from helpers.trace.chrome import trimmed

    data = trimmed({"traceEvents": gpu_events, "host_name": "box"})
    assert data == trimmed({"traceEvents": gpu_events, "host_name": "box"})
    text = gzip.decompress(data).decode()
    for gone in ("box", "secret.py", "/home/someone", "Buffer Flush", "436325"):
        assert gone not in text
    assert text.count('"ac2g"') == 4  # the arrows stay, for Perfetto: category and name of both ends
    small = tmp_path / "small.json.gz"
    small.write_bytes(data)
    assert trace.kernels(trace.load_trace(small)).equals(trace.kernels(gpu_trace))


def bars(figure):
    return {t.name: t for t in figure.data if t.type == "bar"}


def test_the_timeline_has_lanes_facts_and_arrows(gpu_trace):
    figure = trace.timeline(gpu_trace, title="one step")
    assert list(figure.layout.yaxis.ticktext) == ["CPU", "CPU, CUDA calls", "GPU stream 7"]
    assert "µs" in figure.layout.xaxis.title.text
    # The legend keeps clear of the axis's title, whatever the window's width is and becomes.
    assert figure.layout.legend.yref == "container" and figure.layout.margin.b >= 120
    drawn = bars(figure)
    assert len({t.marker.color for t in drawn.values()}) == len(drawn) == 5
    (hover,) = drawn["kernels"].hovertext
    for fact in ("265.5", "grid 97657 × 1 × 1", "block 128 × 1 × 1", "22 registers", "stream 7"):
        assert fact in hover
    assert "&lt;4&gt;" in drawn["kernels"].text[0]  # a browser would swallow <4>
    assert "400,000,000 bytes, 50.0 GB/s" in drawn["copies"].hovertext[0]
    # nested operators lie below each other; calls and streams have lanes of their own
    ys = [set(t.y) for t in drawn.values()]
    assert not set.intersection(*ys)
    (arrows,) = [t for t in figure.data if t.type == "scatter"]
    assert list(arrows.x)[:2] == [20.0, 30.0] and list(arrows.x)[3:5] == [8110.0, 8200.0]
    assert not [t for t in trace.timeline(gpu_trace, arrows=False).data if t.type == "scatter"]


def test_the_timeline_shows_a_part(gpu_trace):
    figure = trace.timeline(gpu_trace, start_us=8090, stop_us=9000)
    assert "copies" not in bars(figure) and "kernels" in bars(figure)
    # a range that began before starts at the edge of the view, so that its name is seen
    assert list(bars(figure)["ranges and steps"].base) == [8090]
    with pytest.raises(ValueError, match="20,000 and 30,000 µs"):
        trace.timeline(gpu_trace, start_us=20_000, stop_us=30_000)


def test_a_long_timeline_counts_what_it_leaves_out(gpu_trace):
    figure = trace.timeline(gpu_trace, max_events=3, title="short")
    assert figure.layout.title.text == "short (without the 5 shortest events)"
    assert sum(len(t.x) for t in bars(figure).values()) == 3


def test_a_timeline_of_a_cpu_profile(tmp_path):
    path = trace.capture(lambda: torch.square(torch.ones(3)), path=tmp_path / "t.json.gz", active=1)
    figure = trace.timeline(trace.load_trace(path))
    assert figure.layout.yaxis.ticktext[0] == "CPU"
    assert "kernels" not in bars(figure)


def test_an_empty_trace_has_tables_but_no_timeline(tmp_path):
    (tmp_path / "t.json").write_text("[]")
    empty = trace.load_trace(tmp_path / "t.json")
    assert trace.ops(empty).empty and trace.kernels(empty).empty and trace.call_tree(empty) == ""
    assert repr(empty) == "t.json: no events"
    with pytest.raises(ValueError, match="no event between"):
        trace.timeline(empty)


def test_overhead_does_not_count_a_kernel_twice():
    """As seen on an H100: the kernel was charged to the launch and to "Activity Buffer Request" inside it."""
    from torch.autograd.profiler_util import FunctionEvent

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        torch.square(torch.ones(3))
    events = prof.events()
    pow_event = next(e for e in events if e.name == "aten::pow")
    overhead = FunctionEvent(10**6, "Activity Buffer Request", 1, 0.0, 1.0, use_device="cuda", stack=[])
    for event in (pow_event, overhead):
        event.use_device = "cuda"
        event.append_kernel("kernel", 0, 264.0)
    pow_event.cpu_children.append(overhead)
    events.append(overhead)
    table = trace.profile_table(prof).set_index("name")
    assert table.device_us["aten::pow"] == 264.0
    assert table.device_us["Activity Buffer Request"] == 0

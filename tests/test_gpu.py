"""What only a GPU can show. Deselected where there is none (conftest.py), never counted as passed."""

import contextlib
import threading

import pytest
import torch

from helpers import check, cuda, device, records, timing
from helpers.timing import persisting

pytestmark = pytest.mark.gpu


@pytest.fixture
def x():
    return torch.randn(4096, 1024, device="cuda")


def test_spec_and_survey():
    spec = device.gpu_spec()
    assert spec.copy_gb_per_s > 50 and (spec.peak_gb_per_s or 1e9) > spec.copy_gb_per_s
    assert "live" in repr(device.survey()) and device.driver_version().count(".") >= 1


def test_the_copy_ceiling_is_what_a_copy_reaches():
    """An idle GPU is slow at first; a ceiling taken then made right kernels look faster than the memory."""
    spec = device.gpu_spec()
    source = torch.randint(0, 255, (1 << 30,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    reached = timing.time_gpu(lambda: target.copy_(source)).gb_per_s(2 << 30)
    assert 0.95 < reached / spec.copy_gb_per_s < 1.03
    assert 0.97 < device.measure_copy(spec.memory_bytes) / spec.copy_gb_per_s < 1.03


def test_time_names_and_counts_kernels(x):
    one = timing.time_gpu(lambda: torch.square(x))
    assert len(one.kernels) == 1 and one.kernels[0].calls == 1
    two = timing.time_gpu(lambda: torch.square(torch.square(x)))
    assert two.kernels[0].calls == 2
    assert 1.5 < two.median_us / one.median_us < 2.5
    assert one.ci95_us[0] <= one.median_us <= one.ci95_us[1]


def test_launch_gap_is_not_in_it():
    """Sixteen elements: the kernel takes a microsecond or two, its launch several."""
    small = torch.randn(16, device="cuda")
    assert timing.time_gpu(lambda: torch.square(small)).median_us < 3.5


def test_warm_is_faster_than_cold_where_it_fits():
    fits = torch.randn(device.gpu_spec().l2_bytes // 16, device="cuda")
    f = lambda: torch.square(fits)  # noqa: E731
    assert timing.time_gpu(f, l2="warm").median_us < 0.9 * timing.time_gpu(f, l2="cold").median_us


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("nothing", "launched nothing"),
        ("side", "another stream"),
        ("fails", "failed: TypeError"),
        ("host", "launched nothing"),
    ],
)
def test_what_cannot_be_timed_is_an_error(x, what, message):
    stream = torch.cuda.Stream()

    def side():
        with torch.cuda.stream(stream):
            torch.square(x)

    functions = {
        "nothing": lambda: None,
        "side": side,
        "fails": lambda: torch.square(None),
        "host": lambda: torch.ones(3) * 2,
    }
    with pytest.raises(timing.TimingError, match=message):
        timing.time_gpu(functions[what])


@pytest.fixture
def persists():
    """A function that lets a tensor persist in the L2 while the current stream reads it."""
    stream = torch.cuda.current_stream().cuda_stream
    with contextlib.ExitStack() as undo:

        def let(tensor):
            undo.enter_context(persisting.set_aside(25 << 20))
            persisting.mark(stream, tensor.data_ptr(), tensor.nbytes)

        yield let
        persisting.mark(stream, 0, 0)


def test_lines_that_persist_do_not_survive_the_flush(persists):
    x = torch.randn(4 << 20, device="cuda")
    y = torch.empty_like(x)
    honest = timing.time_gpu(lambda: torch.add(x, 1, out=y))
    persists(x)
    kept = timing.time_gpu(lambda: torch.add(x, 1, out=y))
    assert 0.94 < kept.median_us / honest.median_us < 1.06  # 0.73 if the lines survive
    assert not any("set aside" in note for note in honest.notes)
    assert any("set aside" in note for note in kept.notes)
    assert persisting.set_aside_bytes() >= 25 << 20  # as before


def test_setting_l2_aside_in_each_call_is_an_error(persists):
    x = torch.randn(4 << 20, device="cuda")

    def add():
        persists(x)
        return x + 1

    with pytest.raises(timing.TimingError, match="sets part of the L2"):
        timing.time_gpu(add)


def test_threads_of_every_call_are_noted(x):
    go_on = threading.Event()

    def square():
        threading.Thread(target=go_on.wait).start()
        return torch.square(x)

    timed = timing.time_gpu(square)
    go_on.set()
    assert any("threads running" in note for note in timed.notes)


def test_streams_that_wait_for_each_other_can_be_timed(x):
    side = torch.cuda.Stream()
    large = torch.randn(64 << 20, device="cuda")

    def both():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.square(large)
        torch.square(large)
        torch.cuda.current_stream().wait_stream(side)

    def only_begins():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.square(large)

    alone = timing.time_gpu(lambda: torch.square(large)).median_us
    assert 1.5 < timing.time_gpu(both).median_us / alone < 2.3
    with pytest.raises(timing.TimingError, match="another stream"):
        timing.time_gpu(only_begins)


def test_on_a_stream_of_ones_own_inside_its_context(x):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert timing.time_gpu(lambda: torch.square(x)).median_us > 1


def test_what_cupti_adds_is_not_in_it():
    """Events alone around PyTorch's softmax of such rows show less than CUPTI's own durations; of its square,
    more.
    """
    rows = torch.randn(32768, 4096, device="cuda")
    softmax, square = lambda: torch.softmax(rows, -1), lambda: torch.square(rows)
    found = timing.time_gpu(softmax)
    alone = timing.profiler_overhead(softmax).unwatched_us
    assert 0.98 < found.median_us / alone < 1
    assert found.added_us == 0 or any("slows" in note for note in found.notes)
    assert timing.time_gpu(square).added_us == 0 and not timing.profiler_overhead(square).slows
    again = timing.compare(softmax, lambda: torch.softmax(rows, -1))
    assert 0.99 < again.ratio < 1.01
    assert timing.compare(softmax, square).b.added_us == 0


def test_of_several_kernels_nothing_is_taken_off():
    small = torch.randn(256, 1024, device="cuda")
    chain = lambda: torch.square(torch.add(small, 1.0))  # noqa: E731
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    for function in (chain, graph.replay):
        assert timing.time_gpu(function).added_us == 0


def test_working_only_under_a_profiler_is_an_error(x):
    large = torch.randn(8192, 8192, device="cuda")

    def shy():
        watched = torch.autograd._profiler_enabled()
        return torch.square(large if watched else x)

    with pytest.raises(timing.TimingError, match="something else"):
        timing.time_gpu(shy)


def test_inside_a_profiler_is_an_error(x):
    with torch.profiler.profile(), pytest.raises(timing.TimingError, match="already running"):
        timing.time_gpu(lambda: torch.square(x))


def test_graph_replay(x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.square(x)
    assert timing.time_gpu(graph.replay).kernels[0].calls == 1


def test_compare_sees_a_difference_and_none():
    a = torch.randn(4096, 4096, device="cuda")
    assert timing.compare(lambda: torch.square(a), lambda: torch.square(a[:3584])).ratio > 1.1
    wolves = sum(
        timing.compare(lambda: torch.square(a), lambda: torch.square(a), budget_s=0.2).difference
        for _ in range(10)
    )
    assert wolves <= 3


def test_stale_answer_in_the_allocators_memory_cannot_pass():
    x = torch.randn(64, 4096, device="cuda")
    for _ in range(4):
        torch.square(x)  # leaves right answers in the memory that comes next
    with pytest.raises(check.Mismatch):
        check.assert_matches(torch.empty_like, torch.square, shapes=[(64, 4096)])


KERNEL = r"""
__global__ void square_kernel(const float* x, float* y, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i];
}
void square(int64_t x, int64_t y, int64_t n, int64_t stream) {
  if (n == 0) return;
  square_kernel<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>((const float*)x, (float*)y, n);
}
"""


def test_cuda_extension_without_torch_headers():
    module = cuda.load_cuda(
        "gpu_test_square",
        KERNEL,
        ["square"],
        cpp_source="void square(int64_t x, int64_t y, int64_t n, int64_t stream);",
        torch_headers=False,
    )

    def square(x):
        out = torch.empty_like(x)
        module.square(x.data_ptr(), out.data_ptr(), x.numel(), torch.cuda.current_stream().cuda_stream)
        return out

    assert check.assert_matches(square, torch.square)


def test_record_keeps_the_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_RECORDS", str(tmp_path))
    monkeypatch.setenv("WORKBOOK_RECORD", "1")
    rows = records.measured("test/one", lambda: [{"a": 1}], sources=[KERNEL])
    provenance = rows.attrs["provenance"]
    assert provenance.gpu["name"] == torch.cuda.get_device_name() and provenance.sm_clock_mhz
    assert (tmp_path / records.gpu_folder_name(provenance.gpu["name"]) / "test/one.json").is_file()

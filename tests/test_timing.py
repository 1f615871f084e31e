"""The parts of the timer that need no GPU; `test_gpu.py` has the rest."""

import random
import statistics

import pytest

from helpers import device, timing


def test_interval_covers_the_median():
    """Of 400 samples of a skewed distribution with a known median, at least 93 % of the intervals hold it."""
    rng = random.Random(7)
    true_median = 10 + 0.6931471805599453
    held = 0
    for _ in range(400):
        low, high = timing.median_interval([10 + rng.expovariate(1) for _ in range(41)])
        held += low <= true_median <= high
    assert held / 400 >= 0.93


def test_interval_narrows_with_samples():
    rng = random.Random(3)
    few = timing.median_interval([rng.gauss(5, 1) for _ in range(20)])
    many = timing.median_interval([rng.gauss(5, 1) for _ in range(2000)])
    assert many[1] - many[0] < (few[1] - few[0]) / 4
    assert many[0] <= statistics.median([5]) <= many[1]


def make(ratio, ci):
    t = timing.Timing(
        10.0, (9.9, 10.1), 40, (timing.Kernel("void k<4>(x)", 1, 10.0),), "cold", "", (None, None), 0.1
    )
    return timing.Comparison(("square", "mul"), t, t, ratio, ci)


def test_verdict():
    assert make(1.001, (0.998, 1.003)).verdict.startswith("No difference seen")
    assert not make(1.001, (0.998, 1.003)).difference
    assert make(1.02, (1.01, 1.03)).verdict.startswith("mul is faster")
    assert make(0.98, (0.97, 0.99)).verdict.startswith("square is faster")


def test_bandwidth_and_text():
    t = make(1, (0.9, 1.1)).a
    assert t.gb_per_s(20_000_000) == pytest.approx(2000)
    assert "10.00 µs (95 % CI 9.90 to 10.10" in repr(t)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::f(float)>(int, x)",
            "vectorized_elementwise_kernel<4, …>",
        ),
        ("square_rows_kernel", "square_rows_kernel"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD "),
    ],
)
def test_short_names(name, short):
    assert timing.short_name(name) == short


def test_no_gpu_is_said(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    with pytest.raises(device.Missing, match="NVIDIA GPU"):
        timing.time_gpu(lambda: None)

"""helpers.timing.sweeps: every row checked before it is timed; no time for a kernel that is wrong
or refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import pytest
import torch

from helpers import device
from helpers.timing.sweeps import sweep


@dataclass(frozen=True)
class FakeTiming:
    median_us: float = 10.0
    ci95_us: tuple[float, float] = (9.0, 12.0)
    n_samples: int = 7

    def gb_per_s(self, n_bytes: float) -> float:
        return n_bytes / self.median_us / 1e3


class FakeTimer:
    """Calls what it is given once, as a timer does, and remembers how it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict] = []

    def __call__(self, fn, *, l2: str, budget_s: float) -> FakeTiming:
        fn()
        self.asked.append({"l2": l2, "budget_s": budget_s})
        return FakeTiming()


def square(x, block_size: int = 1, num_warps: int = 4):
    y = torch.empty_like(x)
    return torch.mul(x, x, out=y)


def first_columns(x, block_size: int):
    """One program a row with a fixed block: the columns past it are never written."""
    y = torch.empty_like(x)
    y[:, :block_size] = x[:, :block_size] ** 2
    return y


def run(kernel=square, timer=None, **more):
    defaults = {"shapes": [(3, 8), (4, 16)], "reference": torch.square, "n_bytes": lambda x: 2 * x.nbytes}
    return sweep(kernel, **{**defaults, "timer": timer or FakeTimer(), "device": "cpu", **more})


def test_a_sweep_has_a_row_per_shape_and_point():
    df = run(block_size=[256, 1024], num_warps=[4, 8])
    assert list(df.columns) == [
        "n_rows", "n_cols", "block_size", "num_warps",
        "median_us", "ci_low_us", "ci_high_us", "gb_per_s", "n_samples", "verdict", "reason",
    ]  # fmt: skip
    assert len(df) == 8 and not df.duplicated(["n_rows", "n_cols", "block_size", "num_warps"]).any()
    assert set(df.verdict) == {"ok"} and set(df.reason) == {""}
    first = df.iloc[0]
    assert (first.median_us, first.ci_low_us, first.ci_high_us, first.n_samples) == (10.0, 9.0, 12.0, 7)
    assert first.gb_per_s == pytest.approx(2 * 3 * 8 * 4 / 10.0 / 1e3)


def test_without_axes_there_is_a_row_per_shape():
    df = run(n_bytes=1e6)
    assert list(df.n_cols) == [8, 16] and list(df.gb_per_s) == [100.0, 100.0]


def test_a_wrong_row_has_no_time_and_is_never_timed():
    timer = FakeTimer()
    df = run(first_columns, timer, block_size=[8, 16])
    verdicts = df.set_index(["n_cols", "block_size"]).verdict
    assert verdicts.to_dict() == {(8, 8): "ok", (8, 16): "ok", (16, 8): "wrong", (16, 16): "ok"}
    (wrong,) = df[df.verdict == "wrong"].to_dict("records")
    assert all(pd.isna(wrong[c]) for c in ("median_us", "ci_low_us", "ci_high_us", "gb_per_s"))
    assert "50.0 % of the output was never written" in wrong["reason"]
    assert wrong["n_samples"] == 0 and len(timer.asked) == 3


def test_a_stale_right_answer_in_the_output_does_not_help():
    right = {}

    def cached(x):
        key = tuple(x.shape)
        if key not in right:
            right[key] = x * x
            return right[key]
        return torch.empty_like(x)  # writes nothing

    assert set(run(cached).verdict) == {"ok"}  # the first run of each shape is right …
    assert set(run(cached).verdict) == {"wrong"}  # … and the second only looks right


def test_a_refused_launch_keeps_its_reason_and_the_sweep_continues():
    def picky(x, num_warps):
        if num_warps > 16:
            raise RuntimeError("out of resource: threads\nRequired: 2048")
        return square(x)

    df = run(picky, num_warps=[4, 32])
    assert list(df.verdict) == ["ok", "refused", "ok", "refused"]
    assert df.reason[1] == "RuntimeError: out of resource: threads" and pd.isna(df.median_us[1])


def test_a_timer_that_fails_refuses_the_row():
    def broken(fn, **_):
        raise ValueError("launched nothing")

    df = run(timer=broken)
    assert set(df.verdict) == {"refused"} and df.reason[0] == "ValueError: launched nothing"


def test_the_timer_gets_cache_and_budget():
    timer = FakeTimer()
    run(timer=timer, l2="warm", budget_s=0.25, shapes=[(2, 2)])
    assert timer.asked == [{"l2": "warm", "budget_s": 0.25}]


def test_inputs_of_other_arity_and_dtype():
    def pair(shape, generator, device, dtype):
        return tuple(torch.randint(-9, 9, shape, generator=generator, device=device).to(dtype) for _ in "ab")

    df = run(torch.add, shapes=[(5,)], reference=torch.add, make_inputs=pair, dtype=torch.int32, n_bytes=60)
    assert list(df.columns[:1]) == ["n_elements"] and df.verdict[0] == "ok"
    assert run(dtype=torch.float16).verdict.eq("ok").all()
    assert run(dtype=torch.int64).verdict.eq("ok").all()


def test_shapes_of_other_ranks():
    assert list(run(shapes=[(2, 3, 4)])["shape"]) == ["2×3×4"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"shapes": []}, "shapes is empty"),
        ({"num_warps": []}, "num_warps has no values"),
        ({"verdict": [1]}, "'verdict' is a column of the result"),
        ({"n_cols": [1]}, "'n_cols' is a column of the result"),
    ],
)
def test_invalid_arguments_are_named(more, message):
    with pytest.raises(ValueError, match=message):
        run(**more)


def test_progress_shows_a_bar(capsys):
    assert len(run(progress=True)) == 2
    assert "sweep" in capsys.readouterr().err


def test_without_a_gpu_a_right_kernel_cannot_be_timed_and_a_wrong_one_is_still_found(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    common = {"shapes": [(2, 16)], "reference": torch.square, "n_bytes": 1}
    with pytest.raises(device.Missing):
        sweep(square, **common)
    assert sweep(first_columns, block_size=[4], **common).verdict[0] == "wrong"


@pytest.mark.gpu
def test_on_a_gpu_times_are_real():
    df = sweep(
        torch.square,
        shapes=[(256, 1024), (8192, 8192)],
        reference=torch.square,
        n_bytes=lambda x: 2 * x.nbytes,
        budget_s=0.05,
    )
    assert df.verdict.eq("ok").all() and df.n_samples.min() >= 10
    assert df.median_us[1] > 5 * df.median_us[0] and (df.ci_low_us <= df.median_us).all()


def test_a_compiled_function_is_timed_compiled():
    """The check's poisoned allocations must not make torch fall back to the function as it was written."""
    ran = []

    def backend(graph, _inputs):
        def call(*args):
            ran.append(len(args))
            return graph(*args)

        return call

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * x + 0.0 * x, backend=backend)
    before = []

    def timer(function, **_):
        before.append(len(ran))
        function()
        return FakeTiming()

    (row,) = sweep(
        compiled, shapes=[(4, 8)], reference=lambda x: x * x, n_bytes=256, timer=timer, name="compiled"
    ).to_dict("records")
    assert row["verdict"] == "ok" and len(ran) == before[0] + 1

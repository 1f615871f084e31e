"""helpers.lessons.traffic: what torch operations read and write, counted, and the count in words."""

from __future__ import annotations

import pytest
import torch

from helpers.lessons import traffic

M, N = 7, 11


def softmax_five(x):
    largest = x.max(dim=1, keepdim=True).values
    powers = (x - largest).exp()
    return powers / powers.sum(dim=1, keepdim=True)


def counted(fn, *inputs):
    table = traffic.count_traffic(fn, *inputs)
    return [(row.op.split(".")[1], row.reads, row.writes) for row in table.itertuples()]


@pytest.mark.parametrize("where", ["cpu", "meta"])
def test_the_five_operations_of_a_softmax(where):
    table = traffic.count_traffic(softmax_five, torch.ones(M, N, device=where))
    assert list(table.op.str.split(".").str[1]) == ["max", "sub", "exp", "sum", "div"]
    assert table.reads.sum() == 5 * M * N + 2 * M and table.writes.sum() == 3 * M * N + 2 * M
    assert list(table.index_writes) == [M, 0, 0, 0, 0]  # max(dim) also writes int64 indices
    assert table.written_bytes.sum() == 4 * table.writes.sum() + 8 * M
    assert table.read_bytes.sum() == 4 * table.reads.sum()


def test_inputs_are_read_once_and_broadcast_ones_are_not_expanded():
    x = torch.ones(M, N)
    assert counted(lambda x: x * x, x) == [("mul", M * N, M * N)]
    assert counted(lambda x: x + x[0], x) == [("add", M * N + N, M * N)]
    assert counted(lambda x: torch.ones(1, N).expand(M, N) + x, x)[-1] == ("add", M * N + N, M * N)
    assert counted(lambda x: torch.cat([x, x]), x) == [("cat", M * N, 2 * M * N)]


def test_views_and_empty_tensors_move_nothing():
    x = torch.ones(M, N)
    assert counted(lambda x: torch.empty_like(x).copy_(x.T.reshape(N, M).T), x) == [("copy_", M * N, M * N)]
    with pytest.raises(ValueError, match="no torch operation"):
        traffic.count_traffic(lambda x: x.T.view(-1, 1) if x.numel() == 1 else x.T, x)


def test_in_place_and_out_arguments():
    x = torch.ones(M, N)
    assert counted(lambda x: x.add_(1), x) == [("add_", M * N, M * N)]
    assert counted(lambda x: x.zero_(), x) == [("zero_", 0, M * N)]
    assert counted(lambda x: torch.exp(x, out=torch.empty(M, N)), x) == [("exp", M * N, M * N)]


def test_bytes_follow_the_dtype():
    (row,) = traffic.count_traffic(lambda x: x.float(), torch.ones(M, N, dtype=torch.bfloat16)).itertuples()
    assert (row.read_bytes, row.written_bytes) == (2 * M * N, 4 * M * N)


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (5 * M * N + 2 * M, "5MN + 2M"),
        (M * N + M, "MN + M"),
        (3 * M, "3M"),
        (M * N + 1, "MN + 1"),
        (0, "0"),
    ],
)
def test_counts_in_words(n, words):
    assert traffic.in_words(n, M, N) == words


def test_the_table_ends_with_the_totals():
    table = traffic.traffic_table(traffic.count_traffic(softmax_five, torch.ones(M, N)), M, N)
    last = table.iloc[-1]
    assert (last.operation, last.reads, last.writes) == ("together", "5MN + 2M", "3MN + 2M")
    assert last["bytes (GB)"] == pytest.approx(table["bytes (GB)"][:-1].sum())
    with pytest.raises(ValueError, match="no elements"):
        traffic.in_words(3, 0, 5)


def test_a_matrix_that_is_too_small_is_refused():
    traffic.require_size(1, 16)
    for n_rows, n_cols in ((0, 8192), (16384, 1)):
        with pytest.raises(ValueError, match="too small to tell"):
            traffic.require_size(n_rows, n_cols)

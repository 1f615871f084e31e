"""Counts what torch operations read and write, with torch's dispatcher (lesson 06).

It counts what each operation *must* move if it runs as its own kernel: every element of every distinct input
is read once, and every element of every output is written once. If a kernel moves more than that (for
example, in a second pass over its input), the hardware counters show it, but these counts don't.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import torch

# In-place operations that overwrite their first argument without reading it.
_OVERWRITES = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_")
# Operations that only allocate memory or return metadata, without accessing elements.
_MOVE_NOTHING = (
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
    *("detach", "_unsafe_view"),
)


def count_traffic(fn: Callable[..., Any], *inputs: Any) -> pd.DataFrame:
    """Runs `fn(*inputs)` once and counts what each operation of torch's dispatcher reads and writes.

    Tensors on the "meta" device have a shape but no memory, so with them even large sizes are counted
    immediately and nothing is computed.

    Args:
        fn: Any function of tensors.
        *inputs: Its arguments.

    Returns:
        A DataFrame with a row per operation, in order: `op` (such as "aten.sub.Tensor"), `reads` and `writes`
        (floating-point elements), `index_writes` (elements of integer and boolean outputs), `read_bytes` and
        `written_bytes` (everything). A view moves nothing and has no row. An expanded or broadcast input
        counts with the elements that it really has, and an input that is passed twice counts once.

    Raises:
        ValueError: `fn` ran no operation that moves anything.
    """
    import pandas as pd
    from torch.utils._python_dispatch import TorchDispatchMode

    rows: list[dict[str, Any]] = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            row = _row(func, args, kwargs or {}, result)
            if row is not None:
                rows.append(row)
            return result

    with Count():
        fn(*inputs)
    if not rows:
        raise ValueError("count_traffic: the function ran no torch operation that reads or writes a tensor.")
    columns = ["op", "reads", "writes", "index_writes", "read_bytes", "written_bytes"]
    return pd.DataFrame(rows, columns=columns)


def _row(func: Any, args: tuple, kwargs: Mapping[str, Any], result: Any) -> dict[str, Any] | None:
    """Returns what one call of an operator moved, or None if it moved nothing."""
    name = func._schema.name.removeprefix("aten::")
    if name in _MOVE_NOTHING or func.is_view:
        return None
    read: dict[tuple, torch.Tensor] = {}
    written: dict[int, torch.Tensor] = {}
    for position, argument in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        tensors = list(_tensors(value))
        overwritten = argument.alias_info is not None and argument.alias_info.is_write
        if overwritten:
            written |= {id(t): t for t in tensors}
        # `out=` is only written, and so is the first argument of copy_ and similar operations
        if not overwritten or not (argument.kwarg_only or name in _OVERWRITES):
            read |= {_identity(t): t for t in tensors}
    for returned, value in zip(func._schema.returns, _as_tuple(result, func), strict=True):
        if returned.alias_info is None:
            written |= {id(t): t for t in _tensors(value)}
    if not read and not written:
        return None
    floating = [t for t in written.values() if t.is_floating_point() or t.is_complex()]
    others = [t for t in written.values() if not (t.is_floating_point() or t.is_complex())]
    return {
        "op": str(func),
        "reads": sum(_elements(t) for t in read.values() if t.is_floating_point() or t.is_complex()),
        "writes": sum(_elements(t) for t in floating),
        "index_writes": sum(_elements(t) for t in others),
        "read_bytes": sum(_elements(t) * t.element_size() for t in read.values()),
        "written_bytes": sum(_elements(t) * t.element_size() for t in written.values()),
    }


def _as_tuple(result: Any, func: Any) -> tuple:
    return result if isinstance(result, tuple) and len(func._schema.returns) > 1 else (result,)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _identity(t: torch.Tensor) -> tuple:
    """Returns a key that is equal for two tensors with the same elements.

    Meta tensors have no address, so the key uses their storage object.
    """
    return t.untyped_storage()._cdata, t.storage_offset(), tuple(t.shape), t.stride()


def _elements(t: torch.Tensor) -> int:
    """Returns how many distinct elements a tensor has: an expanded dimension (stride 0) repeats them."""
    n = 1
    for size, stride in zip(t.shape, t.stride(), strict=True):
        n *= size if stride or size == 0 else 1
    return n


def in_words(n_elements: int, n_rows: int, n_cols: int) -> str:
    """Returns a count in terms of M rows and N columns.

    For example, 5 · 12 + 2 · 3 elements of a 3 × 4 matrix are "5MN + 2M".

    Raises:
        ValueError: The matrix has no elements.
    """
    if n_rows < 1 or n_cols < 1:
        raise ValueError(f"in_words: a matrix of {n_rows} × {n_cols} has no elements.")
    matrices, rest = divmod(n_elements, n_rows * n_cols)
    columns, single = divmod(rest, n_rows)
    parts = [(matrices, "MN"), (columns, "M"), (single, "")]
    words = [(f"{k}{unit}" if k > 1 or not unit else unit) for k, unit in parts if k]
    return " + ".join(words) or "0"


def require_size(n_rows: int, n_cols: int) -> None:
    """Raises a ValueError if the matrix is too small to tell MN, M and 1 apart.

    Raises:
        ValueError: The matrix has no rows, or fewer columns than the largest multiple of M in a count.
    """
    if n_rows < 1 or n_cols < 16:
        raise ValueError(
            f"{n_rows} × {n_cols} is too small to tell MN, M and 1 apart; use at least 1 row and 16 columns."
        )


def traffic_table(counted: pd.DataFrame, n_rows: int, n_cols: int) -> pd.DataFrame:
    """Returns a count in terms of M and N, with a row for the total.

    The columns are op, reads, writes, indices written and bytes (GB).
    """
    import pandas as pd

    numbers = ["reads", "writes", "index_writes", "read_bytes", "written_bytes"]
    total = pd.DataFrame([{"op": "together", **counted[numbers].sum().to_dict()}])
    rows = []
    for row in pd.concat([counted, total], ignore_index=True).itertuples():
        cells = {
            heading: in_words(int(n), n_rows, n_cols)
            for heading, n in (
                ("reads", row.reads),
                ("writes", row.writes),
                ("int64 written", row.index_writes),
            )
        }
        rows.append(
            {"operation": row.op} | cells | {"bytes (GB)": (row.read_bytes + row.written_bytes) / 1e9}
        )
    return pd.DataFrame(rows)

"""Finds the mistake behind a wrong result of a kernel.

Most diagnoses are small experiments: what would the result be if the kernel read neighboring memory, the
transposed input, or half precision, or returned the previous result? The first experiment that produces the
learner's wrong values is the answer. If none does, the mistake is named after the kind of case that failed,
because the cases go from simple to strange: if views fail and contiguous tensors didn't, it is the strides.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from helpers.check import finding
from helpers.exercises.evidence import Evidence, in_float64
from helpers.exercises.mistakes import Table

_BY_KIND = {
    "view": "wrong-stride",
    "far": "int32-overflow",
    "special": "special-values",
    "dtype": "dtype-fails",
    "many": "fast-but-partial",
}


def of_values(seen: Evidence, table: Table) -> tuple[str, str, str]:
    """(mistake, what can be seen, hint) of a wrong result; the exercise's own table comes first."""
    if found := table.first_match(seen):
        return found
    experiments = (
        _large_or_special,
        _misaligned,
        _shifted,
        _outside,
        _strides,
        _answers,
        _padding,
        _blanks,
        _overflow,
        _exchanged,
        _precision,
    )
    for experiment in experiments:
        found = experiment(seen)
        if found:
            return found[0], found[1], ""
    return _by_kind(seen), "", ""


def _by_kind(seen: Evidence) -> str:
    x = seen.x
    if seen.kind == "size":
        last = x.shape[-1] if x.dim() else 1
        return "wrong-values" if last & (last - 1) == 0 else "power-of-two-only"
    return _BY_KIND.get(seen.kind, "wrong-values")


def _outside(seen: Evidence) -> tuple[str, str] | None:
    """Accesses outside of the tensors."""
    writes, reads = seen.facts.get("guard_writes", 0), seen.facts.get("guard_reads", 0)
    if not writes and not reads:
        if not seen.n_wrong and seen.facts.get("gap_writes"):
            return "in-place", "memory between the elements of its input was overwritten"
        return None
    n, how, which = (writes, "overwritten", "its output") if writes else (reads, "read", "its tensors")
    what = f"{n:,} {'element' if n == 1 else 'elements'} outside {which} {'was' if n == 1 else 'were'} {how}"
    if seen.kind == "far":
        return "int32-overflow", what
    if seen.kind == "view" and not seen.x.is_contiguous():
        return "wrong-stride", what
    return ("off-by-one" if n == 1 and seen.got.numel() > 1 else "missing-mask"), what


def _answers(seen: Evidence) -> tuple[str, str] | None:
    """Values that answer another question."""
    got = seen.got
    if not seen.n_wrong:
        return None
    if any(seen.explains(seen.reference(args)) for args in seen.before):
        return "stale-answer", "they are the values for an earlier call's input"
    for one in seen.args:
        if isinstance(one, torch.Tensor) and one.shape == got.shape and seen.explains(in_float64(one)):
            if 2 * seen.n_wrong < got.numel():
                return "fast-but-partial", "the wrong ones are the input's own values"
            return "returns-input", "they are the input's own values"
    if got.numel() > 1:
        flat = got.reshape(-1)
        if bool((flat == flat[0]).all()) and not bool(seen.unwritten.all()):
            return "constant", f"every element is {flat[0].item():.7g}"
    return None


def _blanks(seen: Evidence) -> tuple[str, str] | None:
    """Parts that were never computed: they are still poison or zero."""
    if not seen.n_wrong:
        return None
    if bool((seen.wrong & ~seen.blank).any()):
        return _first_columns(seen)
    n = seen.got.numel()
    state = "never written" if bool(seen.unwritten[seen.wrong].all()) else "never computed"
    if seen.kind == "many":
        return "fast-but-partial", f"at this size {seen.n_wrong:,} elements were {state}"
    if seen.kind == "far":
        return "int32-overflow", "the values were read from the wrong addresses"
    if seen.kind == "view" and not seen.x.is_contiguous():
        return "wrong-stride", f"they were {state}" if state == "never written" else ""
    if seen.n_wrong == n:
        if bool(seen.got.isnan().all()) and not bool(finding.still_poisoned(seen.got).any()):
            return "computes-nan", f"{'it is' if n == 1 else 'they are'} NaN"
        # also what sums that were added to poison look like
        return "uninitialised-output", f"{'it was' if n == 1 else 'they were'} {state}"
    n_cols = seen.got.shape[-1] if seen.got.dim() else 1
    rows = seen.wrong.reshape(-1, n_cols)
    flat = seen.wrong.reshape(-1)
    if _one_per_row(rows) or (seen.n_wrong == 1 and bool(flat[0] | flat[-1])):
        return "off-by-one", f"they were {state}" if seen.n_wrong > 1 else f"it was {state}"
    first = int(flat.int().argmax())
    if bool(flat[first:].all()) and first:
        if n - first < first and seen.kind == "size":
            return "missing-tail", f"the last {n - first:,} were {state}"
        return "only-first-block", f"only the first {first:,} of {n:,} were computed"
    return _first_columns(seen) or ("fast-but-partial", f"{seen.n_wrong:,} elements were {state}")


def _first_columns(seen: Evidence) -> tuple[str, str] | None:
    """Whether exactly the columns from some column on were never computed, and what that means."""
    if not seen.got.dim() or seen.kind == "view":
        return None
    n_cols = seen.got.shape[-1]
    rows = seen.blank.reshape(-1, n_cols)
    column = int(rows[0].int().argmax())
    if not column or bool((rows != (torch.arange(n_cols, device=rows.device) >= column)).any()):
        return None
    what = f"only the first {column:,} of {n_cols:,} columns were computed"
    if seen.kind == "size" and column == 1 << (n_cols.bit_length() - 1):
        return "power-of-two-only", what
    return "only-first-block", what


def _one_per_row(rows: torch.Tensor) -> bool:
    """Whether exactly the first or exactly the last column is wrong."""
    if rows.shape[1] < 2 or int(rows.sum()) != rows.shape[0]:
        return False
    return bool(rows[:, 0].all()) or bool(rows[:, -1].all())


def _large_or_special(seen: Evidence) -> tuple[str, str] | None:
    """Mistakes with large values, NaN and infinities."""
    if seen.kind == "huge":
        return _overflow(seen)
    if seen.kind != "special" or not seen.n_wrong or not seen.got.is_floating_point():
        return None
    if bool((seen.expected.isnan() & ~seen.got.isnan())[seen.wrong].all()):
        return "nan-blind", "NaN is expected there"
    return "special-values", ""


def _misaligned(seen: Evidence) -> tuple[str, str] | None:
    if seen.kind == "view" and seen.x.is_contiguous() and seen.x.storage_offset() and seen.n_wrong:
        return "misaligned", ""
    return None


def _overflow(seen: Evidence) -> tuple[str, str] | None:
    """Infinity or NaN where a finite number is expected."""
    if not seen.n_wrong or not seen.got.is_floating_point():
        return None
    non_finite = seen.wrong & ~seen.got.isfinite() & seen.expected.to(seen.got.dtype).isfinite()
    if seen.kind != "huge":
        non_finite &= ~seen.unwritten
    if not bool(non_finite.any()):
        return None
    shifted = seen.would_give(seen.x.double() + 3) if seen.x.is_floating_point() else None
    same = shifted is not None and torch.allclose(
        shifted, seen.expected, rtol=1e-6, atol=1e-9, equal_nan=True
    )
    return ("no-maximum" if same else "overflow"), f"{int(non_finite.sum()):,} of them are infinite or NaN"


def _shifted(seen: Evidence) -> tuple[str, str] | None:
    """One place to the left or right, in the result or in the input."""
    if seen.got.numel() < 8 or seen.kind in ("far", "special"):
        return None
    dims = [None] if seen.got.dim() < 2 else [None, -1, -2]
    for by, name in ((1, "later"), (-1, "earlier")):
        for dim in dims:
            if seen.explains(
                seen.expected.roll(by, dim) if dim else seen.expected.reshape(-1).roll(by).view_as(seen.got)
            ):
                return (
                    "off-by-one",
                    f"they are the values that belong one place {'earlier' if by > 0 else 'later'}",
                )
            rolled = seen.x.roll(by, dim) if dim else seen.x.reshape(-1).roll(by).view_as(seen.x)
            if seen.x.dim() > 1 and seen.explains(seen.would_give(rolled)):
                return "off-by-one", f"they belong to an input that is shifted one place {name}"
    return None


def _exchanged(seen: Evidence) -> tuple[str, str] | None:
    if seen.got.dim() != 2 or not seen.n_wrong or seen.x.dim() != 2:
        return None
    n_rows, n_cols = seen.got.shape
    if min(n_rows, n_cols, *seen.x.shape) < 2:
        return None
    other = seen.expected.t().contiguous().view_as(seen.got)
    if seen.explains(other) or seen.explains(seen.expected.contiguous().view(n_cols, n_rows).t()):
        return "transposed", "they are the right values in transposed order"
    transposed = seen.x.contiguous().view(seen.x.shape[1], seen.x.shape[0]).t()
    if seen.explains(seen.would_give(transposed)):
        return "transposed", "they are right for an input that is read column by column"
    along = seen.would_give(seen.x.t())
    if along is not None and along.shape == (n_cols, n_rows) and seen.explains(along.t()):
        return "wrong-axis", "they are right for the other dimension"
    return None


def _strides(seen: Evidence) -> tuple[str, str] | None:
    """Other places in the same memory: what a kernel reads if it assumes that a view is contiguous."""
    x = seen.x
    if x.is_contiguous() or not seen.n_wrong or x.dim() == 0:
        return None
    actual, dense = x.stride(), _dense(x.shape)
    layouts = {"memory read as if the tensor were contiguous": dense}
    if x.dim() == 2:
        layouts["memory read with the row stride, but with neighboring columns"] = (actual[0], 1)
        layouts["memory read with the column stride, but without gaps between the rows"] = (
            actual[1] * x.shape[1],
            actual[1],
        )
        layouts["memory read with the row and column strides swapped"] = (actual[1], actual[0])
    for name, strides in layouts.items():
        read, valid = _read(x, strides)
        if seen.explains(seen.would_give(read), valid):
            return "wrong-stride", f"that is {name}"
    return None


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides, n = [], 1
    for size in reversed(shape):
        strides.append(n)
        n *= size
    return tuple(reversed(strides))


def _read(x: torch.Tensor, strides: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """What `x`'s storage has at other strides, and where that is still inside the storage."""
    memory = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())
    at = torch.full(x.shape, x.storage_offset(), device=x.device)
    for dim, stride in enumerate(strides):
        shape = [-1 if i == dim else 1 for i in range(x.dim())]
        at = at + stride * torch.arange(x.shape[dim], device=x.device).view(shape)
    valid = at < memory.numel()
    return memory[at.clamp(max=memory.numel() - 1)], valid


def _precision(seen: Evidence) -> tuple[str, str] | None:
    """Errors as large as half precision's, or smaller."""
    got, expected = seen.got, seen.expected
    if not seen.n_wrong or not got.is_floating_point() or got.element_size() < 4:
        return None
    finite = seen.wrong & got.isfinite() & expected.isfinite() & (expected != 0)
    if 2 * int(finite.sum()) < seen.n_wrong:
        return None
    errors = ((got.double() - expected) / expected)[finite]
    if len(errors) < 8 or float(errors.abs().kthvalue(int(0.95 * len(errors))).values) > 2**-4:
        return None
    typical = float(errors.abs().median())
    share = f"their typical error is {typical:.0e} of the value"
    if typical < 2**-14 or got.dtype != torch.float32:
        return "inaccurate", share
    # Rounding is noise: its sign changes about every second time from one value to the next larger one. The
    # sign of an approximation's error doesn't.
    signs = errors[expected[finite].argsort()] > 0
    changes = float((signs[1:] != signs[:-1]).double().mean())
    return ("half-precision" if changes > 0.25 else "inaccurate"), share


def _padding(seen: Evidence) -> tuple[str, str] | None:
    """Row-wise results in which the padding took part."""
    x = seen.x
    if x.dim() != 2 or not seen.n_wrong or not x.is_floating_point():
        return None
    n = x.shape[1]
    block = 1 << (n - 1).bit_length()
    if block == n:
        return None
    for value in (0.0, 1.0):
        padded = torch.nn.functional.pad(x.double(), (0, block - n), value=value)
        given = seen.would_give(padded)
        if given is not None and given.shape == padded.shape:
            given = given[:, :n]
        if seen.explains(given):
            return "wrong-padding", f"that is the row padded with {value:g} to {block:,} columns"
    return None

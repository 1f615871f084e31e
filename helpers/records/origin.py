"""Where a figure comes from: its GPU, day and versions, the hashes of its kernels; shown beside each result."""

from __future__ import annotations

import functools
import hashlib
import html
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from helpers import device

PROVENANCE_MIME = "application/vnd.kernel-workbook.provenance+json"
HEADLINE_MIME = "application/vnd.kernel-workbook.headline+json"
UNNAMED = "source"  # the name of a text that holds no kernel
# Of each record that this process has shown last: where its result comes from, and the parameters of the recorded case
# where others were asked for.
_shown: dict[str, tuple[str, str]] = {}


@dataclass(frozen=True)
class Provenance:
    """Where a figure comes from: the GPU, the day, the versions, and the sha256 of each kernel measured."""

    gpu: dict
    driver: str | None
    cuda: str | None
    torch: str
    triton: str | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    date: str
    sources: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.gpu['name']}, {self.date}, torch {self.torch}, triton {self.triton}, CUDA {self.cuda}"


def fingerprint(source: Any) -> tuple[str, str]:
    """The name and the sha256 of a kernel's source: a Triton kernel, a Python function, a module or a text.

    Example:
        >>> from helpers import records
        >>> name, sha256 = records.fingerprint("__global__ void square(float* x) {}")
        >>> name, len(sha256)
        ('square', 64)
    """
    target = getattr(source, "fn", source)  # Triton's JITFunction and Autotuner keep the function in .fn
    target = getattr(target, "fn", target)
    if isinstance(target, str):
        name = re.search(r"__global__[^(]*?(\w+)\s*\(", target)
        name, text = (name.group(1) if name else UNNAMED), target
    else:
        name, text = target.__name__, inspect.getsource(target)
    return name, hashlib.sha256(text.strip().encode()).hexdigest()


@functools.cache
def live_provenance() -> Provenance:
    """What a measurement made here and now comes from."""
    import torch

    gpu = device.gpu_spec().as_dict()  # it measures a copy: before that the GPU may idle, at another clock
    sm = memory = None
    if nvml := device.nvml_handle():
        pynvml, handle = nvml
        sm = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        memory = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)
    return Provenance(
        gpu=gpu,
        driver=device.driver_version(),
        cuda=torch.version.cuda,
        torch=torch.__version__,
        triton=device.package_version("triton"),
        sm_clock_mhz=sm,
        memory_clock_mhz=memory,
        date=date.today().isoformat(),
    )


def show(mode: str, name: str, text: str, *provenances: Provenance, nearest: str = "") -> None:
    """Say where a result comes from: `mode` is "live" or "replayed", `name` the record's, `text` the sentence.

    Most come from one GPU; what compares several has a provenance for each. `nearest` has the parameters of the recorded
    case where others were asked for.
    """
    from IPython.display import publish_display_data

    gpus = " and ".join(provenance.gpu["name"] for provenance in provenances)
    _shown[name] = f"{mode}, {gpus}", nearest
    colour = "#0072B2" if mode == "live" else "#D55E00"
    publish_display_data(
        {
            "text/plain": text,
            "text/html": f'<div style="border-left:4px solid {colour};padding:2px 8px;font-size:90%">'
            f"{html.escape(text)}</div>",
            PROVENANCE_MIME: {
                "record": name,
                "mode": mode,
                "gpu": gpus,
                "date": max(provenance.date for provenance in provenances),
                "text": text,
            },
        }
    )


def headline(label: str, value: str, *, of: str, figures: Mapping[str, float] | None = None) -> None:
    """Show one headline figure; the index page and the table of a batch run collect them.

    Args:
        label: what was measured, such as "square, 10,000 × 10,000 fp32".
        value: the figure with its unit, such as "266 µs · 2,959 GB/s".
        of: the record that the value was computed from, "lesson/what": measured or replayed earlier in this process.
        figures: the numbers of `value` for programs, by names that hold their units and are the same whatever the
            notebook's parameters are: `{"square_us": 266.1, "torch.square (GB/s)": 2959.3}`. Each is a column of
            results.csv.

    Raises:
        ValueError: that record was neither measured nor replayed before, or one of `figures` is no finite number under a
            name.
    """
    from IPython.display import publish_display_data

    if of not in _shown:
        raise ValueError(f"Headline {label!r}: record {of!r} was neither measured nor replayed before it.")
    numbers = {}
    for name, number in (figures or {}).items():
        if not name.strip() or not name.isprintable():
            raise ValueError(f"Headline {label!r}: {name!r} is no name; write for example square_gb_per_s.")
        try:
            numbers[name] = float(number)  # numpy's numbers are no JSON
        except (TypeError, ValueError):
            numbers[name] = math.nan
        if not math.isfinite(numbers[name]):
            raise ValueError(f"Headline {label!r}: {name} is {number!r}, and a figure is a finite number.")
    source, nearest = _shown[of]
    more = {"figures": numbers} if numbers else {}
    if nearest:
        more["nearest"] = nearest
    publish_display_data(
        {
            "text/plain": f"{label}: {value} ({source})",
            "text/html": f"<b>{html.escape(label)}</b>: {html.escape(value)} <small>({html.escape(source)})</small>",
            HEADLINE_MIME: {"label": label, "value": value, "source": source, "record": of, **more},
        }
    )

"""The provenance of a figure (GPU, date, versions, hashes of its kernels), displayed next to each result."""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from helpers import device

PROVENANCE_MIME = "application/vnd.kernel-workbook.provenance+json"
HEADLINE_MIME = "application/vnd.kernel-workbook.headline+json"
# For each record that this process has shown: where its result comes from, and the parameters of the
# recorded case if they differ from the requested ones.
_shown: dict[str, tuple[str, str]] = {}


@dataclass(frozen=True)
class Provenance:
    """Where a figure comes from: the GPU, the date, the versions, and the sha256 of each measured kernel."""

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


@functools.cache
def live_provenance() -> Provenance:
    """The provenance of a measurement made here and now."""
    import torch

    gpu = device.gpu_spec().as_dict()  # measures a copy, so the GPU isn't idle when its clocks are read
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
    """Display where a result comes from.

    Args:
        mode: "live" or "replayed".
        name: the record's name.
        text: the sentence to display.
        *provenances: the provenance of the result; a comparison of several GPUs has one for each.
        nearest: the parameters of the recorded case, if others were requested.
    """
    from IPython.display import publish_display_data

    gpus = " and ".join(provenance.gpu["name"] for provenance in provenances)
    _shown[name] = f"{mode}, {gpus}", nearest
    color = "#0072B2" if mode == "live" else "#D55E00"
    publish_display_data(
        {
            "text/plain": text,
            "text/html": f'<div style="border-left:4px solid {color};padding:2px 8px;font-size:90%">'
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
    """Display one headline figure; the index page and the table of a batch run collect these.

    Args:
        label: what was measured, such as "square, 10,000 × 10,000 fp32".
        value: the figure with its unit, such as "266 µs · 2,959 GB/s".
        of: the record that the value was computed from, "lesson/what", which was measured or replayed
            earlier in this process.
        figures: the numbers in `value`, by names that include their units and don't depend on the
            notebook's parameters: `{"square_us": 266.1, "torch.square (GB/s)": 2959.3}`. Each becomes a
            column of results.csv.

    Raises:
        ValueError: that record was neither measured nor replayed before, or one of `figures` is not a
            finite number under a valid name.
    """
    from IPython.display import publish_display_data

    if of not in _shown:
        raise ValueError(f"Headline {label!r}: record {of!r} was neither measured nor replayed before it.")
    numbers = {}
    for name, number in (figures or {}).items():
        if not name.strip() or not name.isprintable():
            raise ValueError(
                f"Headline {label!r}: {name!r} is not a valid name; use for example square_gb_per_s."
            )
        try:
            numbers[name] = float(number)  # JSON cannot represent numpy's numbers
        except (TypeError, ValueError):
            numbers[name] = math.nan
        if not math.isfinite(numbers[name]):
            raise ValueError(f"Headline {label!r}: {name} is {number!r}, but must be a finite number.")
    source, nearest = _shown[of]
    optional = {"figures": numbers} if numbers else {}
    if nearest:
        optional["nearest"] = nearest
    publish_display_data(
        {
            "text/plain": f"{label}: {value} ({source})",
            "text/html": f"<b>{html.escape(label)}</b>: {html.escape(value)} "
            f"<small>({html.escape(source)})</small>",
            HEADLINE_MIME: {"label": label, "value": value, "source": source, "record": of, **optional},
        }
    )

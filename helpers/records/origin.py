"""Where a figure comes from: its GPU, day and versions, the hashes of its kernels; shown beside each result."""

from __future__ import annotations

import functools
import hashlib
import html
import inspect
import re
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from helpers import device

PROVENANCE_MIME = "application/vnd.kernel-workbook.provenance+json"
HEADLINE_MIME = "application/vnd.kernel-workbook.headline+json"
UNNAMED = "source"  # the name of a text that holds no kernel
_shown: dict[str, str] = {}  # where the result of each record comes from that this process has shown last


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
    """The name and the sha256 of a kernel's source: a Triton kernel, a Python function, a module or a text."""
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

    sm = memory = None
    if nvml := device.nvml_handle():
        pynvml, handle = nvml
        sm = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        memory = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)
    return Provenance(
        gpu=device.gpu_spec().as_dict(),
        driver=device.driver_version(),
        cuda=torch.version.cuda,
        torch=torch.__version__,
        triton=device.package_version("triton"),
        sm_clock_mhz=sm,
        memory_clock_mhz=memory,
        date=date.today().isoformat(),
    )


def show(mode: str, name: str, text: str, *provenances: Provenance) -> None:
    """Say where a result comes from: `mode` is "live" or "replayed", `name` the record's, `text` the sentence.

    Most come from one GPU; what compares several has a provenance for each.
    """
    from IPython.display import publish_display_data

    gpus = " and ".join(provenance.gpu["name"] for provenance in provenances)
    _shown[name] = f"{mode}, {gpus}"
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


def headline(label: str, value: str, *, of: str) -> None:
    """Show one headline figure; the index page of a batch run collects them.

    Args:
        label: what was measured, such as "square, 10,000 × 10,000 fp32".
        value: the figure with its unit, such as "266 µs · 2,959 GB/s".
        of: the record that the value was computed from, "lesson/what": measured or replayed earlier in this process.

    Raises:
        ValueError: that record was neither measured nor replayed before.
    """
    from IPython.display import publish_display_data

    if of not in _shown:
        raise ValueError(f"Headline {label!r}: record {of!r} was neither measured nor replayed before it.")
    source = _shown[of]
    publish_display_data(
        {
            "text/plain": f"{label}: {value} ({source})",
            "text/html": f"<b>{html.escape(label)}</b>: {html.escape(value)} <small>({html.escape(source)})</small>",
            HEADLINE_MIME: {"label": label, "value": value, "source": source},
        }
    )

"""Descriptions of a GPU and of a machine, as plain data and as text; `helpers.device` collects them."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class GpuSpec:
    """One GPU. Sizes in bytes, bandwidths in decimal GB/s; None if the driver doesn't report a value."""

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    warp_size: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    shared_bytes_per_sm: int
    l2_bytes: int
    memory_bytes: int
    peak_gb_per_s: float | None
    copy_gb_per_s: float | None

    @property
    def target(self) -> str:
        """The architecture's name for compilers, such as "sm_90"."""
        return f"sm_{self.compute_capability[0]}{self.compute_capability[1]}"

    def as_dict(self) -> dict:
        """Returns plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> GpuSpec:
        """The inverse of `as_dict`."""
        return cls(**{**values, "compute_capability": tuple(values["compute_capability"])})


@dataclass(frozen=True)
class Finding:
    """One line of the survey.

    Attributes:
        name: what was looked for.
        here: what was found, or None.
        switches_off: which features its absence disables.
        how: how to install it.
    """

    name: str
    here: str | None
    switches_off: str = ""
    how: str = ""


# Figures are drawn for a white background. On a dark page their brightness is inverted and their hues stay.
DARK_FIGURE = "filter:invert(.93) hue-rotate(180deg)"
# The setup cell's output restyles all figures of a notebook in JupyterLab's dark theme.
_DARK_FIGURES = f"<style>body[data-jp-theme-light=false] .js-plotly-plot{{{DARK_FIGURE}}}</style>"


@dataclass(frozen=True)
class Survey:
    """What this machine has. `ok` is False if a lesson could not run at all."""

    findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    gpu: GpuSpec | None
    ok: bool

    def _lines(self) -> list[str]:
        found = {f.name: f.here for f in self.findings}
        first = f"Python {found['Python']} · torch {found['torch']} · triton {found['triton'] or 'missing'}"
        if self.gpu:
            peak = f", peak {self.gpu.peak_gb_per_s:,.0f}" if self.gpu.peak_gb_per_s else ""
            second = (
                f"{self.gpu.name} ({self.gpu.target}, "
                f"{self.gpu.sm_count} SMs): live. Copy: {self.gpu.copy_gb_per_s:,.0f} GB/s{peak}."
            )
        else:
            second = (
                "No GPU: kernels run in the interpreter or are only compiled; measurements are "
                "replayed and labeled."
            )
        return [first, second, *self.problems]

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        return _DARK_FIGURES + "<br>".join(html.escape(line) for line in self._lines())

    def doctor(self) -> str:
        """Every finding on a line of its own, and for what is missing the command that installs it."""
        lines = []
        for f in self.findings:
            lines.append(f"{'ok ' if f.here else '-- '} {f.name:<12} {f.here or 'missing'}")
            if not f.here:
                lines.append(f"    {'':<12} disables: {f.switches_off}")
                lines.append(f"    {'':<12} to install: {f.how}")
        lines += [f"!!  {problem}" for problem in self.problems]
        lines.append("All lessons can run." if self.ok else "Some lessons can't run: see the lines above.")
        return "\n".join(lines)

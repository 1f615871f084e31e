"""Read Nsight Compute reports with NVIDIA's own reader, without a GPU.

The counters are documented in the Metrics Reference of NVIDIA's "Nsight Compute Kernel Profiling Guide".
"""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_MESSAGE_KINDS = {0: "note", 1: "note", 2: "advice", 3: "warning", 4: "error"}  # ncu_report.MsgType
_SPEEDUP_KINDS = {1: "local", 2: "global"}  # ncu_report.SpeedupType


class ReportError(RuntimeError):
    """A report cannot be read, or lacks the requested data."""


@dataclass(frozen=True)
class Rule:
    """The result of one of Nsight Compute's rules for one launch.

    Attributes:
        name: the rule, such as "LaunchConfiguration".
        title: its heading, such as "Tail Effect".
        markup: its message as ncu wrote it, with @section:…@ and @url:…@ marks; `message` is the readable
            text.
        kind: "advice" (OPT in ncu's own output), "note", "warning" or "error".
        section: the identifier of the section that the rule belongs to.
        speedup_percent: the estimated share of the run time that could be saved, from 0 to 100, or None.
        speedup_type: "global" (the share of the whole kernel's time) or "local" (the share of the unit that
            the rule examines).
    """

    name: str
    title: str
    markup: str
    kind: str
    section: str
    speedup_percent: float | None
    speedup_type: str | None

    @property
    def message(self) -> str:
        """Returns the message as plain text."""
        return readable(self.markup)


class Metrics(Mapping):
    """A launch's counters by name. Values are read on access."""

    def __init__(self, action: Any):
        self._action = action

    def __getitem__(self, name: str) -> Any:
        metric = self._action.metric_by_name(name)
        if metric is None:
            similar = difflib.get_close_matches(name, self._action.metric_names(), n=3, cutoff=0.5)
            hint = f"; similar names are {', '.join(similar)}" if similar else ""
            raise KeyError(f"this launch has no counter {name!r}{hint}. Was its section collected?")
        return metric.value()

    def __iter__(self) -> Iterator[str]:
        return iter(self._action.metric_names())

    def __len__(self) -> int:
        return len(self._action.metric_names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._action.metric_by_name(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the value of a counter, or `default` if the launch lacks the counter or it has no value."""
        metric = self._action.metric_by_name(name)
        value = None if metric is None else metric.value()
        return default if value is None else value

    def unit(self, name: str) -> str:
        """Returns a counter's unit, such as "byte/s", or "" if it has none."""
        metric = self._action.metric_by_name(name)
        return "" if metric is None else metric.unit()

    def instances(self, name: str) -> dict[Any, Any]:
        """Returns a counter's individual values, keyed by code address, opcode, or time.

        Returns an empty dict if the counter doesn't exist or has no individual values.
        """
        metric = self._action.metric_by_name(name)
        if metric is None or not metric.has_correlation_ids():
            return {}
        keys = metric.correlation_ids()
        return {keys.value(i): metric.value(i) for i in range(metric.num_instances())}


@dataclass(frozen=True, eq=False)
class Kernel:
    """One profiled launch: its configuration, its counters, and the results of ncu's rules."""

    index: int
    name: str
    demangled_name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    nvtx: tuple[str, ...]
    metrics: Metrics = field(repr=False)
    rules: tuple[Rule, ...] = field(repr=False)
    _action: Any = field(repr=False)

    @property
    def n_blocks(self) -> int:
        """Returns the number of blocks in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def duration_us(self) -> float | None:
        """Returns the time on the GPU in microseconds, as counted by ncu, which flushes the caches first."""
        nanoseconds = self.metrics.get("gpu__time_duration.sum")
        return None if nanoseconds is None else nanoseconds / 1e3

    def rule(self, name: str, title: str = "") -> Rule | None:
        """Returns the first advice from the rule with this name (and title), or None."""
        return next(
            (r for r in self.rules if r.name == name and r.kind == "advice" and title in r.title), None
        )

    def sources(self) -> dict[str, str]:
        """Returns the report's source files as a dict from path to text (empty if it was not imported)."""
        return dict(self._action.source_files())


@dataclass(frozen=True, eq=False)
class Report:
    """A report. `report[0]` is its first launch, and `len(report)` is the number of launches."""

    path: Path
    gpu: str
    compute_capability: tuple[int, int] | None
    kernels: tuple[Kernel, ...] = field(repr=False)
    _context: Any = field(repr=False)  # keeps the reader's context alive, which owns the actions

    def __len__(self) -> int:
        return len(self.kernels)

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.kernels)

    def __getitem__(self, index: int) -> Kernel:
        try:
            return self.kernels[index]
        except IndexError:
            raise IndexError(
                f"{self.path.name} has {len(self)} launches; index {index} is out of range."
            ) from None

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(k.name for k in self.kernels))
        launches = f"{len(self)} launch{'es' if len(self) != 1 else ''}"
        return f"{self.path.name}: {launches} of {names or 'nothing'} on {self.gpu}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>" + summary(self).to_html(
            index=False, float_format=lambda v: f"{v:,.4g}"
        )


def load_report(path: str | Path) -> Report:
    """Read an `.ncu-rep` file.

    Raises:
        FileNotFoundError: the file doesn't exist.
        ReportError: the file is not a report, or was written by a newer Nsight Compute than the reader
            supports.

    Example:
        >>> from helpers import ncu, records
        >>> report = ncu.load_report(records.folder() / "h100" / "ncu" / "five-grids.ncu-rep")
        >>> report
        five-grids.ncu-rep: 5 launches of square_rows_kernel on NVIDIA H100 80GB HBM3
        >>> report[0].duration_us
        2.848
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no report {path}. To write one, run ncu with -o NAME (NAME.ncu-rep)."
        )
    try:
        import ncu_report
    except ImportError as error:
        raise ReportError(
            "NVIDIA's report reader is not installed: run pip install ncu-report (it needs no GPU)."
        ) from error
    with path.open("rb") as file:
        if file.read(4) != b"NVR\0":  # the reader crashes on some other files
            raise ReportError(f"{path.name} is not an Nsight Compute report (its header is wrong).")
    try:
        context = ncu_report.load_report(str(path))
    except Exception as error:  # the reader raises plain C++ exceptions
        raise ReportError(
            f"{path.name} cannot be read with ncu-report {_reader_version()}: {error}. A report from a newer "
            "Nsight Compute needs a newer reader: pip install --upgrade ncu-report."
        ) from error
    kernels: list[Kernel] = []
    for r in range(context.num_ranges()):
        one_range = context.range_by_idx(r)
        # Each call of action_by_idx reads the launch again and keeps it in memory (30 MB), so call it once
        # per launch.
        kernels += [
            _kernel(one_range.action_by_idx(i), len(kernels) + i) for i in range(one_range.num_actions())
        ]
    if not kernels:
        raise ReportError(
            f"{path.name} contains no launches. Was it truncated, or did ncu's filters match nothing?"
        )
    first = kernels[0].metrics
    major, minor = (first.get(f"device__attribute_compute_capability_{m}") for m in ("major", "minor"))
    return Report(
        path=path,
        gpu=first.get("device__attribute_display_name") or "an unnamed GPU",
        compute_capability=None if major is None else (int(major), int(minor)),
        kernels=tuple(kernels),
        _context=context,
    )


def _reader_version() -> str:
    from helpers import device

    return device.package_version("ncu-report") or "(unknown version)"


def _kernel(action: Any, index: int) -> Kernel:
    metrics = Metrics(action)

    def dimensions(what: str) -> tuple[int, int, int]:
        return tuple(int(metrics.get(f"launch__{what}_dim_{axis}", 1)) for axis in "xyz")

    return Kernel(
        index=index,
        name=action.name(),
        demangled_name=action.name(action.NameBase_DEMANGLED) or action.name(),
        grid=dimensions("grid"),
        block=dimensions("block"),
        nvtx=_nvtx_ranges(action),
        metrics=metrics,
        rules=tuple(_rule(d) for d in action.rule_results_as_dicts()),
        _action=action,
    )


def _nvtx_ranges(action: Any) -> tuple[str, ...]:
    state = action.nvtx_state()
    if state is None:
        return ()
    domains = [state.domain_by_id(i) for i in state.domains()]
    return tuple(name for domain in domains for name in domain.push_pop_ranges())


def _rule(result: dict) -> Rule:
    message = result.get("rule_message") or {}
    speedup = result.get("speedup_estimation") or {}
    return Rule(
        name=result["rule_identifier"],
        title=message.get("title") or result["name"],
        markup=message.get("message", ""),
        kind=_MESSAGE_KINDS.get(message.get("type"), "note"),
        section=result["section_identifier"],
        speedup_percent=speedup.get("speedup"),
        speedup_type=_SPEEDUP_KINDS.get(speedup.get("type")),
    )


# --- ncu's marks in messages: @section:Identifier:Text@, @url:Text:https://…@, @sass:Address:Text@,
# @source:File:Line:Text@
MARK = re.compile(r"@(section|url|sass|source):(.*?)@", re.DOTALL)


def mark_parts(match: re.Match) -> tuple[str, str | None]:
    """Returns the text of a mark, and its address if it is a link."""
    kind, rest = match.groups()
    if kind == "url":
        text, _, address = rest.partition(":")
        return (text, address) if "://" in address else (rest, None)
    return rest.rsplit(":", 1)[-1], None


def readable(markup: str) -> str:
    """Returns a rule's message without ncu's marks: section names, and links as text followed by the address.

    Example:
        >>> from helpers import ncu
        >>> ncu.readable("See @section:Occupancy:Occupancy@ and @url:the guide:https://example.org@.")
        'See Occupancy and the guide (https://example.org).'
    """

    def plain(match: re.Match) -> str:
        text, address = mark_parts(match)
        return f"{text} ({address})" if address else text

    return MARK.sub(plain, markup)


# --- tables
def launches_of(report: Report | Kernel, kernel: int | Kernel | None = None) -> list[Kernel]:
    """Returns the launches that a call refers to: all of a report, or only `kernel`."""
    if isinstance(report, Kernel):
        return [report]
    if kernel is None:
        return list(report)
    return [kernel if isinstance(kernel, Kernel) else report[kernel]]


def number(kernel: Kernel, name: str, factor: float = 1.0) -> float:
    value = kernel.metrics.get(name)
    return float("nan") if value is None else float(value) * factor


def _integer(kernel: Kernel, name: str) -> float | int:
    value = kernel.metrics.get(name)
    return float("nan") if value is None else int(value)


def _estimate(kernel: Kernel) -> float:
    """Returns the largest estimate for the kernel's whole time, or 0 if no rule gives one."""
    found = [r.speedup_percent for r in kernel.rules if r.speedup_type == "global" and r.kind == "advice"]
    return max((s for s in found if s is not None), default=0.0)


def summary(report: Report | Kernel) -> pd.DataFrame:
    """Returns one row per launch, with the columns of Nsight Compute's own Summary page and a few more.

    `est_speedup_percent` is the largest estimate among the rules that apply to the whole kernel ("global"),
    as the share of its time that could be saved; `runtime_improvement_us` is that share of the duration. A
    counter that was not collected is NaN.

    Example:
        >>> from helpers import ncu, records
        >>> report = ncu.load_report(records.folder() / "h100" / "ncu" / "five-grids.ncu-rep")
        >>> ncu.summary(report).duration_us.round(1).tolist()
        [2.8, 2.9, 3.2, 6.9, 42.6]
    """
    import pandas as pd

    rows = []
    for k in launches_of(report):
        estimate = _estimate(k)
        duration = float("nan") if k.duration_us is None else k.duration_us
        read, written = _integer(k, "dram__bytes_read.sum"), _integer(k, "dram__bytes_write.sum")
        rows.append(
            {
                "est_speedup_percent": estimate,
                "function_name": k.name,
                "demangled_name": k.demangled_name,
                "duration_us": duration,
                "runtime_improvement_us": duration * estimate / 100,
                "compute_throughput_percent": number(k, "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
                "memory_throughput_percent": number(
                    k, "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
                ),
                "registers_per_thread": _integer(k, "launch__registers_per_thread"),
                "grid_size": ", ".join(map(str, k.grid)),
                "block_size": ", ".join(map(str, k.block)),
                "waves_per_sm": number(k, "launch__waves_per_multiprocessor"),
                "achieved_occupancy_percent": number(k, "sm__warps_active.avg.pct_of_peak_sustained_active"),
                "dram_read_bytes": read,
                "dram_write_bytes": written,
                "dram_gb_per_s": (read + written) / duration / 1e3,
            }
        )
    return pd.DataFrame(rows)

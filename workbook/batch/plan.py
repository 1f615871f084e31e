"""What a batch will run: one job per notebook and point, with checked parameters and distinct output names.

Everything that can be wrong with a command line is found here, before anything runs or is written.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbook.assignments import assignments, value_lists
from workbook.batch.parameters import parse_value
from workbook.batch.point_files import read_parameters, read_points
from workbook.batch.sources import Source, find_sources
from workbook.options import RunOptions
from workbook.usage import UsageError

_NAME_BYTES = 180  # of an output's name: file systems allow 255, and suffixes are added to it


@dataclass(frozen=True)
class Job:
    """One notebook with one set of parameters.

    Attributes:
        name: What its outputs are called, without a suffix; it names the point.
        source: The notebook's absolute path.
        title: Its first heading, or its file name.
        kernel: The kernelspec that runs it.
        parameters: What is injected after its parameters cell.
        content: The bytes of its file when it was planned.
        sha256: Their hash, by which `--resume` recognizes it.
        refusal: Why it can't run, or "". A notebook that was found in a folder doesn't stop the others.
        cwd: The folder that it runs in, or None for its own.
    """

    name: str
    source: Path
    title: str
    kernel: str
    parameters: dict[str, Any] = field(default_factory=dict)
    content: bytes = field(default=b"", repr=False)
    sha256: str = ""
    refusal: str = ""
    cwd: Path | None = None

    @property
    def same_work(self) -> dict[str, str]:
        """What must be equal for a finished output to belong to this job."""
        parameters = json.dumps(self.parameters, sort_keys=True)  # as a text, in which nan equals nan
        work = {"sha256": self.sha256, "parameters": parameters, "kernel": self.kernel}
        return {**work, "cwd": str(self.cwd)} if self.cwd else work


@dataclass(frozen=True)
class PlannedPoint:
    """A job without its content: what another process needs to find its output.

    Attributes:
        name: What its outputs are called, without a suffix.
        source: The notebook's path.
        title: Its first heading, or its file name.
        work: `Job.same_work`.
        refusal: Why it can't run, or "".
    """

    name: str
    source: str
    title: str
    work: dict[str, str]
    refusal: str = ""

    @classmethod
    def of(cls, job: Job) -> PlannedPoint:
        """The point of a job."""
        return cls(job.name, str(job.source), job.title, job.same_work, job.refusal)

    @property
    def parameters(self) -> dict[str, Any]:
        """What is injected after its parameters cell."""
        return json.loads(self.work["parameters"])


def plan(notebooks: Sequence[Path | str], options: RunOptions) -> list[Job]:
    """Turn notebooks and options into jobs.

    Args:
        notebooks: Files, or folders whose notebooks are taken in the order of their names.
        options: A parameter given as a text is parsed by the type that the notebook's parameters cell
            declares. A notebook runs at every point of a grid or a sweep whose parameters it has; with both,
            at every pair of their points.

    Raises:
        UsageError: There is no notebook, no notebook has a parameter, a value has the wrong type, or a file
            that was named itself can't run. One that was found in a folder becomes a job with a `refusal`.
    """
    sources = find_sources(
        [Path(one) for one in notebooks],
        options.kernel,
        recursive=options.recursive,
        exclude=options.exclude,
        out=Path(options.out),
    )
    points = _Points.of(options)
    points.require_known(sources)
    cwd = _folder(options.cwd)
    return _with_distinct_names([job for one in sources for job in points.jobs(one, cwd)])


@dataclass(frozen=True)
class _Points:
    """The parameters that a command line gives, before they are parsed.

    Attributes:
        fixed: Name to value, at every point.
        grid: Name to values.
        sweep: Points.
    """

    fixed: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]
    sweep: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, options: RunOptions) -> _Points:
        """Read the options. Raises `UsageError` if one name is given in two ways."""
        parameters, grid, sweep = options.parameters, options.grid, options.sweep
        if not isinstance(parameters, Mapping):
            parameters = assignments(parameters, "-p")
        if not isinstance(grid, Mapping):
            grid = value_lists(grid, "--grid")
        if isinstance(sweep, (str, Path)):
            sweep = read_points(Path(sweep))
        defaults = options.defaults or {}
        if not isinstance(defaults, Mapping):
            defaults = read_parameters(Path(defaults))
        ways = {"-p": set(parameters), "--grid": set(grid), "--sweep": {name for p in sweep for name in p}}
        for (one, names), (other, more) in itertools.combinations(ways.items(), 2):
            if twice := sorted(names & more):
                raise UsageError(f"{twice[0]} is given both by {one} and by {other}; give it once.")
        return cls({**defaults, **parameters}, grid, sweep)

    def require_known(self, sources: Sequence[Source]) -> None:
        """Refuse a parameter that no notebook has."""
        readable = [source for source in sources if not source.refusal]
        sweep_names = [name for point in self.sweep for name in point]
        for name in dict.fromkeys([*self.fixed, *self.grid, *sweep_names]):
            if not any(name in source.parameters for source in readable):
                raise UsageError(_unknown(name, readable))

    def jobs(self, source: Source, cwd: Path | None) -> list[Job]:
        """The jobs of one notebook."""
        sha256 = source.sha256
        like = Job(
            source.name,
            source.path,
            source.title,
            source.kernel,
            content=source.content,
            sha256=sha256,
            refusal=source.refusal,
            cwd=cwd,
        )
        if source.refusal:
            return [dataclasses.replace(like, cwd=None)]
        fixed = _parsed(self.fixed, source)
        jobs = []
        for point in self._of(source):
            name = source.name + "".join(f"__{axis}={_slug(value)}" for axis, value in point.items())
            jobs.append(dataclasses.replace(like, name=name, parameters={**fixed, **point}))
        return jobs

    def _of(self, source: Source) -> list[dict[str, Any]]:
        """The parsed points of one notebook: those of the sweep, times those of the grid."""
        rows = [_parsed(row, source) for row in self.sweep]
        if any(name not in source.parameters for row in self.sweep for name in row):
            # Points that differ only in parameters of other notebooks are the same point here.
            rows = list({json.dumps(row, sort_keys=True): row for row in rows}.values())
        grid = {name: values for name, values in self.grid.items() if name in source.parameters}
        axes = [[_parsed({name: value}, source) for value in values] for name, values in grid.items()]
        return [
            {name: value for part in parts for name, value in part.items()}
            for parts in itertools.product(rows or [{}], *axes)
        ]


def _parsed(values: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """The values of those parameters that a notebook has."""
    found = {}
    for name, given in values.items():
        if name in source.parameters:
            try:
                found[name] = parse_value(given, source.parameters[name])
            except ValueError as error:
                listed = ", ".join(map(str, source.parameters.values()))
                raise UsageError(
                    f"{source.path.name}: {name} {error}; its parameters are {listed}."
                ) from None
    return found


def _unknown(name: str, sources: Sequence[Source]) -> str:
    names = sorted({known for source in sources for known in source.parameters})
    near = difflib.get_close_matches(name, names, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    listed = "; ".join(
        f"{one.path.name}: {', '.join(map(str, one.parameters.values())) or 'none'}" for one in sources
    )
    if len(sources) == 1:
        return f"{sources[0].path.name} has no parameter {name}{hint}; there are {listed}."
    return f"None of these notebooks has a parameter {name}{hint}; there are {listed}."


def _folder(cwd: Path | str | None) -> Path | None:
    if cwd is None:
        return None
    if not Path(cwd).is_dir():
        raise UsageError(f"--cwd {cwd} is not a folder; name an existing one.")
    return Path(cwd).resolve()


def _with_distinct_names(jobs: Sequence[Job]) -> list[Job]:
    """Shorten long names, and add a hash of the point to a name that is shortened or not unique.

    Raises:
        UsageError: Two points are the same.
    """
    often = Counter(job.name for job in jobs)
    named, seen = [], set()
    for job in jobs:
        name, short = job.name, job.name.encode()
        if often[name] > 1 or len(short) > _NAME_BYTES:
            point = hashlib.sha256(json.dumps([name, job.parameters], sort_keys=True).encode()).hexdigest()
            name = f"{short[: _NAME_BYTES - 10].decode(errors='ignore')}__{point[:8]}"
        if name in seen:
            raise UsageError(f"Two outputs would be called {job.name}: give each point once.")
        seen.add(name)
        named.append(job if name == job.name else dataclasses.replace(job, name=name))
    return named


def _slug(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return re.sub(r"[^\w.+-]+", "_", text).strip("_") or "_"

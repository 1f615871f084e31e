"""The unit of work of a batch, as plain data that any process can be given: one notebook with one set of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helpers.workshop.batch.plan import Job

RUNNING = "running"  # the folder, in that of the outputs, of notebooks as far as they have come


class Stopped(Exception):
    """The batch was interrupted before this point's notebook was written."""


class Held(Exception):
    """Another process is making this point's outputs; the message says which."""


class Lost(Exception):
    """What ran the points is gone; the message is a sentence."""


@dataclass(frozen=True)
class Point:
    """What `work.run_point` needs, and all that it depends on.

    Attributes:
        job: The notebook's bytes with their hash, its parameters, the outputs' name.
        out: The folder of the outputs.
        started: When the batch began, ISO 8601.
        cell_timeout: Seconds for one cell, or None.
        resume: Whether a finished output of the same work is kept.
        pages: (folder, file name) of every notebook of the batch to the name of its page, for links between them.
        gpu: The UUID of the GPU that its kernel sees, or "" for all that this process sees.
        gpu_alone: Whether no other point of the batch is given this GPU at the same time; None without `gpu`.
        run: The batch's own name, or "".
        since_ns: When it began, by the file system's clock: what another run finishes after that is kept; 0 for never.
        wait: Whether to wait for another process that has it.
        attempt: How often the batch has begun it, with this time.
        retries: How often it may be begun again where its kernel or worker dies.
        notebook_timeout: Seconds for the whole notebook with its kernel's start, or None.
        start_timeout: Seconds for the kernel to answer first.
        memory_limit: MB (10^6 bytes) for all its processes together, or None.
        log_output: Whether it gets a log, `NAME.log`.
    """

    job: Job
    out: Path
    started: str
    cell_timeout: float | None = None
    resume: bool = False
    pages: Mapping[tuple[Path, str], str] = field(default_factory=dict)
    gpu: str = ""
    gpu_alone: bool | None = None
    run: str = ""
    since_ns: int = 0
    wait: bool = False
    attempt: int = 1
    retries: int = 0
    notebook_timeout: float | None = None
    start_timeout: float = 120
    memory_limit: float | None = None
    log_output: bool = False

"""The unit of work of a batch, as plain data that any process can be given: one notebook with one set of
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbook.batch.plan import Job

RUNNING = "running"  # the folder, inside the one of the outputs, of notebooks that are still running


class Stopped(Exception):
    """The batch was interrupted before this point's notebook was written."""


class SchedulerLost(Exception):
    """The scheduler that ran the points is gone; the message is a sentence."""


@dataclass(frozen=True)
class Point:
    """What `work.run_point` needs, and all that it depends on.

    Attributes:
        job: The notebook's bytes with their hash, its parameters, the outputs' name.
        out: The folder of the outputs.
        started: When the batch began, ISO 8601.
        cell_timeout: Seconds for one cell; 0 for no limit.
        resume: Whether to keep a finished output of the same work.
        pages: (folder, file name) of every notebook of the batch to the name of its page, for links between
            them.
        gpu: The UUID of the GPU that its kernel sees, or "" for all that this process sees.
        gpu_alone: Whether no other point of the batch uses this GPU at the same time; None without `gpu`.
        run: An identifier of the batch, or "".
        attempt: How often the batch has begun it, including this time.
        retries: How often it may be begun again if its kernel or worker dies.
        notebook_timeout: Seconds for the whole notebook, including its kernel's start; 0 for no limit.
        start_timeout: Seconds until the kernel's first answer.
        memory_limit: MB (10^6 bytes) for all its processes together; 0 for no limit.
        log_output: Whether it writes a log, `NAME.log`.
    """

    job: Job
    out: Path
    started: str
    cell_timeout: float = 0
    resume: bool = False
    pages: Mapping[tuple[Path, str], str] = field(default_factory=dict)
    gpu: str = ""
    gpu_alone: bool | None = None
    run: str = ""
    attempt: int = 1
    retries: int = 0
    notebook_timeout: float = 0
    start_timeout: float = 120
    memory_limit: float = 0
    log_output: bool = False

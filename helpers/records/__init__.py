"""Measure live and keep the result, or replay what was recorded, with its provenance.

`replay` decides which of the two it is, everywhere: `measured` (a table), `measured_file`, `stored` (always from the
records), `stored_by_gpu` (of each GPU). `sets` knows the GPUs of which records are kept and which one is replayed, `origin` what a figure's provenance
is and how it is shown, `files` how a record is read and written, `comparison` sets the records of several GPUs side by
side.

A record is a JSON file `helpers/records/<gpu>/<name>.json` with the cases that were measured (their parameters,
rows and provenance). A file record (a report, a trace, generated code) stands beside its JSON. The records of one GPU
are a set, named after its folder. WORKBOOK_REPLAY=h100 chooses the set that is replayed; without it the newest complete
one is. What that set lacks is taken from the newest set that has it, and said. A set also lacks
what it has of another text of a kernel; where no set has this text, `KernelChanged` is raised, so that a kernel that
was edited never gets the time of another.
"""

from helpers.records.comparison import compare
from helpers.records.origin import HEADLINE_MIME, PROVENANCE_MIME, UNNAMED, Provenance, fingerprint, headline
from helpers.records.replay import CannotMeasure, KernelChanged, measured, measured_file, stored, stored_by_gpu
from helpers.records.sets import NoRecord, folder, gpu_folder_name, gpu_spec, gpu_specs, sets

__all__ = [
    "HEADLINE_MIME",
    "PROVENANCE_MIME",
    "UNNAMED",
    "CannotMeasure",
    "KernelChanged",
    "NoRecord",
    "Provenance",
    "compare",
    "fingerprint",
    "folder",
    "gpu_folder_name",
    "gpu_spec",
    "gpu_specs",
    "headline",
    "measured",
    "measured_file",
    "sets",
    "stored",
    "stored_by_gpu",
]

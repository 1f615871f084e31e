"""Measure on this GPU and store the result, or replay what was recorded, with its provenance.

`replay` decides between the two, everywhere: `measured` (a table), `measured_file`, `stored` (always from
the records) and `stored_by_gpu` (one table per GPU). `sets` knows which GPUs have records and which one is
replayed, `origin` defines a figure's provenance and displays it, `fingerprints` hashes kernels, `files`
reads and writes a record, and `comparison` joins the records of several GPUs.

A record is a JSON file `helpers/records/<gpu>/<name>.json` with the cases that were measured (their
parameters, rows and provenance). If the result is a file (a report, a trace, generated code), it lies next
to its JSON. The records of one GPU are a set, named after its folder. WORKBOOK_REPLAY=h100 chooses the set
to replay; by default it is the newest complete one. If that set has no record, or measured another version
of a kernel, the newest other set that has the record is used, and the output says so. If no set measured
this version of the kernel, `KernelChanged` is raised, so an edited kernel never gets the time of another.
"""

from helpers.records.comparison import compare
from helpers.records.fingerprints import UNNAMED, fingerprint
from helpers.records.origin import HEADLINE_MIME, PROVENANCE_MIME, Provenance, headline
from helpers.records.replay import (
    CannotMeasure,
    KernelChanged,
    measured,
    measured_file,
    stored,
    stored_by_gpu,
)
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

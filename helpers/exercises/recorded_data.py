"""The recorded data that free exercises are about: the same on every machine, whatever GPU it has.

An answer is about one measurement, so neither this machine's GPU nor the chosen record set may change it.
Each function takes a record's name, "lesson/what", and the record set, which must not vary either.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import records

if TYPE_CHECKING:
    import pandas as pd

_RECORDS = Path(records.__file__).parent


def _case(name: str, gpu: str) -> dict[str, Any]:
    return json.loads((_RECORDS / gpu / f"{name}.json").read_text())["cases"][-1]


def origin(name: str, gpu: str = "h200") -> str:
    """A record's GPU and date: "NVIDIA H200, 2026-11-22"."""
    provenance = _case(name, gpu)["provenance"]
    return f"{provenance['gpu']['name']}, {provenance['date']}"


def table(name: str, gpu: str = "h200") -> pd.DataFrame:
    """A record's rows."""
    import pandas as pd

    case = _case(name, gpu)
    return pd.DataFrame(case["rows"], columns=case["columns"])


def path(name: str, gpu: str = "h200") -> Path:
    """A record that is a file: a trace, or a report of Nsight Compute."""
    return (_RECORDS / gpu / f"{name}.json").with_name(_case(name, gpu)["file"])

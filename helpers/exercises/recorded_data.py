"""The recorded data that free exercises are about: the same on every machine, whatever GPU it has.

An answer is about one measurement, so neither this machine's GPU nor the chosen record set may change it.
Each function takes a record's name, "lesson/what".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import records

if TYPE_CHECKING:
    import pandas as pd

_SET = Path(records.__file__).parent / "h200"


def _case(name: str) -> dict[str, Any]:
    return json.loads((_SET / f"{name}.json").read_text())["cases"][-1]


def origin(name: str) -> str:
    """A record's GPU and date: "NVIDIA H200, 2026-11-22"."""
    provenance = _case(name)["provenance"]
    return f"{provenance['gpu']['name']}, {provenance['date']}"


def table(name: str) -> pd.DataFrame:
    """A record's rows."""
    import pandas as pd

    case = _case(name)
    return pd.DataFrame(case["rows"], columns=case["columns"])


def path(name: str) -> Path:
    """A record that is a file: a trace, or a report of Nsight Compute."""
    return (_SET / f"{name}.json").with_name(_case(name)["file"])

"""Records as JSON files: one row per line, so that a diff shows which measurement changed; written
atomically.
"""

from __future__ import annotations

import json
from pathlib import Path

from helpers import atomic


def read_cases(path: Path) -> list[dict]:
    """Read the cases of a record's file.

    Raises:
        ValueError: the file is not a record: it is not JSON, or has no cases.
    """
    try:
        cases = json.loads(path.read_text("utf-8"))["cases"]
        if not cases or not all({"params", "provenance"} <= case.keys() for case in cases):
            raise ValueError("it has no cases")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a record, or is damaged; measure it again, or restore it from git."
        ) from error
    return cases


def write_case(path: Path, name: str, case: dict) -> None:
    """Add a case to a record's file, replacing the case with the same parameters."""
    cases = read_cases(path) if path.exists() else []
    cases = [c for c in cases if c["params"] != case["params"]] + [case]
    with atomic.atomic_write(path) as file:
        file.write_text(as_text(name, cases))


def as_text(name: str, cases: list[dict]) -> str:
    """Format a record as JSON with one row per line."""
    texts = ",\n".join(_case_text(case) for case in cases)
    return f'{{\n "name": {json.dumps(name)},\n "cases": [\n{texts}\n ]\n}}\n'


def _case_text(case: dict) -> str:
    members = ",\n".join(f"   {json.dumps(key)}: {_member_text(key, value)}" for key, value in case.items())
    return f"  {{\n{members}\n  }}"


def _member_text(key: str, value: object) -> str:
    if key in ("rows", "kernels") and value:
        rows = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in value)
        return f"[\n{rows}\n   ]"
    # JSON strings contain no raw line breaks, so every one is formatting.
    return json.dumps(value, indent=1, ensure_ascii=False).replace("\n", "\n   ")

"""Records as files: JSON with a row a line, put in place whole, so that a diff shows which measurement changed."""

from __future__ import annotations

import json
from pathlib import Path

from helpers import whole


def read_cases(path: Path) -> list[dict]:
    """The cases of a record's file.

    Raises:
        ValueError: it is no record: not JSON, or without cases.
    """
    try:
        cases = json.loads(path.read_text("utf-8"))["cases"]
        if not cases or not all({"params", "provenance"} <= case.keys() for case in cases):
            raise ValueError("it has no cases")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is no record, or a damaged one: measure it again, or take it back from git."
        ) from error
    return cases


def write_case(path: Path, name: str, case: dict) -> None:
    """Put a case into a record's file, in the place of one with the same parameters."""
    cases = read_cases(path) if path.exists() else []
    cases = [c for c in cases if c["params"] != case["params"]] + [case]
    with whole.written(path) as file:
        file.write_text(as_text(name, cases))


def as_text(name: str, cases: list[dict]) -> str:
    """A record as JSON, one row a line: a diff shows which measurement changed."""
    texts = ",\n".join(_case_text(case) for case in cases)
    return f'{{\n "name": {json.dumps(name)},\n "cases": [\n{texts}\n ]\n}}\n'


def _case_text(case: dict) -> str:
    members = ",\n".join(f"   {json.dumps(key)}: {_member_text(key, value)}" for key, value in case.items())
    return f"  {{\n{members}\n  }}"


def _member_text(key: str, value: object) -> str:
    if key in ("rows", "kernels") and value:
        rows = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in value)
        return f"[\n{rows}\n   ]"
    # JSON has no raw line break inside a text, so every one is layout.
    return json.dumps(value, indent=1, ensure_ascii=False).replace("\n", "\n   ")

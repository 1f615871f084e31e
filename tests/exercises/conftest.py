"""A fixture that the tests of the labs share."""

from __future__ import annotations

import pytest
from lab_attempts import verdicts


@pytest.fixture(scope="module")
def found(request) -> dict[str, dict]:
    """The verdict on each of a module's ATTEMPTS, from one process without a GPU."""
    return verdicts(str(request.path))

"""What the tests of the labs share as a fixture."""

from __future__ import annotations

import pytest
from lab_attempts import verdicts


@pytest.fixture(scope="module")
def found(request) -> dict[str, dict]:
    """The verdict on each of a module's ATTEMPTS, from one process without a GPU."""
    return verdicts(str(request.path))

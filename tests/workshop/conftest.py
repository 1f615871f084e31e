"""A small checkout, for what forms and publishes notebooks."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_checkout import CUDA, GOOD_BADGE, KERNELS


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a pyproject, two kernels and a README."""
    (tmp_path / "helpers" / "kernels").mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "helpers" / "kernels" / "k.py").write_text(KERNELS)
    (tmp_path / "helpers" / "kernels" / "k.cu").write_text(CUDA)
    pyproject = (
        '[project]\nname = "kernel-workbook"\n[project.urls]\nRepository = "https://github.com/ada/kernels"\n'
    )
    (tmp_path / "pyproject.toml").write_text(pyproject)
    (tmp_path / "README.md").write_text(
        f"{GOOD_BADGE}\n`git clone https://github.com/ada/kernels`\ngithub.com/ada/kernels-old\n"
    )
    return tmp_path

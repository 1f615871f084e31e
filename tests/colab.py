"""The versions that Colab publishes, from the dated list in this folder, and what pip would do to them."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from commands import ROOT
from packaging.utils import canonicalize_name
from packaging.version import Version

PYTHON = "3.13"
# What these versions require, in their own words, where it decides what pip does.
REQUIRES = {
    "ipython": ["jedi>=0.16"],
    "cuda-toolkit": [
        "nvidia-cuda-runtime-cu12==12.8.90.*; extra == 'cudart'",
        "nvidia-cuda-nvrtc-cu12==12.8.93.*; extra == 'nvrtc'",
    ],
}


@functools.cache
def versions() -> dict[str, Version]:
    """Package to version, of the newest list."""
    newest = sorted((ROOT / "tests").glob("colab-*.txt"))[-1]
    lines = [line.split("#")[0].strip() for line in newest.read_text().splitlines()]
    pairs = [line.split("==") for line in lines if "==" in line]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def resolve(requirements: Iterable[str], pins: dict[str, Version]) -> dict[str, Version]:
    """What pip would install there for requirements: package to version, those that it would replace
    included.

    pip resolves against an environment in which every package of the list is installed, by name and version.

    Args:
        requirements: as in pyproject.toml.
        pins: the versions that packages take which are not on the list, so that the answer stays the same.
    """
    here = versions()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
        (packages,) = (folder / "env").glob("lib/python*/site-packages")
        for package, version in here.items():
            info = packages / f"{package.replace('-', '_')}-{version}.dist-info"
            info.mkdir()
            needs = REQUIRES.get(package, [])
            lines = ["Metadata-Version: 2.4", f"Name: {package}", f"Version: {version}"]
            lines += [
                f"Provides-Extra: {extra}" for extra in re.findall(r"extra == '(\w+)'", " ".join(needs))
            ]
            lines += [f"Requires-Dist: {need}" for need in needs]
            (info / "METADATA").write_text("\n".join([*lines, ""]))
            (info / "INSTALLER").write_text("pip\n")
        chosen = [f"{package}=={version}\n" for package, version in pins.items() if package not in here]
        (folder / "pins.txt").write_text("".join(chosen))
        report = folder / "report.json"
        command = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            folder / "env/bin/python",
            "install",
            "--dry-run",
            "--quiet",
            "--report",
            report,
            "-c",
            folder / "pins.txt",
            *requirements,
        ]
        ran = subprocess.run(command, capture_output=True, text=True)
        assert ran.returncode == 0, f"pip found no answer: {ran.stderr[-2000:]}"
        installed = [one["metadata"] for one in json.loads(report.read_text())["install"]]
        return {canonicalize_name(one["name"]): Version(one["version"]) for one in installed}

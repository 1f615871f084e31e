"""The versions that Colab publishes, from the dated list in this folder."""

from __future__ import annotations

from commands import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

# Of the machines that the list describes.
ENVIRONMENT = {
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "sys_platform": "linux",
    "os_name": "posix",
    "python_version": "3.13",
    "python_full_version": "3.13.0",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "extra": "",
}


def versions() -> dict[str, Version]:
    """Package to version, of the newest list."""
    newest = sorted((ROOT / "tests").glob("colab-*.txt"))[-1]
    lines = [line.split("#")[0].strip() for line in newest.read_text().splitlines()]
    pairs = [line.split("==") for line in lines if "==" in line]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def replaced_by(requirements: list[Requirement]) -> list[str]:
    """Which of Colab's packages pip would replace to satisfy requirements, each as a sentence."""
    here = versions()
    found = []
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        wanted = requirement.marker is None or requirement.marker.evaluate(ENVIRONMENT)
        if wanted and name in here and not requirement.specifier.contains(here[name], prereleases=True):
            found.append(f"{requirement} replaces Colab's {name} {here[name]}")
    return found

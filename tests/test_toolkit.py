"""Which NVRTC and which headers are taken, of those that lie side by side, and what is said where
none fits.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers import toolkit

LAYOUTS = {
    "wheel 12": ("nvidia/cuda_nvrtc/lib", "nvidia/cuda_runtime/include"),
    "wheel 13": ("nvidia/cu13/lib", "nvidia/cu13/include"),
    "toolkit": ("lib64", "include"),
    "conda": ("lib", "targets/x86_64-linux/include"),
}


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    """No CUDA but the one that a test makes."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


def put(root: Path, layout: str, version: str, *, headers: bool = True) -> Path:
    """An NVRTC of a version, as its package lays it out; returns its root."""
    libraries, include = (root / folder for folder in LAYOUTS[layout])
    major, minor = version.split(".")
    libraries.mkdir(parents=True, exist_ok=True)
    for name in (
        f"libnvrtc.so.{major}",
        f"libnvrtc-builtins.so.{version}",
        f"libnvrtc-builtins.alt.so.{version}",
    ):
        (libraries / name).touch()
    if headers:
        include.mkdir(parents=True, exist_ok=True)
        (include / "cuda_fp16.h").touch()
        (include / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {major}0{minor}0\n")
    return root


@pytest.mark.parametrize(
    ("cuda", "taken"), [("12.8", (12, 8)), ("12.6", (12, 8)), ("13.0", (13, 5)), (None, (13, 5))]
)
def test_of_wheels_side_by_side_torch_decides(tmp_path, cuda, taken):
    """A CPU build takes the newest."""
    packages = tmp_path / "packages"
    put(packages, "wheel 12", "12.8")
    put(packages, "wheel 13", "13.5")
    found = toolkit.find_nvrtc(cuda)
    libraries, include = LAYOUTS[f"wheel {taken[0]}"]
    assert found.version == taken and found.problem == ""
    assert found.library == packages / libraries / f"libnvrtc.so.{taken[0]}"
    assert found.builtins.name == f"libnvrtc-builtins.so.{taken[0]}.{taken[1]}"
    assert found.include == packages / include


@pytest.mark.parametrize("layout", ["toolkit", "conda"])
def test_a_toolkit_of_torchs_very_version_comes_before_a_wheel_of_another(tmp_path, layout):
    put(tmp_path / "packages", "wheel 13", "13.5")
    home = put(tmp_path / "home", layout, "13.0")
    found = toolkit.find_nvrtc("13.0", home)
    assert found.version == (13, 0) and found.include == home / LAYOUTS[layout][1]
    assert toolkit.find_nvrtc("13.1", home).version == (13, 5)


def test_condas_own_folder_and_the_users_are_looked_into(tmp_path, monkeypatch):
    put(tmp_path / "prefix", "conda", "12.9")
    assert toolkit.find_nvrtc(None).version == (12, 9)
    mine = put(tmp_path / "mine", "toolkit", "13.1") / "lib64"
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{mine}")
    assert toolkit.find_nvrtc(None).library == mine / "libnvrtc.so.13"


def test_the_headers_are_never_of_another_major_version(tmp_path):
    packages = tmp_path / "packages"
    put(packages, "wheel 12", "12.8", headers=False)
    put(packages, "wheel 13", "13.5")
    found = toolkit.find_nvrtc("12.8")
    assert found.version == (12, 8) and found.include is None
    assert found.problem.startswith(
        "CUDA's headers (cuda_fp16.h and others) for NVRTC 12.8 are missing: pip install"
    )


def test_the_only_one_is_taken_and_the_misfit_has_the_line_that_fixes_it(tmp_path):
    put(tmp_path / "packages", "wheel 13", "13.5")
    found = toolkit.find_nvrtc("12.8")
    assert found.version == (13, 5)
    assert all(fact in found.problem for fact in ("CUDA 12.8", "NVRTC 13.5", "driver"))
    assert found.problem.endswith('pip install "cuda-toolkit[cudart,nvrtc]==12.8.*"')


def test_an_older_one_is_a_misfit_that_drivers_take(tmp_path):
    put(tmp_path / "packages", "wheel 12", "12.8")
    said = toolkit.find_nvrtc("13.0").problem
    assert all(fact in said for fact in ("CUDA 13.0", "NVRTC 12.8")) and "driver" not in said
    assert said.endswith('pip install "cuda-toolkit[cudart,nvrtc]==13.0.*"')


def test_one_that_cannot_compile_for_blackwell_is_named(tmp_path):
    put(tmp_path / "packages", "wheel 12", "12.6")
    problem = toolkit.find_nvrtc("12.6").problem
    assert "NVRTC 12.6" in problem and "sm_100" in problem


def test_half_an_installation_is_none(tmp_path):
    folder = tmp_path / "packages" / LAYOUTS["wheel 12"][0]
    put(tmp_path / "packages", "wheel 12", "12.8")
    (folder / "libnvrtc.so.12").unlink()
    assert toolkit.find_nvrtc("12.8") is None

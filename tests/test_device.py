"""The survey says what is here and what is missing."""

import json
import os
import subprocess
import sys

import pytest
import torch

from helpers import device


def test_survey_of_this_machine():
    survey = device.survey()
    here = {finding.name: finding.here for finding in survey.findings}
    assert here["torch"] == torch.__version__
    assert here["c++"] and here["ninja"]
    assert survey.ok
    assert repr(survey).count("\n") <= 2
    assert "<br>" in survey._repr_html_()


def test_doctor_has_the_commands_to_install_what_is_missing(monkeypatch):
    monkeypatch.setattr(device, "find_tool", lambda name: None)
    survey = device.survey()
    assert not survey.ok
    text = survey.doctor()
    assert "pip install ninja" in text and "apt-get install g++" in text and "nsight-compute" in text


def test_require():
    with pytest.raises(ValueError, match="require\\(\\) knows"):
        device.require("cuda")
    device.require("c++", "ninja")


def test_require_names_what_and_how(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    with pytest.raises(device.Missing, match=r"NVIDIA GPU.*Runtime"):
        device.require("gpu")


def test_cpu_only_torch_on_a_gpu_machine_is_named(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    (problem,) = device._problems("580.1", torch)
    assert "CPU-only build" in problem and "580.1" in problem


def test_driver_older_than_the_runtime_is_named(monkeypatch):
    def too_old():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 12000).\nmore")

    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", too_old)
    (problem,) = device._problems("470.1", torch)
    assert "older than torch's CUDA runtime 13.0" in problem


def test_no_permission_for_counters_is_named(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(device, "find_tool", device.Path)
    monkeypatch.setattr(device, "counters_allowed", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    (problem,) = device._problems("580.1", torch)
    assert "ERR_NVGPUCTRPERM" in problem and "NVreg_RestrictProfilingToAdminUsers=0" in problem


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build", "580.159.04"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19", "535.104.05"),
    ],
)
def test_driver_version_is_read(monkeypatch, text, version):
    monkeypatch.setattr(device.Path, "read_text", lambda self: text)
    assert device.driver_version() == version


def test_imports_are_light():
    heavy = "{'torch', 'triton', 'pandas', 'plotly', 'IPython'}"
    code = f"import sys, helpers, helpers.kernels, helpers.trace; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("before", "given", "interpreted"),
    [
        ("", {}, "1"),
        ("import triton", {}, None),
        ("", {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "0"}, "0"),
    ],
)
def test_a_prepared_notebook_has_tools_on_path_wide_tables_the_interpreter_and_fusion(
    tmp_path, before, given, interpreted
):
    """Without a GPU; not where Triton, or the learner, was there first."""
    ninja = tmp_path / "ninja"
    ninja.write_text("#!/bin/sh\necho 1.0\n")
    ninja.chmod(0o755)
    code = f"""{before}
import os, json
from unittest import mock
from helpers import device
found = {{"ninja": device.Path({str(ninja)!r})}}
with mock.patch.object(device, "find_tool", found.get), mock.patch.object(device, "has_gpu", lambda: False):
    shown = device.prepare()
    device.prepare()
import pandas as pd
frame = pd.DataFrame({{"a": ["x" * 150], "b": ["y" * 5]}})
print(json.dumps([os.environ["PATH"].split(os.pathsep).count({str(tmp_path)!r}), str(frame).count("x"),
                  os.environ.get("TRITON_INTERPRET"), os.environ["TRITON_DEFAULT_FP_FUSION"],
                  "Python" in repr(shown)]))
"""
    ours = ("TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION")
    environment = {k: v for k, v in os.environ.items() if k not in ours} | given
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert json.loads(ran.stdout) == [1, 150, interpreted, given.get(ours[1], "1"), True]


def test_without_a_gpu_the_profiler_does_not_warn_that_there_is_none():
    code = """
from unittest import mock
from helpers import device
with mock.patch.object(device, "has_gpu", lambda: False):
    device.prepare()
import torch
from torch.profiler import ProfilerActivity, profile
with mock.patch("torch.cuda.is_available", lambda: False):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        torch.ones(2).square()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "CUDA is not available" not in ran.stderr

"""Shared parts of all report pages: an HTML document that needs no network, and the machine and versions that
made it.
"""

from __future__ import annotations

import html
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from helpers.machine import DARK_FIGURE

PACKAGES = ("kernel-workbook", "torch", "triton", "plotly", "papermill", "nbclient", "ncu-report")
BLOCKS = Path(__file__).with_name("blocks.js")  # copy buttons and fading edges, of the book and of batches
DARK_FIGURES = f"@media (prefers-color-scheme: dark) {{ .js-plotly-plot {{ {DARK_FIGURE} }} }}"
_STYLE = """\
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --back: #fff;
  --tint: #f6f8fa; --link: #0b62b8; --good: #1a7f37; --bad: #b3261e; --wait: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d;
  --back: #0d1117; --tint: #151b23; --link: #58a6ff; --good: #3fb950; --bad: #ff7b72; --wait: #d29922; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 1100px;
  margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 36px 0 8px; }
a { color: var(--link); } p { margin: 4px 0; } .soft, small { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 15px; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 13px; }
th, td { padding: 8px 12px 8px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.ok, .kept { color: var(--good); } .failed { color: var(--bad); } .not-run, .waiting { color: var(--wait); }
.status { font-weight: 600; white-space: nowrap; }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: 6px; padding: 12px;
  overflow-x: auto; font-size: 13px; line-height: 1.45; }
code { font-size: 0.92em; }"""


def document(title: str, body: Iterable[str], more_style: str = "") -> str:
    """A complete page, which follows the reader's light or dark mode.

    Args:
        title: Any text.
        body: Lines of HTML.
        more_style: CSS that follows the common style.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{_STYLE}\n{DARK_FIGURES}{more_style}\n</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def escaped(value: object) -> str:
    """Escape any text for HTML, and replace the control characters that HTML doesn't allow."""
    return html.escape(re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "\N{REPLACEMENT CHARACTER}", str(value)))


def made_with() -> list[str]:
    """The machine and the versions as two lines of HTML."""
    named = " · ".join(f"{name} {number}" for name, number in versions().items())
    return [f'<p class="soft">{escaped(machine())}</p>', f'<p class="soft">{escaped(named)}</p>']


@cache
def machine() -> str:
    """This machine in one line: processor, cores, memory, system, GPU; never its name or address."""
    parts = [_processor(), f"{os.cpu_count()} cores"]
    if hasattr(os, "sysconf"):
        parts.append(f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB")
    parts += [f"{platform.system()} {platform.machine()}", f"Python {platform.python_version()}", _gpus()]
    return " · ".join(part for part in parts if part)


def _processor() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.processor()


def _gpus() -> str:
    # nvidia-smi instead of torch, because a report must not take the time that importing torch takes.
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return "no NVIDIA GPU"
    names = listed.split("\n")[:-1] or ["no NVIDIA GPU"]
    return ", ".join(f"{names.count(n)} × {n}" if names.count(n) > 1 else n for n in dict.fromkeys(names))


@cache
def versions() -> dict[str, str]:
    """The versions of the packages that measured figures depend on."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

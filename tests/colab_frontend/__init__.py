"""Notebooks in a stand-in for Colab: Google's widget manager in Chromium, and a kernel with Colab's versions.

Google's manager for custom widgets is built from its published sources, which are not in this repository.
The page around it (notebook.js), the frames with the outputs (output.js) and `google.colab` (kernel/) are
stand-ins, because Colab's own are not public.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import browser
import colab
import debian
from commands import ROOT

HERE = Path(__file__).parent
FRAMES = "https://output.colab.test/"
SOURCE = "colab-cdn-widget-manager-472880a.tar.gz"
NPM = (
    "@jupyter-widgets/base@5.0.0-alpha.3",
    "@jupyter-widgets/base-manager@1.0.0-alpha.2",
    "@jupyter-widgets/controls@4.0.0-alpha.3",
    "backbone@1.4.0",
    "esbuild@0.11.23",
    "typescript@4.3.5",
)
# What the kernel takes from Colab's list; the rest, torch and Triton above all, is this environment's.
TAKEN = ("ipywidgets", "anywidget", "plotly", "ipython", "ipykernel", "traitlets", "jupyter-client",
         "jupyter-core", "pyzmq", "tornado", "numpy", "pandas", "pytz", "tzdata", "nvidia-ml-py", "backcall",
         "pickleshare", "ipython-genutils", "decorator", "widgetsnbextension")  # fmt: skip
_CONTENT_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


def source() -> Path | None:
    """The archive with the manager's sources: COLAB_WIDGET_MANAGER, or shared/data next to the checkout."""
    named = os.environ.get("COLAB_WIDGET_MANAGER")
    path = Path(named) if named else ROOT.parent / "shared" / "data" / SOURCE
    return path if path.is_file() else None


def stack() -> Path:
    """The folder with the packages in `TAKEN`, which pip fills on the first call."""
    wanted = [f"{name}=={colab.versions()[name]}" for name in TAKEN]

    def install(folder: Path) -> None:
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, *wanted])

    return _cached("colab-stack", [sys.version, *wanted], install)


def manager(archive: Path) -> Path:
    """The folder with the built manager and anywidget's npm package, which npm fills on the first call."""
    packages = [*NPM, f"anywidget@{colab.versions()['anywidget']}"]

    def build(folder: Path) -> None:
        with tarfile.open(archive) as sources:
            sources.extractall(folder, filter="data")
        (inside,) = (path for path in folder.iterdir() if path.is_dir())
        for path in inside.iterdir():
            path.rename(folder / path.name)
        # The manager's own list names its test tools, too, whose installation takes minutes.
        (folder / "package.json").write_text('{"private": true}')
        npm = debian.program("npm", "npm", needed_by="The tests of widgets in Colab")
        _run([npm, "install", "--silent", "--no-audit", "--no-fund", *packages], folder)
        _run(["node", "build.js"], folder)

    return _cached("colab-manager", [archive.name, *packages], build)


def _run(command: list[Any], folder: Path | None = None) -> None:
    result = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(map(str, command[:4]))} failed: {result.stderr[-1000:]}"


def _cached(name: str, wanted: list[str], make: Callable[[Path], None]) -> Path:
    """A folder in the user's cache that `make` filled for exactly these wishes."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernel-workbook-tests"
    folder = cache / f"{name}-{hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:12]}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as unfinished:
            make(Path(unfinished))
            with contextlib.suppress(OSError):  # another process was faster
                Path(unfinished).rename(folder)
            Path(unfinished).mkdir(exist_ok=True)
    return folder


@dataclass(frozen=True)
class Cell:
    """A cell that ran.

    Attributes:
        outputs: Its outputs, as in a notebook's file.
        frame: Playwright's frame with them.
    """

    outputs: list[dict]
    frame: Any

    @property
    def text(self) -> str:
        """What it printed, and what it raised."""
        said = (o.get("text") or f"{o['ename']}: {o['evalue']}" for o in self.outputs
                if o["output_type"] in ("stream", "error"))  # fmt: skip
        return "".join(said)

    def bundle(self) -> tuple[dict, dict]:
        """The data and the metadata of the first output that shows a widget."""
        shown = (o for o in self.outputs if "application/vnd.jupyter.widget-view+json" in o.get("data", {}))
        output = next(shown)
        return output["data"], output["metadata"]


@dataclass
class Notebook:
    """An open notebook whose cells run in one kernel.

    Attributes:
        folder: What the kernel writes is below it.
        page: The page, with the errors that it and its frames reported.
        refused: Addresses that it asked for and that Colab would have asked the network for.
    """

    folder: Path
    page: browser.Page
    refused: list[str] = field(default_factory=list)

    def run(self, code: str, *, widgets: bool = True) -> Cell:
        """Run a cell, which must not raise; without `widgets`, show what a viewer without them shows."""
        ran = self.page.page.evaluate("([code, widgets]) => colab.run(code, widgets)", [code, widgets])
        cell = Cell(ran["outputs"], self.page.page.frame(name=ran["name"]))
        cell.frame.frame_element().scroll_into_view_if_needed()  # Chromium draws no frames out of sight
        assert not any(output["output_type"] == "error" for output in cell.outputs), cell.text
        return cell

    def start(self) -> None:
        """Start the kernel, or start it again, as after `Runtime > Restart session`."""
        self.page.page.evaluate("() => colab.start()")
        self.run("import google.colab.output")

    def replace_runtime(self) -> None:
        """Start over with an empty disk, as after `Runtime > Disconnect and delete runtime`."""
        shutil.rmtree(self.folder / "progress", ignore_errors=True)
        self.start()


@contextlib.contextmanager
def notebook(folder: Path, archive: Path) -> Iterator[Notebook]:
    """A notebook with a running kernel; `folder` is the server's."""
    from playwright.sync_api import sync_playwright

    built = manager(archive)
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (stack(), HERE / "kernel", ROOT))),
        "CUDA_VISIBLE_DEVICES": "",
        "WORKBOOK_CACHE": str(folder / "cache"),
        "WORKBOOK_PROGRESS": str(folder / "progress"),
    }
    kernel = folder / ".data" / "kernels" / "colab"
    kernel.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Colab", "language": "python", "env": environment}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    # A profile that lets frames of other sites use localStorage, which private windows always deny.
    preferences = folder / "profile" / "Default" / "Preferences"
    preferences.parent.mkdir(parents=True)
    allowed = {"cookie_controls_mode": 0, "block_third_party_cookies": False}
    preferences.write_text(json.dumps({"profile": allowed}))
    with browser.jupyterlab(folder) as address, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder / "profile",
            executable_path=browser.chromium(),
            args=list(browser.ARGUMENTS),
            viewport={"width": 1000, "height": 900},
        )
        # Chromium doesn't know that the page, which `_serve` brings from disk, is as local as the server.
        context.grant_permissions(["local-network-access"], origin=address)
        page = context.new_page()
        opened = Notebook(folder, browser.Page(page))
        page.set_default_timeout(20_000)
        page.route("**/*", lambda route: _serve(route, address, built, opened.refused))
        page.goto(f"{address}/colab/notebook.html")
        page.wait_for_function("() => window.colab")
        opened.start()
        try:
            yield opened
        finally:
            context.close()


def _serve(route: Any, address: str, built: Path, refused: list[str]) -> None:
    """Answer a request from disk; only the server's own interface is asked in earnest."""
    url = route.request.url
    module = re.fullmatch(r"https://cdn\.jsdelivr\.net/npm/anywidget@[^/]+/(dist/\w+\.js)", url)
    if url.startswith((f"{address}/colab/", FRAMES)):
        path = HERE / url.rsplit("/", 1)[1]
    elif url.startswith("https://ssl.gstatic.com/") and url.endswith("/manager.min.js"):
        path = built / "dist" / "manager.min.js"
    elif module:
        path = built / "node_modules" / "anywidget" / module[1]
    elif "font-awesome" in url:
        return route.fulfill(status=200, content_type="text/css", body="")
    elif url.startswith(address):
        return route.continue_()
    else:
        refused.append(url)
        return route.abort()
    headers = {"Access-Control-Allow-Origin": "*"}
    return route.fulfill(path=path, content_type=_CONTENT_TYPES[path.suffix], headers=headers)

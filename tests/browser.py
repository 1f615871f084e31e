"""JupyterLab and saved pages in a real Chromium, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import debian
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import expect

ROOT = Path(__file__).parent.parent
ARGUMENTS = (
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
)
# Upper limits for a busy machine; nothing waits longer than it has to.
STARTS_WITHIN_S = 240
SHOWS_WITHIN_MS = 120_000
expect.set_options(timeout=SHOWS_WITHIN_MS)
# Errors that JupyterLab itself reports, mostly without a network (the lessons' badge is a remote image), and
# when a kernel restarts before its debugger has answered.
_HARMLESS = re.compile(
    r"favicon|colab-badge|extension-?manager|pypi|lab/api/(news|update)|ResizeObserver loop|Canceled future",
    re.IGNORECASE,
)


def chromium() -> str:
    """The path of Chromium. If it is missing and this user is root, apt-get installs it.

    Raises:
        RuntimeError: Chromium is missing and could not be installed. The message has the command to run.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    return debian.program("chromium", *names, needed_by="The browser tests")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield running
        finally:
            running.close()


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=5).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def jupyterlab(folder: Path, program: str = "jupyterlab", **environment: str) -> Iterator[str]:
    """Serve `folder` with JupyterLab on a free port and yield its address.

    Open a notebook in a workspace of its own, `{address}/lab/workspaces/NAME/tree/NAME.ipynb`. Otherwise
    JupyterLab reopens the previous notebook as well. The program "notebook" is Notebook 7, which opens
    `{address}/notebooks/NAME.ipynb`.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = folder / ".settings"
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    path = settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(quiet))
    modules = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    private = {"JUPYTER_CONFIG_DIR": str(folder / ".config"), "JUPYTER_DATA_DIR": str(folder / ".data"),
               "JUPYTER_RUNTIME_DIR": str(folder / ".runtime"), "JUPYTER_PLATFORM_DIRS": "0"}  # fmt: skip
    command = [
        *(
            sys.executable,
            "-m",
            program,
            "--no-browser",
            "--ip=127.0.0.1",
            f"--port={port}",
            "--allow-root",
        ),
        *("--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.password="),
        *(
            "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
            f"--LabApp.user_settings_dir={settings}",
        ),
        *(f"--ServerApp.root_dir={folder}", "--LabApp.news_url=None", "--LabApp.extension_manager=readonly"),
    ]
    log = open(folder / "jupyterlab.log", "w")  # noqa: SIM115, it outlives this statement
    server = subprocess.Popen(
        command,
        env={**os.environ, **private, "PYTHONPATH": modules, "PATH": tools, **environment},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + STARTS_WITHIN_S
        while not _answers(f"{address}/api"):
            if server.poll() is not None or time.monotonic() > until:
                said = (folder / "jupyterlab.log").read_text()[-2000:]
                raise RuntimeError(f"JupyterLab did not start within {STARTS_WITHIN_S} s: {said}")
            time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
        log.close()


class Page:
    """A page and the errors that it reported."""

    def __init__(self, page: Any) -> None:
        self.page, self.errors = page, []
        page.set_default_timeout(SHOWS_WITHIN_MS)
        page.on("pageerror", lambda error: self._note(str(error)))
        page.on(
            "console",
            lambda said: (
                self._note(f"{said.text} ({said.location.get('url', '')})") if said.type == "error" else None
            ),
        )

    def _note(self, text: str) -> None:
        if not _HARMLESS.search(text):
            self.errors.append(text)

    def open_notebook(self, address: str) -> None:
        """Open a notebook in JupyterLab and wait for its kernel."""
        self.page.goto(address)
        self.page.wait_for_function(
            "() => window.jupyterapp?.shell?.currentWidget?.content?.widgets?.length > 1"
            " && jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'",
            timeout=1000 * STARTS_WITHIN_S,
        )

    def run_notebook(self, address: str, timeout_s: float = 900) -> None:
        """Open a notebook in JupyterLab and run all its cells; raises if a cell fails."""
        self.open_notebook(address)
        self.page.evaluate("() => { window.ran = null; jupyterapp.commands.execute('notebook:run-all-cells')"
                           ".then(r => window.ran = true, e => window.ran = String(e)) }")  # fmt: skip
        self.page.wait_for_function("() => window.ran !== null", timeout=1000 * timeout_s)
        failed = self.page.evaluate(
            """() => jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code')
            .flatMap(c => c.model.outputs.toJSON().filter(o => o.output_type === 'error')
            .map(o => c.model.id + ': ' + o.ename + ': ' + o.evalue))"""
        )
        if failed:
            raise AssertionError(f"cells failed: {failed}")

    def cell(self, name: str) -> Any:
        """The cell with this id, after scrolling to it."""
        index = self.page.evaluate(
            "name => jupyterapp.shell.currentWidget.content.widgets.findIndex(c => c.model.id === name)", name
        )
        if index < 0:
            raise AssertionError(f"there is no cell {name!r}")
        self.page.evaluate(
            """async ([i, name]) => {
              const notebook = jupyterapp.shell.currentWidget.content;
              notebook.activeCellIndex = i;
              await notebook.scrollToItem(i, 'start');
              notebook.widgets[i].node.setAttribute('data-cell', name);
            }""",
            [index, name],
        )
        return self.page.locator(f'[data-cell="{name}"]')


# Starts a clock at the next key or pointer press and stops it when the browser has painted what came of it.
_CLOCK = """(target) => {
  window.__paint = null;
  let t0 = null;
  const start = () => { if (t0 === null) t0 = performance.now(); };
  for (const name of ['keydown', 'pointerdown']) window.addEventListener(name, start, {capture: true,
      once: true});
  const stop = () => requestAnimationFrame(() => setTimeout(() => {
    if (t0 !== null && window.__paint === null) window.__paint = performance.now() - t0;
  }, 0));
  if (target.on) target.once('plotly_afterplot', stop);
  else { const seen = new MutationObserver(() => { seen.disconnect(); stop(); });
         seen.observe(target, {childList: true, subtree: true, characterData: true}); }
}"""


def timed_press(page: Any, handle: Any, key: str, target: Any) -> float:
    """Press a key on a slider's handle; milliseconds until `target` (a plot or any element) was
    painted anew.
    """
    handle.focus()
    target.evaluate(_CLOCK)
    page.keyboard.press(key)
    page.wait_for_function("() => window.__paint !== null", timeout=SHOWS_WITHIN_MS)
    return page.evaluate("() => window.__paint")


def timed_first_paint(page: Page, name: str) -> float:
    """Run a cell of the open notebook; milliseconds from the kernel's reply until its sliders are painted."""
    return page.cell(name).evaluate("""async (cell) => {
      const painted = new Promise((resolve) => {
        const look = () => requestAnimationFrame(() => {
          if (cell.querySelector('.kx-slider')) setTimeout(() => resolve(performance.now()));
          else look();
        });
        look();
      });
      await jupyterapp.commands.execute('notebook:run-cell');
      const replied = performance.now();
      return Math.max(0, await painted - replied);
    }""")


def accessibility_faults(page: Any, inside: str | None = None, outside: Sequence[str] = ()) -> list[str]:
    """What axe-core calls serious or critical on a page.

    Args:
        page: Playwright's page.
        inside: check only the elements that this selector finds.
        outside: selectors of what isn't checked.
    """
    page.evaluate(AXE_SCRIPT)
    found = page.evaluate(
        """([inside, outside]) => axe.run({include: [inside ?? 'html'], exclude: outside},
            {resultTypes: ['violations'], preload: false})""",
        [inside, list(outside)],
    )
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]

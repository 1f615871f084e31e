"""What batch, form and grade share: files written whole, interrupts, the report pages."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from workbook import interrupts, outputs, page
from workbook.usage import UsageError, first_line


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "report.json"
    outputs.replace(path, "old")
    with pytest.raises(UnicodeEncodeError):
        outputs.replace(path, "new \ud800")
    with pytest.raises(FileNotFoundError):
        outputs.copy(tmp_path / "missing", path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"] and path.read_text() == "old"


def test_an_output_folder_is_made_or_refused(tmp_path):
    outputs.require_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--out .*file .*File exists"):
        outputs.require_writable(tmp_path / "file")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_raised_once_and_the_handlers_are_restored(number):
    before = signal.getsignal(number)
    with interrupts.interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        interrupts.ignore()
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_thread_leaves_the_handlers_alone():
    seen = []

    def work() -> None:
        with interrupts.interruptible():
            interrupts.ignore()
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_a_page_is_complete_and_escapes_text():
    made = page.document("<b> & \x00", [f"<p>{page.escaped('</p>')}</p>", *page.made_with()], "\n.more {}")
    assert made.startswith("<!DOCTYPE html>") and made.endswith("</body>\n</html>\n")
    assert "<title>&lt;b&gt; &amp; \N{REPLACEMENT CHARACTER}</title>" in made
    assert "<p>&lt;/p&gt;</p>" in made and ".more {}" in made and "papermill " in made


def test_the_first_line_of_an_error():
    assert first_line(ValueError("one\ntwo")) == "one" and first_line(ValueError()) == "ValueError"

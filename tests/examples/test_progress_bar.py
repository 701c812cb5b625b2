from __future__ import annotations

import io

from django.core.management.base import OutputWrapper

from project.invoices.progress_bar import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def draw(stream: io.StringIO, total: int = 100) -> str:
    bar = ProgressBar("ended", total, OutputWrapper(stream))
    for _ in range(total):
        bar.advance()
    return stream.getvalue()


def test_on_a_terminal_one_line_is_redrawn(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    text = draw(Terminal())
    assert text.count("\r") == 100
    assert text.endswith("] 100/100\n")
    assert text.count("\n") == 1


def test_a_log_gets_a_line_per_quarter(monkeypatch):
    assert [line.split()[-1] for line in draw(io.StringIO()).splitlines()] == [
        "25/100", "50/100", "75/100", "100/100",
    ]  # fmt: skip
    monkeypatch.setenv("TERM", "dumb")
    assert "\r" not in draw(Terminal())


def test_without_a_stream_nothing_is_shown():
    ProgressBar("ended", 0, None).advance()

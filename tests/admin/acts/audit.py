"""What a browser would make of a page: text that became markup, and what a strict Content-Security-Policy forbids."""

from __future__ import annotations

from html.parser import HTMLParser

#: Breaks out of text, of attributes in either quotes, of <pre>, <textarea>, <title>, <svg> and <script>.
HOSTILE = "</pre></textarea></title></svg></script><hostile onclick='x'>\"'&{{ 7|add:7 }}"
_LINKS = ("href", "src", "action", "formaction", "xlink:href", "data", "poster")
_STRANGE = ("javascript:", "data:", "http:", "https:", "//")
_INERT = ("application/json", "application/ld+json")


class _Auditor(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "hostile":
            self.problems.append(f"markup got in: {self.get_starttag_text()}")
        if tag == "script" and "src" not in given and given.get("type") not in _INERT:
            self.problems.append("an inline script")
        if tag == "style" or "style" in given:
            self.problems.append(f"an inline style: {self.get_starttag_text()}")
        for name, value in attrs:
            if name.startswith("on"):
                self.problems.append(f"an inline handler: {self.get_starttag_text()}")
            if name in _LINKS and (value or "").strip().lower().startswith(_STRANGE):
                self.problems.append(f"a link elsewhere: {self.get_starttag_text()}")


def problems(page: str) -> list[str]:
    """All that is wrong with a page. An empty list: it holds under ``default-src 'self'`` alone."""
    auditor = _Auditor()
    auditor.feed(page)
    auditor.close()
    return auditor.problems

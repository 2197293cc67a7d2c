"""A page taken apart: its tags, its text, its ids, and whatever it would fetch."""

from __future__ import annotations

import re
from html.parser import HTMLParser

FETCHING_TAGS = {
    "script",
    "link",
    "iframe",
    "img",
    "image",
    "object",
    "embed",
    "audio",
    "video",
    "source",
    "base",
    "use",
}
FETCHING_ATTRIBUTES = {
    "src",
    "href",
    "srcset",
    "xlink:href",
    "action",
    "data",
    "poster",
    "background",
    "ping",
    "formaction",
}
VOID = {"meta", "br", "hr", "img", "link", "input", "base", "embed", "source", "line", "rect", "circle"}


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.ids: list[str] = []
        self.referred: list[str] = []
        self.fetches: list[str] = []
        self.attributes: list[str] = []
        self.pieces: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        inside_code = "code" in self.open
        if not inside_code:
            self.tags.append((tag, tuple(name for name, _ in attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in FETCHING_TAGS:
            self.fetches.append(f"<{tag}>")
        for name, value in attrs:
            self.attributes.append(value or "")
            if name in FETCHING_ATTRIBUTES or name.startswith("on"):
                self.fetches.append(f"{name}={value}")
            if name == "style":
                self._style(value or "")
            if name == "id":
                self.ids.append(value or "")
            if name in ("aria-labelledby", "aria-describedby"):
                self.referred += (value or "").split()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self._style(data)
        else:
            self.pieces.append(data)

    def _style(self, text: str) -> None:
        self.fetches += re.findall(r"@import[^;]*|url\s*\([^)]*\)|image-set\s*\([^)]*\)|src\s*:", text, re.IGNORECASE)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

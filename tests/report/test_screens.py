"""The report as people see it: in Chromium, on a desktop and on a phone, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from honestdp.report.html import ScoreView, render
from tests.report.browser import CHROMIUM, DRIVER, Browser
from tests.report.example_views import FAR_APART, NOT_PRIVATE, SEARCH
from tests.report.test_html import hostile

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="THE REPORT WAS NOT LOOKED AT: chromium or chromedriver is missing (Debian: chromium, chromium-driver)",
)
SIZES = pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])

BOXES = """
const boxes = [];
for (const [name, where] of [["spent", "#spent .bars"], ["needed", "#needed .bars"], ["score", "svg.interval"],
                             ["balance", "svg.balance"]])
  for (const found of document.querySelectorAll(where)) {
    const box = found.getBoundingClientRect();
    boxes.push([name, box.left + scrollX, box.top + scrollY, box.right + scrollX, box.bottom + scrollY]);
  }
return boxes;
"""
COLOURS = """
const style = getComputedStyle(document.documentElement), found = {};
for (const name of ["sheet", "accent", "other", "budget", "left"]) found[name] = style.getPropertyValue("--" + name).trim();
return found;
"""
# Every text with its colour and the colour of what lies behind it.
TEXTS = """
const texts = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, parent = node.parentElement;
  if (!node.data.trim() || !parent.checkVisibility() || parent.closest("title, desc, .hidden")) continue;
  const style = getComputedStyle(parent), drawn = parent instanceof SVGElement;
  let behind = parent;
  while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  texts.push([node.data.trim().slice(0, 40), drawn ? style.fill : style.color, getComputedStyle(behind).backgroundColor]);
}
return texts;
"""
# Whatever reaches beyond the page's right or left edge, but for what can be scrolled on its own.
BEYOND = """
const wide = document.documentElement.clientWidth, found = [];
for (const element of document.querySelectorAll("body *")) {
  const box = element.getBoundingClientRect();
  if (element.closest(".scroll table, .hidden, title, desc")) continue;
  if (box.width && (box.right > wide + 0.5 || box.left < -0.5)) found.push(element.outerHTML.slice(0, 120));
}
return [document.documentElement.scrollWidth - wide, found];
"""


@dataclass(frozen=True)
class Seen:
    """One page as it was shown: pixels [height, width, 3], chart boxes, the palette."""

    pixels: np.ndarray
    boxes: dict[str, tuple[int, int, int, int]]
    colours: dict[str, np.ndarray]

    def count(self, chart: str, colour: str) -> int:
        """How many pixels of a chart's box have this colour of the palette, to a shade."""
        left, top, right, bottom = self.boxes[chart]
        inside = self.pixels[top:bottom, left:right].astype(int)
        return int((np.abs(inside - self.colours[colour]).max(axis=-1) <= 2).sum())


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


def show(browser: Browser, folder: Path, page: str, *, width: int, scheme: str) -> None:
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    browser.open(file, width=width, scheme=scheme)


def see(browser: Browser) -> Seen:
    boxes = {name: tuple(round(x) for x in box) for name, *box in browser.ask(BOXES)}
    hexes = browser.ask(COLOURS)
    colours = {name: np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)]) for name, text in hexes.items()}
    return Seen(browser.shot(), boxes, colours)  # type: ignore[arg-type]


def empty_charts(seen: Seen) -> list[str]:
    """The charts, of the four, in which something that belongs there was not drawn."""
    wanted = {
        "spent": {"accent": 600, "other": 3000, "budget": 250},
        "needed": {"accent": 600, "other": 3000},
        "score": {"accent": 80},
        "balance": {"accent": 1500, "other": 1000, "left": 2000},
    }
    return [
        name
        for name, colours in wanted.items()
        if name not in seen.boxes or any(seen.count(name, colour) < least for colour, least in colours.items())
    ]


@SIZES
@SCHEMES
def test_no_chart_is_empty(browser: Browser, folder: Path, width: int, scheme: str) -> None:
    show(browser, folder, render(SEARCH), width=width, scheme=scheme)
    seen = see(browser)
    assert seen.pixels.shape[1] == width
    assert empty_charts(seen) == []
    sheet = seen.pixels[20:40, width // 2].mean()
    assert sheet > 200 if scheme == "light" else sheet < 60


@pytest.mark.parametrize(
    ("fault", "chart"),
    [
        (".bar { display: none }", "spent"),
        (".bars { height: 0; overflow: hidden }", "needed"),
        (".used .bar { fill: var(--other) }", "spent"),
        (".budget { stroke: none }", "spent"),
        (".interval { visibility: hidden }", "score"),
        (".balance .search { fill: var(--left) }", "balance"),
    ],
)
def test_a_chart_that_is_not_drawn_is_noticed(browser: Browser, folder: Path, fault: str, chart: str) -> None:
    show(browser, folder, render(SEARCH).replace("</style>", fault + "</style>"), width=1280, scheme="light")
    assert chart in empty_charts(see(browser))


def test_bars_are_as_long_as_their_values_say(browser: Browser, folder: Path) -> None:
    show(browser, folder, render(SEARCH), width=1280, scheme="light")
    script = "return [...document.querySelectorAll('#spent .bar')].map(bar => bar.getBoundingClientRect().width)"
    lengths = np.array(browser.ask(script))
    epsilons = np.array([cost.epsilon for cost in SEARCH.costs])
    np.testing.assert_allclose(lengths / lengths.max(), epsilons / epsilons.max(), atol=2e-3)


LONG = "a-very-long-name-without-any-blank_" * 6
SHARP = ScoreView(name="loss", value=12.345675, low=12.34566, high=12.34569, noise=1e-5, fraction=0.2, records=10**9)
VIEWS = {
    "long numbers": replace(SEARCH, score=SHARP),
    "search": SEARCH,
    "not private": NOT_PRIVATE,
    "far apart": FAR_APART,
    "long names": hostile(SEARCH, LONG),
    "long words": replace(SEARCH, title="W" * 300, reproduce="python -c " + "x" * 500),
}


@SIZES
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_nothing_reaches_beyond_the_page(browser: Browser, folder: Path, view: object, width: int) -> None:
    page = render(view).replace("<details>", "<details open>")  # type: ignore[arg-type]
    show(browser, folder, page, width=width, scheme="light")
    overflow, elements = browser.ask(BEYOND)
    assert elements == []
    assert overflow <= 0


def test_what_reaches_beyond_the_page_is_noticed(browser: Browser, folder: Path) -> None:
    page = render(SEARCH).replace("</style>", ".pairs { width: 30rem }</style>")
    show(browser, folder, page, width=390, scheme="light")
    overflow, elements = browser.ask(BEYOND)
    assert overflow > 0
    assert elements


def luminance(colour: str) -> float:
    channels = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """The ratio of the Web Content Accessibility Guidelines, from 1 to 21."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@SCHEMES
def test_every_text_can_be_read_and_every_bar_seen(browser: Browser, folder: Path, scheme: str) -> None:
    page = render(NOT_PRIVATE).replace("<details>", "<details open>")
    show(browser, folder, page, width=1280, scheme=scheme)
    texts = browser.ask(TEXTS)
    assert len(texts) > 150
    assert [text for text in texts if contrast(text[1], text[2]) < 4.5] == []
    colours = see(browser).colours
    as_rgb = {name: f"rgb({', '.join(map(str, value))})" for name, value in colours.items()}
    for name in ("accent", "other", "budget"):
        assert contrast(as_rgb[name], as_rgb["sheet"]) >= 3

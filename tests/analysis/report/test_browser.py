"""The page in a real browser: opens from a file, sorts, plays, fits a phone, is accessible."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.report import ReportSettings, render
from harness.records import RunKind
from tests.builders.reports import STREAM, report_run

pytestmark = pytest.mark.browser

AXE = Path(__file__).parent / "axe" / "axe.min.js"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESKTOP = {"width": 1200, "height": 900}
PHONE = {"width": 400, "height": 800}


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """The system's Chromium, driven by Playwright; skipped by name where either is absent."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    binary = next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
    if binary is None:
        pytest.skip("no system Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        # Sandboxing needs user namespaces, which containers often lack; the page is our own file.
        chromium = driver.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def page_file(run_dir: Path) -> Path:
    """The page of the common run, with a few clips."""
    [path] = render(run_dir, ["html"], settings=ReportSettings(audio_budget_bytes=300_000))
    return path


class Watched:
    """A tab and whatever went wrong or out of it."""

    def __init__(self, browser, path: Path, **options) -> None:
        self.tab = browser.new_page(**{"viewport": DESKTOP, **options})
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.messages.append(message.text))
        self.tab.on("pageerror", lambda error: self.messages.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(path.as_uri())
        self.tab.click("#requests-list > summary")
        self.tab.wait_for_selector("#requests-app tbody tr")

    def first_cells(self, column: int) -> list[str]:
        """The texts of one column of the explorer."""
        cells = self.tab.locator(f"#requests-app tbody tr td:nth-child({column})")
        return cells.all_inner_texts()


@pytest.fixture
def opened(browser, page_file: Path) -> Iterator[Watched]:
    """The page on a desktop."""
    watched = Watched(browser, page_file)
    yield watched
    watched.tab.close()


def violations(tab) -> list[str]:
    """What axe-core calls serious or critical, as `rule: where`."""
    # Evaluated, not added as a script element: the page's content policy refuses those.
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    found = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['nodes'][0]['target']} {each['nodes'][0]['failureSummary']}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def test_page_opens_from_a_file_without_an_error_or_a_request(opened):
    """No console message, no address but its own."""
    assert [] == opened.messages
    assert [url for url in opened.requests if url.startswith("file:")] == opened.requests
    assert 1 == len(opened.requests)


def test_worst_request_leads_the_explorer(opened):
    """Failures first: they were never heard."""
    assert "–" == opened.first_cells(5)[0]


def test_explorer_sorts_by_a_click_and_back(opened):
    """Descending first for numbers, then ascending; the header says which."""
    header = opened.tab.locator("th[data-key=end]")
    header.locator("button").click()
    down = [float(text) for text in opened.first_cells(8)]
    assert (sorted(down, reverse=True), "descending") == (down, header.get_attribute("aria-sort"))
    header.locator("button").click()
    up = [float(text) for text in opened.first_cells(8)]
    assert (sorted(up), "ascending") == (up, header.get_attribute("aria-sort"))


def test_explorer_filters_by_outcome_and_text(opened):
    """Both together; no match is said."""
    opened.tab.select_option("#filter-outcome", label="http error")
    assert {"http error"} == set(opened.first_cells(3))
    opened.tab.fill("#filter-text", "no such words")
    assert "No request matches." == opened.tab.inner_text("#requests-status")


def test_explorer_pages_through_all_requests(opened):
    """144 requests, 50 at a time."""
    opened.tab.click("#page-after")
    opened.tab.click("#page-after")

    assert "Requests 101 to 144 of 144" == opened.tab.inner_text("#requests-status")
    assert opened.tab.is_disabled("#page-after")


def test_row_opens_with_its_waterfall_by_keyboard(opened):
    """Enter on the focused button; the state is announced."""
    button = opened.tab.locator("button.open").first
    button.focus()
    opened.tab.keyboard.press("Enter")

    assert "true" == opened.tab.locator("button.open").first.get_attribute("aria-expanded")
    assert opened.tab.locator("tr.detail svg").is_visible()
    assert "From dispatch:" in opened.tab.inner_text("tr.detail")


def test_hostile_prompt_is_shown_and_not_run(opened):
    """The text of a prompt stays text in the opened row."""
    opened.tab.fill("#filter-text", "alert(")
    opened.tab.locator("button.open").first.click()

    assert "</script><script>alert('x')</script>" in opened.tab.inner_text("tr.detail")
    assert [] == opened.messages


def test_both_clips_play(opened):
    """currentTime advances: the clip, and the clip as heard, which is longer by the wait."""
    opened.tab.check("#filter-audio")
    opened.tab.locator("button.open").first.click()
    opened.tab.wait_for_function("document.querySelectorAll('tr.detail audio[src]').length === 2")
    lengths = opened.tab.evaluate(
        """Promise.all([...document.querySelectorAll('tr.detail audio')].map(async (clip) => {
             clip.muted = true;
             await clip.play();
             await new Promise((done) => clip.addEventListener('timeupdate', () => {
               if (clip.currentTime > 0) done();
             }));
             return clip.duration;
           }))"""
    )

    assert lengths[1] > lengths[0] > 0.9
    assert [] == opened.messages


def test_waveform_is_drawn_where_the_clip_plays(opened):
    """Decoded in the page and laid over the played spans."""
    opened.tab.check("#filter-audio")
    opened.tab.locator("button.open").first.click()
    opened.tab.wait_for_selector("tr.detail .wave-layer path", state="attached")

    assert len(opened.tab.get_attribute("tr.detail .wave-layer path", "d")) > 1_000


def test_logarithmic_switch_swaps_the_pictures(opened):
    """One set of curves at a time."""
    assert (True, False) == tuple(
        opened.tab.locator(f".{name}").is_visible() for name in ("linear", "logarithmic")
    )
    opened.tab.check("#log-axis")
    assert (False, True) == tuple(
        opened.tab.locator(f".{name}").is_visible() for name in ("linear", "logarithmic")
    )


def test_nothing_overflows_on_a_phone(browser, page_file):
    """400 px wide, with a row open."""
    watched = Watched(browser, page_file, viewport=PHONE)
    watched.tab.locator("button.open").first.click()
    width = watched.tab.evaluate("document.documentElement.scrollWidth")
    watched.tab.close()

    assert 400 >= width


def test_nothing_is_open_that_few_readers_need(browser, page_file):
    """Requests, words and environment are closed; a link to a word opens them."""
    tab = browser.new_page(viewport=DESKTOP)
    tab.goto(page_file.as_uri())
    closed = tab.locator("#requests-list").get_attribute("open")
    tab.click("a[href='#def-audible_ttfa'] >> nth=0")
    is_seen = tab.locator("#def-audible_ttfa").is_visible()
    tab.close()

    assert (None, True) == (closed, is_seen)


def test_table_of_points_fits_a_desktop(opened):
    """Failures, load and verdict are seen without scrolling sideways."""
    widths = opened.tab.evaluate(
        """[...document.querySelectorAll('section .scroll')]
           .filter((each) => each.clientWidth && each.textContent.includes('verdict'))
           .map((each) => each.scrollWidth - each.clientWidth)"""
    )

    assert {0} == set(widths)


def test_waterfall_on_a_phone_shows_the_stall(browser, page_file):
    """The frame scrolls by itself, and opens where the listener heard the gap."""
    watched = Watched(browser, page_file, viewport=PHONE)
    watched.tab.locator("th[data-key=stall_total] button").click()
    watched.tab.locator("button.open").first.click()
    frame, stall = (
        watched.tab.locator(f"tr.detail {each}").first.bounding_box()
        for each in (".pic", "rect.stall")
    )
    watched.tab.close()

    assert frame["x"] <= stall["x"] <= frame["x"] + frame["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(browser, page_file, scheme):
    """On a light and on a dark page, with a row open."""
    watched = Watched(browser, page_file, color_scheme=scheme, bypass_csp=True)
    watched.tab.check("#filter-audio")
    watched.tab.locator("button.open").first.click()
    found = violations(watched.tab)
    watched.tab.close()

    assert [] == found


def test_paper_gets_the_figures_and_not_the_tools(browser, page_file):
    """Printing hides what only a screen can use."""
    watched = Watched(browser, page_file)
    watched.tab.emulate_media(media="print")
    is_shown = [
        watched.tab.locator(each).first.is_visible()
        for each in ("#decisions", "svg.chart", "nav.toc", "#requests-app")
    ]
    watched.tab.close()

    assert [True, True, False, False] == is_shown


def test_simulated_page_says_so_before_any_figure(browser, tmp_path):
    """The banner is on the first screen."""
    folder = report_run(
        tmp_path, engines={"one": STREAM}, rates=(1.0,), num_requests=6, kind=RunKind.SIMULATED
    )
    [path] = render(folder, ["html"], settings=ReportSettings(has_audio=False))
    watched = Watched(browser, path)
    box = watched.tab.locator(".banner").first.bounding_box()
    watched.tab.close()

    assert box["y"] < 400

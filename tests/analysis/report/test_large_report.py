"""A long run: its page is made in half a minute, stays small and opens quickly."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from analysis.report import render
from tests.builders.reports import Shape, report_run

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

NUM_REQUESTS = 2_500  # at each of 4 points
# 30 chunks of 50 ms.
LONG = Shape(chunk_ms=50.0, stall_share=0.05, fail_share=0.01, min_seconds=1.46, max_seconds=1.46)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    """10,000 requests of 30 chunks."""
    return report_run(
        tmp_path_factory.mktemp("long"),
        engines={"one": LONG, "two": LONG},
        rates=(10.0, 40.0),
        num_requests=NUM_REQUESTS,
    )


def test_report_of_ten_thousand_requests(long_run):
    """At most 30 s from a run folder to page, Markdown and pictures, by the command; the page at
    most 15 MB.

    In none of its clips is a voice, so that each is searched to its end.
    """
    command = [Path(sys.executable).with_name("earwitness"), "report", long_run]
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    seconds = time.perf_counter() - begin
    megabytes = (long_run / "report.html").stat().st_size / 1e6
    print(f"\n10,000 requests of 30 chunks: {seconds:.1f} s, {megabytes:.1f} MB")

    assert 30 >= seconds
    assert 15 >= megabytes


@pytest.mark.browser
def test_page_of_ten_thousand_requests_is_soon_interactive(long_run):
    """Opened, sorted and drawn within 3 s."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    binary = shutil.which("chromium")
    if binary is None:
        pytest.skip("no system Chromium: apt-get install chromium")
    path = long_run / "report.html"
    if not path.exists():
        render(long_run, ["html"])
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        tab = chromium.new_page()
        begin = time.perf_counter()
        tab.goto(path.as_uri())
        tab.click("#requests-list > summary")
        tab.wait_for_selector("#requests-app tbody tr")
        opened_s = time.perf_counter() - begin
        begin = time.perf_counter()
        tab.locator("th[data-key=end] button").click()
        tab.wait_for_selector("th[data-key=end][aria-sort=descending]")
        sorted_s = time.perf_counter() - begin
        chromium.close()
    print(f"\ninteractive after {opened_s:.1f} s, sorted after {sorted_s:.2f} s")

    assert 3 >= opened_s

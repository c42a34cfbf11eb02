"""Files that a report consists of."""

from __future__ import annotations

import csv
import json
import re

import pytest

from analysis.errors import AnalysisError, RunDataError
from analysis.report import FORMATS, ReportSettings, load_report, render
from analysis.report.clips import ClipSet
from analysis.report.explorer import explorer_data
from analysis.report.html import PageData, render_html
from harness.errors import RunFolderError
from harness.records import RunKind, RunStatus
from tests.builders.reports import SENTENCE, STREAM, report_run
from tests.builders.runs import run_folder


def page_of(report) -> str:
    """The page of a loaded report, without audio."""
    data = PageData(report.tables, explorer_data(report.tables, None), ClipSet({}, 0, 0), 1.0)
    return render_html(report.model, data)


def small_run(tmp_path, **fields):
    """One engine, one rate, few requests."""
    return report_run(tmp_path, engines={"one": STREAM}, rates=(1.0,), num_requests=6, **fields)


def test_every_format_writes_its_files(tmp_path):
    """All of them beside the run, each of them named."""
    folder = small_run(tmp_path)
    written = render(folder, list(FORMATS))

    assert {"report.html", "report.md", "report.csv", "latency.png", "latency.svg"} <= {
        path.name for path in written
    }
    assert all(path.stat().st_size for path in written)


def test_markdown_shows_the_figures_that_were_drawn(tmp_path):
    """Relative paths, so that the folder can be moved."""
    folder = small_run(tmp_path)
    render(folder, ["md", "png"])

    assert "(figures/latency.png)" in (folder / "report.md").read_text()


def test_unknown_format_is_named_before_any_work(tmp_path):
    """With the known ones."""
    with pytest.raises(AnalysisError, match=r"'pdf' is not one of .*html"):
        render(tmp_path, ["pdf"])


def test_folder_that_is_no_run_is_refused(tmp_path):
    """One line, exit code 6."""
    with pytest.raises(RunFolderError):
        render(tmp_path)


def test_run_without_points_has_nothing_to_report(tmp_path):
    """Said so, not an empty page."""
    folder = run_folder(tmp_path, [], points=[])
    head = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**head, "points": []}))

    with pytest.raises(RunDataError, match="no points"):
        load_report(folder)


def test_page_loads_nothing(tmp_path):
    """Every address in it is its own anchor or its own data."""
    [path] = render(small_run(tmp_path), ["html"])
    targets = re.findall(r'(?:src|href)="([^"]*)"', path.read_text())

    assert [] == [target for target in targets if not target.startswith("#")]


def test_every_link_has_its_definition(loaded):
    """No term leads nowhere."""
    page = page_of(loaded)
    targets = set(re.findall(r'href="#([^"]+)"', page))

    assert set() == {t for t in targets if f'id="{t}"' not in page}


def test_ids_are_unique(loaded):
    """Two pictures with one id would share a title."""
    ids = re.findall(r'\sid="([^"]+)"', page_of(loaded))

    assert len(ids) == len(set(ids))


def test_simulated_run_is_marked_in_every_format(tmp_path):
    """On the page, in every picture, in Markdown and in the terminal."""
    folder = small_run(tmp_path, kind=RunKind.SIMULATED)
    render(folder, ["html", "md"])
    page = (folder / "report.html").read_text()

    assert page.count('<svg class="chart"') - 1 == page.count(">SIMULATED</text>")
    assert "SIMULATED: these are a model" in page
    assert "**SIMULATED**" in (folder / "report.md").read_text()


def test_interrupted_run_says_that_requests_are_missing(tmp_path):
    """In every format, before any figure."""
    report = load_report(small_run(tmp_path, status=RunStatus.INTERRUPTED))

    assert any("interrupted" in note for note in report.model.notes)


def test_csv_has_a_row_for_every_percentile_of_every_metric(tmp_path):
    """Numbers as numbers; what was not reached is empty."""
    folder = report_run(tmp_path, engines={"one": SENTENCE}, rates=(1.0,))
    render(folder, ["csv"])
    with (folder / "report.csv").open() as file:
        rows = list(csv.DictReader(file))
    headline = {r["statistic"]: r for r in rows if r["metric"] == "audible_ttfa"}

    assert {"p50", "p95", "p99"} == set(headline)
    assert float(headline["p50"]["value"]) > 0
    assert {row["value"] for row in rows if row["status"] == "not_reached"} == {""}


def test_page_without_audio_says_so(tmp_path):
    """And holds none."""
    [path] = render(small_run(tmp_path), ["html"], settings=ReportSettings(has_audio=False))

    assert "No audio is in this page." in path.read_text()


def test_report_can_be_written_again(tmp_path):
    """The same run and settings give the same page."""
    folder = small_run(tmp_path)
    first = render(folder, ["html"])[0].read_bytes()

    assert first == render(folder, ["html"])[0].read_bytes()


def test_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    """Path and reason, exit code 6."""
    folder = small_run(tmp_path)
    (folder / ".report.md.partial").mkdir()

    with pytest.raises(RunDataError, match=r"report.md: cannot be written") as caught:
        render(folder, ["md"])
    assert 6 == caught.value.exit_code

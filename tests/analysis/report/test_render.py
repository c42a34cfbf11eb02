"""Files that a report consists of."""

from __future__ import annotations

import csv
import dataclasses
import json
import re

import pytest

from analysis.errors import AnalysisError, RunDataError
from analysis.report import FORMATS, ReportSettings, load_report, render
from analysis.report.build import build_model
from analysis.report.clips import ClipSet
from analysis.report.explorer import explorer_data
from analysis.report.html import PageData, render_html
from analysis.report.markdown import render_markdown
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


def test_pictures_of_an_earlier_rendering_do_not_stay(tmp_path):
    """Nothing fails any more, so nobody sees failures; what is not ours is left alone."""
    folder = small_run(tmp_path)
    pictures = folder / "figures"
    pictures.mkdir()
    for name in ("failures.png", "latency.svg", "wer.svg", "mine.png"):
        (pictures / name).write_bytes(b"of an earlier time")
    render(folder, ["md", "png"])

    assert {"latency.png", "underruns.png", "mine.png"} == {p.name for p in pictures.iterdir()}
    assert ["latency", "underruns"] == re.findall(
        r"\(figures/(\w+)\.png\)", (folder / "report.md").read_text()
    )


def test_markdown_without_pictures_shows_none_of_an_earlier_rendering(tmp_path):
    """Else new words would stand above old curves."""
    folder = small_run(tmp_path)
    render(folder, ["md", "png"])
    render(folder, ["md"])

    assert "![" not in (folder / "report.md").read_text()
    assert [] == list((folder / "figures").iterdir())


def test_markdown_shows_vectors_where_only_those_were_drawn(tmp_path):
    """A picture of either kind is better than none."""
    folder = small_run(tmp_path)
    render(folder, ["md", "svg"])

    assert "(figures/latency.svg)" in (folder / "report.md").read_text()


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


def test_failures_are_a_number_in_the_csv(tmp_path):
    """A spreadsheet adds them up."""
    folder = report_run(tmp_path, engines={"one": SENTENCE}, rates=(1.0,))
    render(folder, ["csv"])
    with (folder / "report.csv").open() as file:
        failed = {int(row["failed"]) for row in csv.DictReader(file)}
    [point] = load_report(folder).metrics["points"]

    assert {point["outcomes"]["http_error"]} == failed


def test_percentile_that_no_rate_reached_is_words_and_not_an_axis(tmp_path):
    """An axis from 0 to 1 would be invented."""
    lost = dataclasses.replace(SENTENCE, fail_share=1.0)
    page = page_of(load_report(report_run(tmp_path, engines={"one": lost}, rates=(1.0,))))

    assert "No value was reached at any rate." in page
    assert 'id="curve-audible-ttfa-p99-linear-title"' not in page


def test_seeds_and_a_point_that_was_cut_short_are_told_apart(tmp_path):
    """In the table of endings, too: two rows of one rate must not look alike."""
    folder = report_run(
        tmp_path, engines={"one": STREAM}, rates=(1.0,), num_requests=6, seeds=(1, 2)
    )
    head = json.loads((folder / "run.json").read_text())
    head["points"][1]["is_complete"] = False
    (folder / "run.json").write_text(json.dumps(head))
    rows = load_report(folder).model.outcomes_table.rows

    assert ["seed 1", "seed 2, interrupted"] == [row[1].note for row in rows]


def test_text_in_pieces_and_interruptions_have_a_part_of_their_own(tmp_path):
    """Wherever the scenario had any, on the page and in Markdown; else there is none."""
    plain = load_report(small_run(tmp_path))
    metrics = json.loads(json.dumps(plain.metrics))
    own = metrics["points"][0]["metrics"]
    own["final_text_to_audible"] |= {"n": 6, "p50": {**own["ttfp"]["p50"], "value": 123.4}}
    metrics["points"][0]["outcomes"]["cancelled"] = 3
    model = build_model(metrics, plain.run.record, plain.settings)
    page = page_of(dataclasses.replace(plain, model=model))
    markdown = render_markdown(model)

    for text in (page, markdown):
        assert "123.4 ms" in text
        assert "Interruptions: whether dropped work" in text
    assert 'id="behaviour"' not in page_of(plain)


def test_no_figure_is_in_powers_of_ten(tmp_path):
    """10,610 ms is 10610 ms."""
    slow = dataclasses.replace(STREAM, first_ms=12_345.0)
    page = page_of(load_report(report_run(tmp_path, engines={"one": slow}, rates=(1.0,))))
    body = page[: page.index('<script type="application/json"')]

    assert [] == re.findall(r"\d(?:\.\d+)?e[+-]\d+", body)


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

"""The local page over many runs: lists, filters, compares, serves reports, writes nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from analysis.aggregate import summarise_run
from analysis.errors import AnalysisError
from analysis.report import render
from analysis.report.view import build_app, find_runs, serve_view
from harness.records import RunKind
from tests.builders.reports import HOSTILE, SENTENCE, STREAM, report_run

ONE = {"rates": (1.0, 2.0), "num_requests": 6}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """Three runs: two analysed, one simulated and not."""
    root = tmp_path_factory.mktemp("results")
    first = report_run(root, name="first", engines={"stream": STREAM}, **ONE)
    render(first, ["html"])
    second = report_run(root, name="second", engines={"sentence": SENTENCE}, **ONE)
    summarise_run(second)
    report_run(root, name="model", engines={"one": STREAM}, kind=RunKind.SIMULATED, **ONE)
    (root / "broken").mkdir()
    (root / "broken" / "run.json").write_text("{")
    return root


def get(root: Path, *paths: str, **options):
    """(status, text) of one path; of several, a list."""

    async def ask():
        async with TestClient(TestServer(build_app(root), host="127.0.0.1")) as client:
            found = []
            for path in paths:
                response = await client.get(path, **options)
                found.append((response.status, await response.text(), response.headers))
            return found

    found = asyncio.run(ask())
    return found[0] if len(paths) == 1 else found


def test_every_run_folder_is_listed(results):
    """Broken ones with what is wrong."""
    status, text, _ = get(results, "/")

    assert 200 == status
    for name in ("first", "second", "model", "broken"):
        assert f">{name}</td>" in text
    assert "not analysed yet" in text


def test_list_is_filtered_by_engine_and_kind(results):
    """Text and kind together."""
    (_, by_engine, _), (_, by_kind, _), (_, neither, _) = get(
        results, "/?q=sentence", "/?kind=simulated", "/?q=stream&kind=simulated"
    )

    assert (">second</td>" in by_engine, ">first</td>" in by_engine) == (True, False)
    assert (">model</td>" in by_kind, ">first</td>" in by_kind) == (True, False)
    assert "No run matches." in neither


def test_report_of_a_run_is_served(results):
    """The page itself, as it lies in the folder."""
    _, text, _ = get(results, "/run/first/report.html")

    assert (results / "first" / "report.html").read_text() == text


def test_report_that_was_not_written_says_how(results):
    """The command, not an empty page."""
    status, text, _ = get(results, "/run/second/report.html")

    assert (404, True) == (status, "earwitness report" in text)


@pytest.mark.parametrize(
    "path",
    [
        "/run/first/run.json",
        "/run/first/../first/report.html/run.json",
        "/run/..%2Ffirst/report.html",
        "/run/%2Fetc/report.html",
        "/run/first/..%2Frun.json",
    ],
)
def test_nothing_but_listed_reports_can_be_read(results, path):
    """Names are looked up, never joined into a path."""
    assert 404 == get(results, path)[0]


def test_two_runs_share_their_pictures(results):
    """Engines of both by name, and a word on what this is not."""
    status, text, _ = get(results, "/compare?run=first&run=second")

    assert 200 == status
    assert "first: stream" in text
    assert "second: sentence" in text
    assert "no test" in text


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 400), ("?run=first", 400), ("?run=first&run=nope", 404), ("?run=first&run=model", 404)],
)
def test_wrong_choice_is_told(results, query, status):
    """One run, an unknown one, one that nobody analysed."""
    assert status == get(results, f"/compare{query}")[0]


def test_foreign_host_name_is_refused(results):
    """A page elsewhere must not read this one through a rebound name."""
    assert 403 == get(results, "/", headers={"Host": "evil.example:80"})[0]


def test_pages_forbid_scripts(results):
    """The list needs none, so none may run."""
    policy = get(results, "/")[2]["Content-Security-Policy"]

    assert "default-src 'none'" in policy
    assert "script-src" not in policy


def test_hostile_query_is_escaped(results):
    """What was typed comes back as text."""
    import urllib.parse

    _, text, _ = get(results, f"/?q={urllib.parse.quote(HOSTILE)}")

    assert "<script>" not in text


def test_viewing_writes_nothing(results):
    """The folder is the same after every page."""

    def state():
        return {(p, p.stat().st_mtime_ns) for p in results.rglob("*")}

    before = state()
    get(results, "/", "/compare?run=first&run=second", "/run/first/report.html")

    assert before == state()


def test_folder_that_is_not_there_is_an_error_before_serving(tmp_path):
    """Not a page that says so."""
    with pytest.raises(AnalysisError, match="no such folder"):
        serve_view(tmp_path / "none", port=0, on_ready=lambda url: None)


def test_empty_folder_is_an_empty_list(tmp_path):
    """And says so."""
    assert [] == find_runs(tmp_path)
    assert "No run folder is here." in get(tmp_path, "/")[1]


def test_caveats_name_what_differs(results):
    """Another start rule is no longer the same question."""
    import json

    path = results / "second" / "derived" / "metrics.json"
    stored = path.read_text()
    path.write_text(json.dumps(json.loads(stored) | {"start_rule": "buffer_ms 200"}))
    try:
        _, text, _ = get(results, "/compare?run=first&run=second")
    finally:
        path.write_text(stored)

    assert "Start rule differs (buffer_ms 200 / immediate)" in text


def test_run_that_an_older_version_analysed_is_not_shown_as_if_it_were_ours(tmp_path):
    """Its metrics.json lacks what the pages print; the list says how to get it."""
    folder = report_run(tmp_path, engines={"one": STREAM}, rates=(1.0,), num_requests=4)
    path = folder / "derived" / "metrics.json"
    metrics = summarise_run(folder)
    path.write_text(json.dumps({**metrics, "schema_version": 1}))
    [run] = find_runs(tmp_path)

    assert (None, "analysed by another version: report again") == (run.metrics, run.problem)
